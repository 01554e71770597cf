"""Engines and their peers timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import torch

from headcount.bench import cases
from headcount.bench.cases import Case
from headcount.bench.ratios import ratios
from headcount.bench.subjects import EagerSubject, EngineSubject, JaxSubject, MatmulSubject, Subject
from headcount.bench.timing import Report, silent
from headcount.progress import time_left
from headcount.provenance import cores, machine, versions

ENGINES = ("native", "torch", "triton")
_RUNS, _TORCH_RUNS = 80, 40  # on one core: a few seconds each
_FEWEST_TORCH_RUNS = 8  # its products are of four runs: fewer are filled up with copies
_CUDA_RUNS, _CUDA_RUNS_AT_MAIN, _CUDA_TORCH_RUNS = (560,), (560, 4000), 160
_JAX_STEPS_ON_CUDA = 200
Watch = Callable[[float, str], None]  # is told the share of a case that is done, and in words


def default_engines() -> tuple[str, ...]:
    """Those that this machine's fastest device runs."""
    return ("triton", "torch") if torch.cuda.is_available() else ("native", "torch")


def engine_speeds(
    engines: Sequence[str] | None = None,
    *,
    all_shapes: bool = False,
    peers: bool = True,
    repeats: int = 5,
    report: Report = silent,
) -> dict[str, Any]:
    """Time engines (by default those of this machine's fastest device) at one shape or all.

    Returns `rows`, one per engine or peer and shape, the `ratios` at the main shape with their
    targets, the `ratios_by_shape`, and the machine.
    """
    rows: list[dict[str, Any]] = []
    by_shape: dict[Case, dict[str, dict[str, float | None]]] = {}
    shapes = cases.SHAPES if all_shapes else (cases.MAIN,)
    for shape, found in timed_cases(shapes, engines or default_engines(), peers, repeats, report):
        rows += found
        by_shape[shape] = ratios(found)
    return {
        "machine": machine(),
        "cores": cores(),
        "versions": versions(),
        "repeats": repeats,
        "rows": rows,
        "ratios": by_shape[cases.MAIN],
        "ratios_by_shape": [
            {**shape._asdict(), **{name: ratio["value"] for name, ratio in found.items()}}
            for shape, found in by_shape.items()
        ],
    }


def timed_cases(
    chosen: Sequence[Case],
    engines: Sequence[str],
    peers: bool,
    repeats: int,
    report: Report = silent,
) -> Iterator[tuple[Case, list[dict[str, Any]]]]:
    """Each case with the rows of its engines and peers, one after the other."""
    began = time.monotonic()
    for number, case in enumerate(chosen):

        def tell(share: float, text: str, case: Case = case, number: int = number) -> None:
            place = f"case {number + 1} of {len(chosen)}, {case.variant} at {case.shape}"
            report(f"{place}: {text}{time_left(began, number + share, len(chosen))}")

        yield case, compare(lineup(case, engines, peers), repeats, tell)


def lineup(case: Case, engines: Sequence[str], peers: bool) -> list[Subject]:
    """All that is timed on a case."""
    on_cuda = torch.cuda.is_available()
    subjects: list[Subject] = []
    if "native" in engines or ("torch" in engines and not on_cuda):
        subjects += _on_cpu(case, engines, peers)
    if "triton" in engines or ("torch" in engines and on_cuda):
        subjects += _on_cuda(case, engines, peers)
    return subjects


def _on_cpu(case: Case, engines: Sequence[str], peers: bool) -> list[Subject]:
    runs, many = case.runs(_RUNS), cores()
    subjects: list[Subject] = []
    if "native" in engines:
        subjects.append(EngineSubject("native", "cpu", case, runs, threads=1))
        if many > 1:
            subjects.append(
                EngineSubject("native", "cpu", case, max(runs, 10 * many), threads=many)
            )
    if "torch" in engines:
        torch_runs = max(_FEWEST_TORCH_RUNS, case.runs(_TORCH_RUNS))
        subjects.append(EngineSubject("torch", "cpu", case, torch_runs, threads=1))
    if peers:
        subjects.append(EagerSubject("eager", "cpu", case, 1, threads=1))
        subjects.append(JaxSubject("jax", "cpu", case, runs, threads=1))
    subjects.append(MatmulSubject("matmul", "cpu", case, threads=1))
    if "native" in engines and many > 1:  # how far the cores themselves are from twice one
        subjects.append(MatmulSubject("matmul", "cpu", case, threads=many))
    return subjects


