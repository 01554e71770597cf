"""The native engine's library: built where there is a C++ compiler, left out quietly where there is none."""

from glob import glob

from setuptools import Extension, setup

NATIVE = "src/headcount/training/engines/native"

setup(
    ext_modules=[
        Extension(
            "headcount.training.engines.native._native",
            sources=sorted(glob(f"{NATIVE}/*.cpp")),
            depends=sorted(glob(f"{NATIVE}/*.h")),
            language="c++",
            optional=True,
            extra_compile_args=[
                *("-std=c++17", "-O3", "-g0", "-fno-wrapv", "-fvisibility=hidden", "-Wno-psabi"),
                *(
                    "-ffp-contract=fast",
                    "-fno-math-errno",
                    "-fno-trapping-math",
                ),  # NaN and infinity keep their meaning
            ],
            extra_link_args=["-pthread"],
        )
    ]
)
