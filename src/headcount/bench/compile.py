"""How fast the compiler is, against the source of another release in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

import headcount
from headcount.bench import compile_worker
from headcount.bench.timing import Report, silent
from headcount.compiler.grid import check_bits
from headcount.errors import InputError


@dataclass(frozen=True)
class CompilePoint:
    """A permutation, or a regular graph of a degree, on a Gaussian table, and the D_K asked for."""

    items: int
    d_model: int
    budget: int
    degree: int = 1


# The rows of docs/compiler.md.
POINTS = (
    *(CompilePoint(64, 16, budget) for budget in (12, 9, 8)),
    *(CompilePoint(128, 32, budget) for budget in (10, 9, 8)),
    *(CompilePoint(128, 64, budget) for budget in (5, 4)),
    *(CompilePoint(256, 32, budget) for budget in (36, 24, 19)),
    *(CompilePoint(512, 64, budget) for budget in (34, 21)),
    *(CompilePoint(128, 32, budget, 4) for budget in (41, 24)),
    *(CompilePoint(128, 32, budget, 16) for budget in (164, 80)),
    *(CompilePoint(512, 16, budget) for budget in (200, 120)),
)


def compile_speed(
    points: Sequence[CompilePoint] = POINTS,
    *,
    against: str | os.PathLike[str] | None = None,
    seeds: Sequence[int] = range(20, 25),
    time_limit: float = 120.0,
    threads: int = 1,
    device: str = "cpu",
    bits: int | None = None,
    report: Report = silent,
) -> list[dict[str, Any]]:
    """Time `compile` at each point and seed; with `against`, the other source takes turns with us.

    `against` is a folder with another release's package in it, as `src` of its checkout. Each has a
    process of its own, warmed up on a small problem. CPU seconds count what the process itself
    used, so they suffer less from other work on the machine. A search that finds nothing counts
    with the time that it took. With `bits` the weights are rounded to as many.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device; use device='cpu' (--device cpu)")
    options: dict[str, Any] = {"time_limit": time_limit, "device": device}
    if bits is not None:
        check_bits(bits)
        options["bits"] = bits
    sources = [Path(headcount.__file__).parents[1]]
    if against is not None:
        if not (Path(against) / "headcount").is_dir():
            raise InputError(f"{against}: holds no package headcount; give the src of a checkout")
        sources.append(Path(against))
    rows = []
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(source, threads)) for source in sources]
        for worker in reversed(workers):  # the other first: whether it can run is soon known
            _ask(worker, CompilePoint(16, 8, 6), 0, {"time_limit": time_limit, "device": device})
        for point in points:
            found: list[list[dict[str, Any]]] = [[] for _ in workers]
            for seed in seeds:
                for worker, answers in zip(workers, found, strict=True):
                    answers.append(_ask(worker, point, seed, options))
                report(f"({point.items}, {point.d_model}) at D_K = {point.budget}, seed {seed}")
            rows.append(asdict(point) | _summary(found))
    return rows


def _summary(found: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Counts, medians and slowest times of ours; of the other too, and the ratio of medians."""
    row: dict[str, Any] = {"seeds": len(found[0])}
    for name, answers in zip(("ours", "other"), found, strict=False):
        row[f"{name}_exact"] = sum(answer["exact"] for answer in answers)
        for kind in ("seconds", "cpu_seconds"):
            row[f"{name}_{kind}"] = median(answer[kind] for answer in answers)
        row[f"{name}_slowest"] = max(answer["seconds"] for answer in answers)
        if any(memory := [answer.get("gpu_gigabytes", 0) for answer in answers]):
            row[f"{name}_gpu_gigabytes"] = max(memory)
    if len(found) > 1:
        row["ratio"] = row["other_seconds"] / row["ours_seconds"]
        row["cpu_ratio"] = row["other_cpu_seconds"] / row["ours_cpu_seconds"]
    return row


@contextmanager
def _worker(source: Path, threads: int) -> Iterator[subprocess.Popen[str]]:
    # -P keeps this folder, whose modules have common names, off the path.
    words = [sys.executable, "-P", compile_worker.__file__, str(threads)]
    paths = os.pathsep.join([str(source.resolve()), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        words,
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # closing flushes what it never read
                process.stdin.close()


def _ask(
    worker: subprocess.Popen[str], point: CompilePoint, seed: int, options: dict[str, Any]
) -> dict[str, Any]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    job = asdict(point) | {"seed": seed} | options
    try:
        print(json.dumps(job), file=worker.stdin, flush=True)
        answer = worker.stdout.readline()
    except BrokenPipeError:  # it ended before it was asked
        answer = ""
    if not answer:
        raise InputError(
            "the other source cannot run this benchmark; its error is above: "
            "give a release from 0.1.0 on"
        )
    return json.loads(answer)
