"""Spec, the base of every run's description, and RunSpec, one training run (Sections 6–7, A)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeVar, get_args

from headcount.errors import InputError
from headcount.problem.graph import MOST_ITEMS

Variant = Literal["max", "softmax", "value", "sum"]
Metric = Literal["f1", "mse"]
GRAPHS = ("regular", "random", "skewed")
TABLES = ("gaussian", "binary")
LONGEST_CONTEXT = 64
_MOST_ENTRIES = 2**32  # 16 GB of float32
_Own = TypeVar("_Own", bound="Spec")


@dataclass(frozen=True)
class Spec:
    """The full description of one run. Its `hash` is its key everywhere.

    A subclass names its fields, whose annotations must be `int`, `float` or a kind of `str`, and
    checks their ranges in `__post_init__` after calling this one.
    """

    kind: ClassVar[str] = "run"  # what error messages call it
    # Fields that release 0.1.0 did not have, with the value that all its runs had. The JSON leaves
    # a field out at that value, so that the runs of that release keep their hashes.
    added: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        # Equal specs must have equal JSON, so 16.0, numpy's 16 and 16 all become the field's type.
        for field in fields(self):
            kind = {"int": int, "float": float}.get(str(field.type), str)
            value = _typed(field.name, getattr(self, field.name), kind)
            object.__setattr__(self, field.name, value)

    @cached_property
    def hash(self) -> str:
        """Content hash: the same for equal specs, on any machine."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=16).hexdigest()

    def to_json(self) -> str:
        """Canonical JSON: sorted names, no spaces, every field present but those of `added`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        kept = {
            name: value
            for name, value in values.items()
            if name not in self.added or value != self.added[name]
        }
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls: type[_Own], text: str) -> _Own:
        """Read what `to_json` wrote."""
        values = json_object(text, f"the description of a {cls.kind}")
        return cls.from_mapping({**cls.added, **values})

    @classmethod
    def from_mapping(cls: type[_Own], values: Mapping[str, Any]) -> _Own:
        """A spec from names and values; an unknown name is an error that gives the nearest one."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}"
                raise InputError(f"{name!r} is not a field of a {cls.kind}; {hint}")
        required = [field.name for field in fields(cls) if field.default is MISSING]
        if missing := [name for name in required if name not in values]:
            raise InputError(f"a {cls.kind} needs {', '.join(missing)}")
        return cls(**values)

    def _require_ranges(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} {getattr(self, name)} does not fit; choose {low}…{high}")

    def _require_positive(self, *names: str) -> None:
        for name in names:
            if not 0 < getattr(self, name) < math.inf:
                value = getattr(self, name)
                raise InputError(f"{name} {value} is not a positive number; choose one")

    def _require_share(self, name: str, usual: float) -> None:
        if not 0 < getattr(self, name) < 1:
            value = getattr(self, name)
            raise InputError(f"{name} {value} is not between 0 and 1; the paper uses {usual}")

    def _require_choice(self, name: str, choices: tuple[str, ...]) -> None:
        if getattr(self, name) not in choices:
            value = getattr(self, name)
            raise InputError(f"{name} {value!r} is unknown; use {', '.join(choices)}")


