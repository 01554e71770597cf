"""Kernels compiled ahead of a sweep, and compiled at all: that needs no GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.bench.cases import SHAPES, VARIANTS
from headcount.training.spec import RunSpec
from tests.processes import printed

pytest.importorskip("triton")
from headcount.training.engines.triton import compilation
from headcount.training.engines.triton.shape import Shape


@given(
    sizes=st.tuples(st.integers(64, 4096), st.integers(1, 600), st.integers(1, 70)),
    key_dim=st.integers(1, 40),
    degree=st.sampled_from([1, 3, 40]),
    length=st.integers(1, 64),
    validation=st.integers(1, 2000),
    variant=st.sampled_from(["max", "softmax", "sum"]),
    graph=st.sampled_from(["regular", "skewed", "0" * 32]),
)
def test_the_smallest_problem_has_the_same_kernels(
    sizes, key_dim, degree, length, validation, variant, graph
):
    """It is what kernels are compiled with ahead of a sweep."""
    more = {"degree": degree, "length": length, "validation": validation, "variant": variant}
    spec = RunSpec(*sizes, key_dim, graph=graph, **more)
    small = compilation.smallest(spec)
    assert Shape.of(small) == Shape.of(spec)
    assert small.items <= 131


SMALL = RunSpec(32, 16, 1, 4, validation=2, test=2, check_every=2, steps=2)


@pytest.fixture
def as_if_slow(monkeypatch):
    """Every shape counts as compiled anew; gives those that this process has compiled."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    compiled = list[RunSpec]()
    of = staticmethod(lambda spec, slots: compiled.append(spec))
    monkeypatch.setattr(compilation.Compilation, "of", of)
    monkeypatch.setattr(compilation, "_CACHED", -9.0)
    monkeypatch.setattr(compilation, "cores", lambda: 2)
    monkeypatch.setattr(compilation, "_MOST_PROCESSES", 1)  # each imports torch
    monkeypatch.setattr(driver, "_active", compilation._Target(GPUTarget("cuda", 90, 32)))
    return compiled


def test_slow_shapes_are_compiled_by_other_processes(as_if_slow, monkeypatch):
    """The count is of shapes, not of runs."""
    given = list[tuple[object, ...]]()

    class Pool(compilation.ProcessPoolExecutor):
        def __init__(self, processes, initializer, initargs, **others):
            given.append((processes, initializer, *initargs))
            super().__init__(processes, initializer=initializer, initargs=initargs, **others)

        def map(self, of, specs, slots):
            given.append((list(specs), slots))
            # What the fixture put in its place cannot be sent to another process.
            return super().map(_kernels_compiled_for, [90, 90])

    monkeypatch.setattr(compilation, "ProcessPoolExecutor", Pool)
    specs = [replace(SMALL, heads=heads, seed=seed) for heads in (1, 2, 4) for seed in (0, 1)]
    assert compilation.compile_ahead(specs, slots=264) == 3
    assert [spec.heads for spec in as_if_slow] == [4]  # the largest, here; the others elsewhere
    (processes, initializer, target), (rest, slots) = given
    assert (processes, initializer, target.arch) == (1, compilation.compile_for, 90)
    assert [spec.heads for spec in rest] == [2, 1]
    assert slots == [264, 264]


def _kernels_compiled_for(arch: int) -> None:
    from triton.runtime import driver

    assert driver.active.get_current_target().arch == arch


COMPILE = """
import os, sys
from dataclasses import replace
from pathlib import Path
folder, arch, specs = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ.pop("TRITON_INTERPRET", None)
os.environ["TRITON_CACHE_DIR"] = folder
from triton.backends.compiler import GPUTarget
from headcount.training.engines.base import State
from headcount.training.engines.triton.compilation import Compilation, compile_for
from headcount.training.spec import RunSpec
compile_for(GPUTarget("cuda", arch, 32))
for spec in eval(specs):
    Compilation.of(spec, slots=2 * 132)
    if "whole" in sys.argv:  # a fleet of the runs themselves
        runs = [replace(spec, seed=seed) for seed in range(3)]
        fleet = Compilation(runs, [State.initial(run) for run in runs], "cpu", 2 * 132)
        fleet.launch(500)
        fleet.test([1])
print(*sorted(f"{path.stem} {path.stat().st_mtime_ns}" for path in Path(folder).rglob("*.cubin")))
"""


def compiled(folder, specs: list[RunSpec], arch: int = 90, *more: str) -> list[tuple[str, str]]:
    """The kernels in the cache, and when they came, once a process of its own has compiled."""
    words = printed(COMPILE, folder, arch, specs, *more).split()
    return list(zip(words[::2], words[1::2], strict=True))


# A run that a program keeps in registers, and one as several share it, with keys that heads share.
KINDS = [RunSpec(64, 16, 4, 5), RunSpec(64, 128, 8, 8, variant="value", kv_heads=2)]


def test_kernels_compile_for_a_gpu_that_is_not_here(tmp_path):
    """The interpreter takes much that the compiler refuses, and other tests know only the first."""
    kernels = compiled(tmp_path, KINDS)
    names = [name for name, _ in kernels]
    expected = {"draw_contexts", "project_items", "tally_contexts", "tally_pairs"}
    assert set(names) == expected | {"train_resident", "train_together"}
    assert names.count("project_items") == 3  # queries and keys apart where they are shared
    # Another process finds all of them there, also for the runs themselves.
    assert compiled(tmp_path, KINDS, 90, "whole") == kernels


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90])
def test_the_kernels_of_every_benchmark_compile(tmp_path, arch):
    cases = [case._replace(variant=variant) for case in SHAPES for variant in VARIANTS[:-1]]
    streamed = [RunSpec(512, 16, 32, 16), RunSpec(512, 16, 32, 16, kv_heads=8)]
    names = compiled(tmp_path, [case.specs(1)[0] for case in cases] + streamed, arch)
    assert {"train_resident", "train_streaming", "train_together"} <= {name for name, _ in names}
