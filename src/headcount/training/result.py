"""RunResult: what one training run came to."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from headcount.attention.key_query import KeyQuery
from headcount.training.spec import RunSpec


@dataclass(frozen=True)
class RunResult:
    """One finished run. All but `seconds` and `versions` follows from the spec, the engine and the machine kind."""

    spec: RunSpec
    value: float  # the test metric: micro-F1, or mean squared error for `value`; nan where the run diverged
    steps: int  # taken
    threshold: float  # τ learned
    history: tuple[tuple[int, float], ...]  # (step, validation metric) at every check
    diverged: int | None  # the first step with a number that is not finite
    engine: str
    device: str
    seconds: float  # its share of the wall time
    versions: dict[str, str] = field(default_factory=dict)
    weights: KeyQuery | None = field(default=None, compare=False, repr=False)  # on request


@cache
def versions() -> dict[str, str]:
    """The software a result was made with."""
    return {"python": platform.python_version()} | {name: _version(name) for name in ("headcount", "torch", "numpy")}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from its source folder
        return "unknown"