@dataclass(frozen=True)
class RunSpec(Spec):
    """One run: the problem, the channel, the protocol and the seed.

    Variants: `max` over heads with the logistic loss (Section 6), `softmax` (7.1:
    Σ_k softmax(S⁽ᵏ⁾/√d_k)), `value` (7.2: raw max scores mix frozen messages, mean squared error)
    and `sum` over heads, the control that Section 3's remark calls for.

    Graphs: `regular` is the paper's family of a degree (a permutation for 1, above it an r-regular
    graph), `random` draws items·degree of all loop-free pairs, `skewed` as many with hubs
    (`skewed_graph`). The positive weight is ℓ − 1 for permutations, that of Eq. (30) otherwise.
    Where an item has several targets in a context, `value` retrieves the sum of their messages.
    Tables: `gaussian` unit-norm rows, or `binary` ones (Cor. B.7).

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
    target: float = (
        0.995  # validation micro-F1 to exceed; `value` stops when no check is a new best
    )
    validation: int = 500  # contexts
    test: int = 2000
    draws: int = 2  # 1: as in release 0.1.0, which drew π and X from one random stream
    graph: str = "regular"
    table: str = "gaussian"

    added: ClassVar[Mapping[str, Any]] = {"draws": 1, "graph": "regular", "table": "gaussian"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_choice("variant", get_args(Variant))
        self._require_choice("graph", GRAPHS)
        self._require_choice("table", TABLES)
        if self.steps == 0:
            object.__setattr__(self, "steps", 80_000 if self.variant == "softmax" else 20_000)
        self._require_ranges(
            {
                "items": (1, MOST_ITEMS),
                "d_model": (1, 2**20),
                "heads": (1, 2**16),
                "key_dim": (1, 2**16),
                "seed": (0, 2**63 - 1),
                "degree": (1, max(1, self.items - 1)),
                "length": (1, min(self.items, LONGEST_CONTEXT)),
                "steps": (1, 10**9),
                "check_every": (1, 10**6),
                "patience": (1, 10**9),
                "validation": (1, 10**6),
                "test": (1, 10**6),
                "draws": (1, 2),
            }
        )
        self._require_share("rate", 0.5)
        self._require_positive("learning_rate", "sharpness")
        self._require_share("target", 0.995)
        self._require_memory()
        if self.variant == "value":
            self._require_value_retrieval()

    def _require_memory(self) -> None:
        for what, entries in (
            ("embeddings", self.items * self.d_model),
            ("weights", 2 * self.d_model * self.budget),
        ):
            if entries > _MOST_ENTRIES:
                raise InputError(
                    f"{entries:,} entries of {what} are more than {_MOST_ENTRIES:,}; "
                    "choose smaller sizes"
                )

    def _require_value_retrieval(self) -> None:
        if self.length < 2:
            raise InputError(
                "value retrieval needs a source and its target in a context; "
                "choose a length of at least 2"
            )

    @property
    def is_permutation(self) -> bool:
        """Whether the graph is a permutation by construction (A.1)."""
        return self.graph == "regular" and self.degree == 1

    @property
    def budget(self) -> int:
        """D_K = h·d_k."""
        return self.heads * self.key_dim

    @property
    def metric(self) -> Metric:
        """What the run is judged by."""
        return "mse" if self.variant == "value" else "f1"

    @property
    def stream(self) -> str:
        """The name of the random stream of its training contexts and first weights.

        Limits and stopping rules are left out: a run with more steps begins with the shorter run.
        """
        drawn = (
            *("items", "d_model", "heads", "key_dim", "degree"),
            *("variant", "length", "rate", "seed"),
        )
        return "/".join(str(getattr(self, name)) for name in drawn)


def json_object(text: str, what: str) -> dict[str, Any]:
    """One JSON object; `what` is how an error names the text."""
    try:
        values = json.loads(text)
    except (ValueError, TypeError) as error:
        raise InputError(f"{what} is not JSON ({error}); write it with to_json") from error
    if not isinstance(values, dict):
        raise InputError(f"{what} must be one JSON object")
    return values


def _typed(name: str, value: Any, kind: type) -> Any:
    """The value as its field's type."""
    if kind is str:
        if not isinstance(value, str):
            raise InputError(f"{name} must be a word; {value!r} is not")
        return str(value)
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InputError(f"{name} must be a number; {value!r} is not")
    number: Any = value
    if kind is float:
        return math.inf if number > 2**1000 else float(number)  # float() refuses larger integers
    if not isinstance(number, Integral) and not float(number).is_integer():
        raise InputError(f"{name} must be a whole number; {value!r} is not")
    return int(number)