def _on_cuda(case: Case, engines: Sequence[str], peers: bool) -> list[Subject]:
    sizes = _CUDA_RUNS_AT_MAIN if case.shape == cases.MAIN.shape else _CUDA_RUNS
    fleets = [case.runs_on_cuda(most) for most in sizes]
    subjects: list[Subject] = []
    if "triton" in engines:
        subjects += [EngineSubject("triton", "cuda", case, runs) for runs in fleets]
    if "torch" in engines:
        subjects.append(EngineSubject("torch", "cuda", case, min(fleets[0], _CUDA_TORCH_RUNS)))
    if peers:
        subjects.append(EagerSubject("eager", "cuda", case, 1))
        subjects += [
            JaxSubject("jax", "cuda", case, runs, steps=_JAX_STEPS_ON_CUDA) for runs in fleets
        ]
    return [*subjects, MatmulSubject("matmul", "cuda", case)]


def compare(subjects: list[Subject], repeats: int, watch: Watch) -> list[dict[str, Any]]:
    """One row per subject: medians over rounds in which all take turns, the first not counted."""
    readings: list[list[dict[str, float]]] = [[] for _ in subjects]
    parts = repeats + 2  # preparing takes about as long as a round
    try:
        for subject in subjects:
            watch(0.0, f"preparing {named(subject.name, subject.device, subject.threads)}")
            _try(subject, subject.open)
        for number in range(repeats + 1):
            for subject, read in zip(subjects, readings, strict=True):
                if subject.missing is None and (found := _try(subject, subject.read)):
                    read.append(found)
            done = f"round {number} of {repeats}" if number else "warm-up"
            watch((number + 2) / parts, done)
    finally:
        for subject in subjects:
            subject.close()
    return [_row(subject, read[1:]) for subject, read in zip(subjects, readings, strict=True)]


def _try(subject: Subject, act: Callable[[], Any]) -> Any:
    """One subject that fails leaves a row that says why; the others continue."""
    try:
        return act()
    except Exception as error:
        lines = str(error).strip().split("\n")
        subject.missing = lines[0] or type(error).__name__
        return None


def _row(subject: Subject, readings: list[dict[str, float]]) -> dict[str, Any]:
    """Medians, and `rounds`: the µs per run-step of each round, or the GFLOP/s of bare products."""
    row: dict[str, Any] = {
        "engine": subject.name,
        "device": subject.device,
        "threads": subject.threads,
        **subject.case._asdict(),
        "runs": subject.runs,
        "us_per_run_step": None,
        "gflops": None,
        "share_evaluation": None,
        "share_drawing": None,
        "rounds": [],
        "missing": subject.missing,
    }
    if subject.missing is not None:
        return row
    if isinstance(subject, MatmulSubject):
        rates = [max(reading.values()) for reading in readings]
        return row | {"gflops": median(rates), "rounds": rates}
    assert subject.runs is not None
    found = {name: median(reading[name] for reading in readings) for name in readings[0]}
    rounds = [1e6 * reading["seconds"] / (subject.runs * subject.steps) for reading in readings]
    us = median(rounds)
    shares = {name: value for name, value in found.items() if name != "seconds"}
    gflops = subject.case.flops / us / 1e3
    return row | shares | {"us_per_run_step": us, "gflops": gflops, "rounds": rounds}


def named(engine: str, device: str, threads: int | None) -> str:
    """A row's name.

    >>> named("native", "cpu", 2), named("triton", "cuda", None)
    ('native on cpu, 2 threads', 'triton on cuda')
    """
    return f"{engine} on {device}" + (
        f", {threads} thread{'s' if threads > 1 else ''}" if threads else ""
    )
