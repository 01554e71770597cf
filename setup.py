"""Build the native engine's library; without a C++ compiler the install continues without it."""

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
                # Not -ffast-math: a diverged run is found by its NaN and infinities, and sums must
                # not be reordered from one compiler to the next.
                *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
            ],
            extra_link_args=["-pthread"],
        )
    ]
)
