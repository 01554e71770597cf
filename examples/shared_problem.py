"""What changes when all seeds of a sweep share one problem (docs/deviations.md, "Choices").

    python examples/shared_problem.py

A seed of ours draws its own permutation, table, validation and test set. Appendix A.2 speaks of "a
fixed test set", which may mean that the paper's seeds shared them. Here ten seeds train on their
own problems, and then on each of five shared ones, where a seed draws its first weights and its
training contexts alone. Prints, for each width, the mean F1 and its spread over seeds with own
problems, the mean spread over seeds within a shared problem, and the means of the five problems.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean, stdev
from unittest.mock import patch

from headcount.training.engines.native import runs
from headcount.training.spec import RunSpec
from headcount.training.task import task_of
from headcount.training.train import train

# (items, d_model, heads) and the widths d_k around the D_K* of that head count.
POINTS = {(64, 16, 4): (3, 4, 5, 6), (128, 32, 2): (7, 8, 9, 10), (256, 32, 4): (11, 12, 13)}
SEEDS, PROBLEMS = range(10), range(100, 105)


@contextmanager
def shared_problem(problem: int) -> Iterator[None]:
    """The native engine gives every run the task that this seed would have drawn."""
    with patch.object(runs, "task_of", lambda spec: task_of(replace(spec, seed=problem))):
        yield


def scores(specs: list[RunSpec]) -> list[float]:
    """The test F1 of every run."""
    return [result.value for result in train(specs, engine="native", progress=False)]


def compare(point: tuple[int, int, int], key_dim: int, steps: int) -> str:
    """One line of the table."""
    items, d_model, heads = point
    specs = [RunSpec(items, d_model, heads, key_dim, seed=seed, steps=steps) for seed in SEEDS]
    own, shared = scores(specs), []
    for problem in PROBLEMS:
        with shared_problem(problem):
            shared.append(scores(specs))
    within = fmean(stdev(values) for values in shared)
    means = "  ".join(f"{fmean(values):.4f}" for values in shared)
    sizes = f"{items:6} {d_model:7} {heads:2} {key_dim:3} {heads * key_dim:4}"
    return f"{sizes}  {fmean(own):.4f} {stdev(own):.4f}  {within:.4f}  {means}"


def main(steps: int = 0) -> None:
    print(" items d_model  h d_k  D_K  own F1, spread  shared: spread, mean F1 of each problem")
    for point, widths in POINTS.items():
        for key_dim in widths:
            print(compare(point, key_dim, steps), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
