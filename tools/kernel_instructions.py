"""What the training kernels consist of, compiled for a GPU that need not be there.

    python tools/kernel_instructions.py           # a row for each case of `headcount bench all`
    python tools/kernel_instructions.py --paper   # how long all kernels of the paper's grids take

Instructions are those of one step: of the smallest loop with most of the tensor-core products.
Loads and stores of spilled registers are among them, and counted on their own too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.bench.cases import SHAPES, VARIANTS, Case
from headcount.training.spec import RunSpec

_SLOTS = 264  # programs of shared runs that an H200 has under way
_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", re.M)
_BRANCH = re.compile(r"\bBRA\b.*?(0x[0-9a-f]+)")


@dataclass(frozen=True)
class Step:
    """What one step of a training kernel takes, per warp."""

    instructions: int
    products: int  # on tensor cores
    spills: int
    barriers: int


def step_of(listing: str) -> Step:
    """The step in a listing of machine code by cuobjdump."""
    code = [(int(at, 16), text) for at, text in _LINE.findall(listing)]
    most = _count(code, "MMA") / 2
    loops = [[(0, "")] * (len(code) + 1)]
    for end, text in code:
        if (branch := _BRANCH.search(text)) and (start := int(branch[1], 16)) < end:
            body = [line for line in code if start <= line[0] <= end]
            if _count(body, "MMA") > most:
                loops.append(body)
    body = min(loops, key=len)
    if len(body) > len(code):
        raise ValueError("the listing has no loop with most of the products")
    return Step(
        len(body), _count(body, "MMA"), _count(body, r"\b(LDL|STL)\b"), _count(body, r"\bBAR\b")
    )


def _count(code: list[tuple[int, str]], pattern: str) -> int:
    return sum(1 for _, text in code if re.search(pattern, text))


def compiled(spec: RunSpec) -> list[tuple[str, Any]]:
    """The kernels of a run's shape by name, compiled."""
    from headcount.training.engines.triton.compilation import Compilation

    found = list[tuple[str, Any]]()

    class Kept(Compilation):
        def _begin(self, kernel: Any, grid: tuple[int, ...], *arguments: object, **named: Any):
            found.append((kernel.fn.__name__, kernel.warmup(*arguments, grid=grid, **named)))

    Kept.of(spec, _SLOTS)
    return found


def listing_of(kernel: Any) -> str:
    """A kernel's machine code, disassembled by the program that comes with Triton."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "kernel.cubin"
        binary.write_bytes(kernel.asm["cubin"])
        command = [knobs.nvidia.cuobjdump.path, "-sass", str(binary)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def print_steps() -> None:
    """A row for each case."""
    names = ("kernel", *Step.__dataclass_fields__)
    print(f"| (m, d_model, h, D_K) | variant | {' | '.join(names)} |")
    print("| --- " * (len(names) + 2) + "|")
    for case in SHAPES:
        for variant in VARIANTS[:-1]:  # a table of one's own has the kernels of max
            print(_row(case._replace(variant=variant)), flush=True)


def _row(case: Case) -> str:
    for name, kernel in compiled(case.specs(1)[0]):
        if name.startswith("train_"):
            step = asdict(step_of(listing_of(kernel))).values()
            return f"| {case.shape} | {case.variant} | {name} | {' | '.join(map(str, step))} |"
    raise AssertionError("every run has a training kernel")


def print_compilation() -> None:
    """How long this process takes over all kernels of the paper's grids, from scratch.

    One process, so that processor time means something on a machine that has other work.
    """
    from triton import knobs

    from headcount.reproduction.presets import preset
    from headcount.training.engines.triton.compilation import Compilation, distinct_shapes

    specs, kernels = distinct_shapes(preset("paper").runs), 0

    def compiled_anew(*_: object, cache_hit: bool, **others: object) -> None:
        nonlocal kernels
        kernels += not cache_hit

    knobs.compilation.listener = compiled_anew
    began = time.perf_counter(), os.times()
    for spec in specs:
        Compilation.of(spec, _SLOTS)
    wall, used = time.perf_counter() - began[0], os.times()
    processor = sum(used[:4]) - sum(began[1][:4])
    print(f"{kernels} kernels for {len(specs)} shapes: {processor:.0f} s of processor time, "
          f"{wall:.0f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--paper", action="store_true", help="compile all of the paper's kernels")
    parser.add_argument("--arch", type=int, default=90, help="of the GPU; the H200 has 90")
    asked = parser.parse_args()
    from triton.backends.compiler import GPUTarget

    from headcount.training.engines.triton.compilation import compile_for

    compile_for(GPUTarget("cuda", asked.arch, 32))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        print_compilation() if asked.paper else print_steps()


if __name__ == "__main__":
    main()
