"""The contract of every engine: it makes fleets of runs, and a fleet trains them in lockstep."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from headcount.attention.key_query import AnyAggregation, KeyQuery
from headcount.errors import InputError
from headcount.shapes import Float
from headcount.training.adamw import BETAS, WARM
from headcount.training.spec import RunSpec
from headcount.training.task import first_weights


@dataclass
class State:
    """All that a run carries from step to step. `weights` are the W_Q of h heads, then g W_K."""

    weights: Float[Tensor, "matrices d_model key_dim"]
    first: Float[Tensor, "matrices d_model key_dim"]  # Adam's moments
    second: Float[Tensor, "matrices d_model key_dim"]
    threshold: Float[Tensor, " three"]  # τ and its moments
    taken: int = 0  # steps

    @classmethod
    def initial(cls, spec: RunSpec) -> State:
        """Before the first step: Gaussian weights, τ = 0."""
        weights = first_weights(spec)
        return cls(weights, torch.zeros_like(weights), torch.zeros_like(weights), torch.zeros(3))

    @property
    def finite(self) -> bool:
        """Whether weights and threshold are numbers."""
        return bool(self.weights.isfinite().all() and self.threshold[0].isfinite())

    def key_query(self, spec: RunSpec) -> KeyQuery:
        """The weights as the rest of the package knows them."""
        aggregation: AnyAggregation = "max" if spec.variant == "value" else spec.variant
        return KeyQuery(
            *self.weights.split([spec.heads, spec.key_heads]),
            threshold=float(self.threshold[0]),
            aggregation=aggregation,
            temperature=spec.temperature,
        )


@dataclass(frozen=True)
class Check:
    """A fleet after a launch: each run's validation metric, and the step at which it diverged."""

    values: list[float]
    diverged: list[int | None]


@runtime_checkable
class Fleet(Protocol):
    """Runs in lockstep: all of them have taken the same number of steps.

    What a run computes must not depend on the other runs in the fleet, bit for bit. Sweeps rely on
    it: they regroup runs freely when they resume or use other machines.
    """

    specs: list[RunSpec]

    def launch(self, steps: int) -> None:
        """Begin `steps` more steps of every run and the check after them; need not wait for it."""
        ...

    def check(self) -> Check:
        """Wait for the end of the last launch."""
        ...

    def test(self, rows: Sequence[int]) -> list[float]:
        """The test metric of these runs now."""
        ...

    def states(self, rows: Sequence[int]) -> list[State]:
        """The state of these runs, on the CPU."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these runs only."""
        ...


@runtime_checkable
class Engine(Protocol):
    """A way to run fleets."""

    name: str
    device: str

    def group(self, spec: RunSpec) -> Hashable:
        """Specs with equal groups can share a fleet."""
        ...

    def capacity(self, spec: RunSpec) -> int:
        """How many runs like this one a fleet can hold."""
        ...

    def concurrency(self, specs: Sequence[RunSpec]) -> int:
        """How many fleets like that of these runs gain from being under way together."""
        ...

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> Fleet:
        """A fleet of these runs, from the beginning or from given states."""
        ...

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        """Do what pays once before many such runs, such as compiling kernels; it may be skipped."""
        ...


@runtime_checkable
class ThreadedEngine(Engine, Protocol):
    """An engine that trains every run on one thread, and as many side by side as it has threads."""

    threads: int

    def single(self) -> ThreadedEngine:
        """The same engine with one thread, for callers that bring threads of their own."""
        ...

    def halt(self) -> None:
        """Interrupt the callers of a `single` engine (KeyboardInterrupt) within a few steps."""
        ...


def adam_scales(learning_rate: float, taken: int, steps: int) -> Float[np.ndarray, "{steps} 2"]:
    """(η/(1 − β₁ⁿ), 1/√(1 − β₂ⁿ)) for the steps n = taken + 1 …

    A step is W ← W − scale₁·m/(√v·scale₂ + ε): Adam's bias corrections, taken out of the division.
    They are computed here once, in float64 (1 − β₂ⁿ cancels for small n), so that no kernel needs a
    power function. The torch engine leaves them to torch.
    """
    if taken < WARM:
        n = np.arange(taken + 1, taken + steps + 1)
        rates = learning_rate / (1 - BETAS[0] ** n), 1 / np.sqrt(1 - BETAS[1] ** n)
        scales = np.stack(rates, axis=1)
    else:
        scales = np.full((steps, 2), (learning_rate, 1.0))
    with np.errstate(over="ignore"):  # a rate beyond float32 is infinite, and the run diverges
        return scales.astype(np.float32)


# The oldest release whose checkpoints go on here. A change of an engine's arithmetic, other than of
# the order in which it adds, moves this to the release that brings it.
_RESUMED_FROM = "0.1.0"


def lineage(engine: Engine) -> str:
    """What a run's bits depend on besides its spec and engine: CPU level or GPU, and release."""
    level = getattr(engine, "level_name", "")
    if engine.device == "cuda":
        level = torch.cuda.get_device_name()
    return "/".join(part for part in (engine.device, level, _RESUMED_FROM) if part)


def lockstep(states: Sequence[State]) -> int:
    """The common number of steps taken."""
    taken = {state.taken for state in states}
    if len(taken) != 1:
        raise InputError(
            f"runs of a fleet must have taken the same number of steps; these have {sorted(taken)}"
        )
    return taken.pop()
