"""Median seconds of several pieces of work that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from headcount.progress import time_left

Report = Callable[[str], None]  # is told how far a benchmark is


def silent(text: str) -> None:
    """Report nothing."""


def seconds_of(work: Callable[[], object]) -> float:
    """Wall seconds of one call, kernels on a CUDA device included."""
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def medians(
    works: Sequence[Callable[[], object]], repeats: int, report: Report = silent
) -> list[float]:
    """Median seconds of each, measured in turns after one untimed round.

    They take turns so that a change in the machine's load meets all of them.
    """
    rounds: list[list[float]] = []
    began = time.monotonic()
    for number in range(repeats + 1):
        rounds.append([seconds_of(work) for work in works])
        times = ", ".join(f"{seconds:.3f} s" for seconds in rounds[-1])
        left = time_left(began, number + 1, repeats + 1)
        report(f"round {number} of {repeats}: {times}{left}")
    return [median(column) for column in zip(*rounds[1:], strict=True)]
