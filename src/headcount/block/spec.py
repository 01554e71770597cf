"""BlockSpec and BlockResult: one run of the transformer block on frozen embeddings (Section 7.3, Figure 7)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, get_args

from headcount.errors import InputError
from headcount.problem.graph import MOST_ITEMS
from headcount.training.spec import typed

Control = Literal["none", "barred", "two-values"]
FF = 16  # width of the MLP


@dataclass(frozen=True)
class BlockSpec:
    """One run: the task, the table, the block, the protocol and the seed. Its `hash` is its key everywhere.

    Controls: `barred` takes s out of the possible answers, in the loss and in every evaluation; `two-values` gives a
    single head a second value path that reads the query's own position (`attention.block.Block`).

    >>> spec = BlockSpec(items=6144, d_model=768, heads=8, key_dim=64)
    >>> spec.budget, BlockSpec.from_json(spec.to_json()) == spec
    (512, True)
    """

    items: int  # m
    d_model: int
    heads: int  # h
    key_dim: int  # d_k
    seed: int = 0  # of π and the first weights
    length: int = 16  # ℓ
    table: str = ""  # its name
    table_hash: str = ""
    scale: float = 1.0  # on the table's rows
    learning_rate: float = 3e-4
    batch: int = 1024
    weight_decay: float = 0.01
    steps: int = 100_000
    check_every: int = 2000
    validation: int = 8192  # contexts; a run is judged on those that are valid for it
    test: int = 16384
    control: Control = "none"

    def __post_init__(self) -> None:
        for item in fields(self):
            kind = {"int": int, "float": float}.get(str(item.type), str)
            object.__setattr__(self, item.name, typed(item.name, getattr(self, item.name), kind))
        for name, low, high in (
            ("items", 3, MOST_ITEMS),
            ("d_model", 1, 2**16),
            ("heads", 1, 2**16),
            ("key_dim", 1, 2**16),
            ("seed", 0, 2**63 - 1),
            ("length", 1, (self.items - 1) // 2),
            ("batch", 1, 2**20),
            ("steps", 1, 10**9),
            ("check_every", 1, 10**6),
            ("validation", 1, 10**6),
            ("test", 1, 10**6),
        ):
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} {getattr(self, name)} does not fit; choose {low}…{high}")
        if self.d_model % self.heads:
            raise InputError(
                f"{self.heads} heads do not divide d_model {self.d_model} into values; choose a divisor"
            )
        for name in ("learning_rate", "scale"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} {getattr(self, name)} is no positive number; choose one")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(
                f"weight_decay {self.weight_decay} is negative or infinite; the paper uses 0.01"
            )
        if self.control not in get_args(Control):
            raise InputError(
                f"control {self.control!r} is unknown; use {', '.join(get_args(Control))}"
            )
        if self.two_values and self.heads != 1:
            raise InputError(
                f"two values are a control for one head; {self.heads} heads do not fit, use 1"
            )

    @property
    def budget(self) -> int:
        """D_K = h·d_k."""
        return self.heads * self.key_dim

    @property
    def two_values(self) -> bool:
        return self.control == "two-values"

    @cached_property
    def hash(self) -> str:
        """Content hash: the same for equal specs, on any machine."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=16).hexdigest()

    def to_json(self) -> str:
        """Canonical JSON: sorted names, no spaces, every field present."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BlockSpec:
        """Read what `to_json` wrote."""
        return cls.from_mapping(_object(text, "a block run"))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> BlockSpec:
        """A spec from names and values; an unknown name is an error."""
        known = [item.name for item in fields(cls)]
        unknown, missing = (
            set(values) - set(known),
            [name for name in known[:4] if name not in values],
        )
        if unknown:
            raise InputError(f"{min(unknown)!r} is no field of a block run; use {', '.join(known)}")
        if missing:
            raise InputError(f"a block run needs {', '.join(missing)}")
        return cls(**values)


@dataclass(frozen=True)
class Attention:
    """Mean attention of the last position on the target's slot, on itself and on NULL: by head, and of whichever head
    has most of it in an example."""

    target: tuple[float, ...]
    own: tuple[float, ...]
    null: tuple[float, ...]
    best_target: float
    best_own: float
    best_null: float


@dataclass(frozen=True)
class BlockResult:
    """One finished run. All but `seconds` and `versions` follows from the spec, the table and the machine kind."""

    spec: BlockSpec
    best_validation: float  # accuracy
    best_step: int  # where it was reached first
    test: float  # accuracy at that checkpoint: what Figure 7 shows
    final_test: float  # accuracy after the last step
    history: tuple[tuple[int, float], ...]  # (step, validation accuracy) at every check
    answers: dict[
        str, float
    ]  # shares after the last step: correct, s, q, context (another item of it), null, other
    barred_test: float  # accuracy after the last step when neither s nor q may be the answer
    attention: Attention  # after the last step
    loss: float  # test cross-entropy after the last step
    diverged: int | None  # the first check with weights that are not finite
    engine: str
    device: str
    seconds: float  # its share of the wall time
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """JSON with every field; a number that is not finite is written as Python's json does."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BlockResult:
        """Read what `to_json` wrote."""
        values = _object(text, "a block run's result")
        values["spec"] = BlockSpec.from_mapping(values["spec"])
        values["history"] = tuple((step, accuracy) for step, accuracy in values["history"])
        seen: dict[str, Any] = values["attention"]
        seen |= {name: tuple(part) for name, part in seen.items() if isinstance(part, list)}
        values["attention"] = Attention(**seen)
        return cls(**values)


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{what}'s description is not JSON ({error}); write it with to_json"
        ) from error
    if not isinstance(values, dict):
        raise InputError(f"{what}'s description must be one JSON object")
    return values
