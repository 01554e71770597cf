"""What a sweep runs: plans that ask for batches, each of which may depend on earlier results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol, runtime_checkable

from headcount.training.result import RunResult
from headcount.training.spec import RunSpec


@runtime_checkable
class BatchPlan(Protocol):
    """What is to be run: batches that may depend on the results of those before."""

    def next_batch(self) -> list[RunSpec]:
        """The next runs, in any order; none when the plan is complete."""
        ...

    def observe(self, results: Iterable[RunResult]) -> object:
        """Take the results of the last batch."""
        ...


class GridPlan:
    """A plan of one batch."""

    def __init__(self, specs: Iterable[RunSpec]) -> None:
        self._specs = list(dict.fromkeys(specs))

    def next_batch(self) -> list[RunSpec]:
        batch, self._specs = self._specs, []
        return batch

    def observe(self, results: Iterable[RunResult]) -> None:
        pass


class CombinedPlan:
    """Several plans at once: each gets the results of the runs it asked for."""

    def __init__(self, plans: Sequence[BatchPlan]) -> None:
        self._plans, self._asked = list(plans), list[tuple[BatchPlan, set[RunSpec]]]()

    def next_batch(self) -> list[RunSpec]:
        batches = [(plan, plan.next_batch()) for plan in self._plans]
        self._asked = [(plan, set(batch)) for plan, batch in batches if batch]
        self._plans = [plan for plan, _ in self._asked]
        return list(dict.fromkeys(chain.from_iterable(batch for _, batch in batches)))

    def observe(self, results: Iterable[RunResult]) -> None:
        found = list(results)
        for plan, asked in self._asked:
            plan.observe([result for result in found if result.spec in asked])
