"""RunSpec: one training run, fully described (Section 6, Sections 7.1–7.2, Appendices A.1 and A.3)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Literal, get_args

from headcount.errors import InputError
from headcount.problem.graph import MOST_ITEMS

Variant = Literal["max", "softmax", "value", "sum"]
Metric = Literal["f1", "mse"]
LONGEST_CONTEXT = 64
_MOST_ENTRIES = 2**32  # 16 GB of float32

_DRAWN = ("items", "d_model", "heads", "key_dim", "degree", "variant", "length", "rate", "seed")


@dataclass(frozen=True)
class RunSpec:
    """One run: the problem, the channel, the protocol and the seed. Its `hash` is its key everywhere.

    Variants: `max` over heads with the logistic loss (Section 6), `softmax` (7.1: Σ_k softmax(S⁽ᵏ⁾/√d_k)), `value`
    (7.2: raw max scores mix frozen messages, mean squared error) and `sum` over heads, the control that Section 3's
    remark calls for.
    `degree` 1 is a permutation with positive weight ℓ − 1, above it an r-regular graph with the weight of Eq. (30).

    >>> spec = RunSpec(items=64, d_model=16, heads=4, key_dim=5, seed=3)
    >>> spec.budget, spec.steps, RunSpec.from_json(spec.to_json()) == spec
    (20, 20000, True)
    """

    items: int  # m
    d_model: int
    heads: int  # h
    key_dim: int  # d_k
    seed: int = 0
    degree: int = 1  # r
    variant: Variant = "max"
    length: int = 16  # ℓ
    rate: float = 0.5  # ρ
    learning_rate: float = 1e-3
    sharpness: float = 10.0  # α
    steps: int = 0  # 0: the paper's limit, 80,000 for softmax and 20,000 otherwise
    check_every: int = 500
    patience: int = 5
    target: float = 0.995  # validation micro-F1 that must be exceeded; `value` stops when no check is a new best
    validation: int = 500  # contexts
    test: int = 2000

    def __post_init__(self) -> None:
        for item in fields(self):
            kind = {"int": int, "float": float}.get(str(item.type), str)
            object.__setattr__(self, item.name, typed(item.name, getattr(self, item.name), kind))
        if self.variant not in get_args(Variant):
            raise InputError(
                f"variant {self.variant!r} is unknown; use {', '.join(get_args(Variant))}"
            )
        if self.steps == 0:
            object.__setattr__(self, "steps", 80_000 if self.variant == "softmax" else 20_000)
        for name, low, high in (
            ("items", 1, MOST_ITEMS),
            ("d_model", 1, 2**20),
            ("heads", 1, 2**16),
            ("key_dim", 1, 2**16),
            ("seed", 0, 2**63 - 1),
            ("degree", 1, self.items - 1 if self.items > 1 else 1),
            ("length", 1, min(self.items, LONGEST_CONTEXT)),
            ("steps", 1, 10**9),
            ("check_every", 1, 10**6),
            ("patience", 1, 10**9),
            ("validation", 1, 10**6),
            ("test", 1, 10**6),
        ):
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} {getattr(self, name)} does not fit; choose {low}…{high}")
        if not 0 < self.rate < 1:
            raise InputError(f"rate {self.rate} is not between 0 and 1; the paper uses 0.5")
        for name in ("learning_rate", "sharpness"):
            if not (0 < getattr(self, name) < math.inf):
                raise InputError(f"{name} {getattr(self, name)} is no positive number; choose one")
        if not 0 < self.target < 1:
            raise InputError(f"target {self.target} is not between 0 and 1; the paper uses 0.995")
        for what, entries in (
            ("embeddings", self.items * self.d_model),
            ("weights", 2 * self.d_model * self.budget),
        ):
            if entries > _MOST_ENTRIES:
                raise InputError(
                    f"{entries:,} entries of {what} are more than {_MOST_ENTRIES:,}; choose smaller sizes"
                )
        if self.variant == "value" and self.length < 2:
            raise InputError(
                "value retrieval needs a source and its target in a context; choose a length of at least 2"
            )
        if self.variant == "value" and self.degree != 1:
            raise InputError(
                f"value retrieval has one target an item; degree {self.degree} does not fit, use 1"
            )

    @property
    def budget(self) -> int:
        """D_K = h·d_k."""
        return self.heads * self.key_dim

    @property
    def metric(self) -> Metric:
        """What the run is judged by."""
        return "mse" if self.variant == "value" else "f1"

    @cached_property
    def hash(self) -> str:
        """Content hash: the same for equal specs, on any machine."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=16).hexdigest()

    @property
    def stream(self) -> str:
        """The name of the stream of its training contexts and first weights.

        Limits and stopping rules are left out: a run with more steps begins with the shorter run.
        """
        return "/".join(str(getattr(self, name)) for name in _DRAWN)

    def to_json(self) -> str:
        """Canonical JSON: sorted names, no spaces, every field present."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Read what `to_json` wrote."""
        try:
            values = json.loads(text)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"a run's description is not JSON ({error}); write it with RunSpec.to_json"
            ) from error
        if not isinstance(values, dict):
            raise InputError("a run's description must be one JSON object")
        return cls.from_mapping(values)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunSpec:
        """A spec from names and values; an unknown name is an error that gives the nearest valid one."""
        known = [item.name for item in fields(cls)]
        for name in values:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                raise InputError(
                    f"{name!r} is no field of a run; "
                    + (f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}")
                )
        missing = [name for name in known[:4] if name not in values]
        if missing:
            raise InputError(f"a run needs {', '.join(missing)}")
        return cls(**values)


def typed(name: str, value: Any, kind: type) -> Any:
    """The value as its field's type, so that equal specs are equal JSON (1 and 1.0, numpy's numbers)."""
    if kind is str:
        if not isinstance(value, str):
            raise InputError(f"{name} must be a word; {value!r} is none")
        return str(value)
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InputError(f"{name} must be a number; {value!r} is none")
    number: Any = value
    if kind is float:
        return math.inf if number > 2**1000 else float(number)
    if not isinstance(number, Integral) and not float(number).is_integer():
        raise InputError(f"{name} must be a whole number; {value!r} is none")
    return int(number)
