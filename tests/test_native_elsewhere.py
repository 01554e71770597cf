"""The native library as other compilers build it, clang and zig, and for other processors.

64-bit ARM is emulated; for macOS and Windows the library is only compiled. `apt install
g++-aarch64-linux-gnu qemu-user clang` and `pip install ziglang` bring what these tests need.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.training.engines.base import State, adam_scales
from headcount.training.engines.native.library import Run, library
from headcount.training.engines.native.runs import NativeRun, _unpanelled
from headcount.training.engines.torch import TorchEngine
from headcount.training.spec import RunSpec

SOURCES = Path(__file__).parents[1] / "src" / "headcount" / "training" / "engines" / "native"
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
STEPS = 20
LANES = 4  # of the levels tried here
ZIG = (sys.executable, "-m", "ziglang", "c++")
COMPILERS = {
    "arm": (("aarch64-linux-gnu-g++", "-static"), ("qemu-aarch64",)),
    "clang": (("clang++",), ()),
    "zig": ((*ZIG, "-mcpu=baseline"), ()),  # as in the Makefile
}


@pytest.fixture(scope="module", params=COMPILERS)
def driver(request, tmp_path_factory) -> tuple[list[str], str]:
    """The words that start the driver, and the platform."""
    compiler, emulator = COMPILERS[request.param]
    missing = [word for word in (compiler[0], *emulator) if not shutil.which(word)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    if request.param == "zig":
        pytest.importorskip("ziglang")
    program = tmp_path_factory.mktemp(request.param) / "driver"
    sources = [*sorted(SOURCES.glob("*.cpp")), Path(__file__).with_name("native_driver.cpp")]
    subprocess.run([*compiler, *FLAGS, *sources, "-o", program, "-pthread"], check=True)
    return [*emulator, str(program)], request.param


def written(run: NativeRun, scales: Tensor) -> tuple[bytes, list[int]]:
    """The run as the driver reads it, and the sizes of its parts."""
    task = run._task
    parts = [task.rows, task.messages, task.targets, task.starts, *run._state, run._threshold]
    parts += [scales, task.validation, task.counts]
    held = [
        b"" if part is None or not pointer else part.contiguous().numpy().tobytes()
        for part, pointer in zip(parts, pointers(run.record), strict=True)
    ]
    sized = (struct.pack("<q", len(part)) + part for part in held)
    return bytes(run.record) + b"".join(sized), [len(part) for part in held]


def pointers(record: Run) -> list[int]:
    names = [name for name, kind in Run._fields_ if kind is ctypes.c_void_p]
    return [getattr(record, name) for name in names]


def read(content: bytes, sizes: list[int], spec: RunSpec) -> State:
    """The state that the driver wrote back."""
    ends = ctypes.sizeof(Run) + np.cumsum([0, *sizes])
    weights, first, second, threshold = (
        torch.from_numpy(np.frombuffer(content[ends[n] : ends[n + 1]], np.float32).copy())
        for n in range(4, 8)
    )
    depth = spec.d_model + -spec.d_model % 8
    panels = (_unpanelled(part.view(-1, depth, LANES), spec) for part in (weights, first, second))
    return State(*panels, threshold, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["max", "softmax", "value", "sum", "logsumexp"])
@pytest.mark.parametrize("level", ["plain", "baseline", "neon"])
def test_it_follows_the_reference(driver, level, variant, tmp_path):
    words, platform = driver
    if (level == "neon") != (platform == "arm") and level != "plain":
        pytest.skip(f"{platform} has no level {level}")
    spec = RunSpec(40, 12, 6, 5, 1, 2, variant, kv_heads=3, length=20, validation=12, test=4)
    reference = TorchEngine("cpu").fleet([spec])
    try:
        run = NativeRun(spec, reference.states([0])[0], level=0)
    except InputError as missing:
        pytest.skip(str(missing))
    assert library().headcount_width(0) == LANES
    reference.launch(STEPS)
    scales = torch.from_numpy(adam_scales(spec.learning_rate, 0, STEPS))
    run.record.scales = scales.data_ptr()
    run.will_evaluate("validation")
    content, sizes = written(run, scales)
    (tmp_path / "run").write_bytes(content)
    done = subprocess.run([*words, level, str(STEPS), tmp_path / "run"], check=False)
    assert done.returncode == 0
    after = (tmp_path / "run").read_bytes()
    found, (expected,) = read(after, sizes, spec), reference.states([0])
    for part in ("weights", "threshold"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part), rtol=0, atol=1e-5)
    assert not torch.equal(found.weights, State.initial(spec).weights)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["aarch64-macos", "x86_64-windows-gnu"])
def test_it_compiles_for_other_systems(target, tmp_path):
    pytest.importorskip("ziglang")
    out = tmp_path / "library"
    words = [*ZIG, "-target", target, "-shared", *FLAGS, *sorted(SOURCES.glob("*.cpp")), "-o", out]
    subprocess.run(words, check=True)
    assert b"headcount_levels" in out.read_bytes()
