"""BlockSpec and BlockResult: one run of the transformer block (Section 7.3, Figure 7)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, get_args

from headcount.attention.shared_keys import require_kv_heads
from headcount.errors import InputError
from headcount.notebook import html_table
from headcount.problem.graph import MOST_ITEMS
from headcount.training.base_spec import Spec, json_object

Control = Literal["none", "barred", "two-values"]
FF = 16  # width of the MLP


@dataclass(frozen=True)
class BlockSpec(Spec):
    """One run: the task, the table, the block, the protocol and the seed.

    Controls: `barred` removes s from the possible answers, in the loss and in every evaluation;
    `two-values` gives a single head a second value path that reads the query's own position
    (`block.model.Block`).

    Shared keys: with g = `kv_heads` below h, head k attends with key head ⌊k·g/h⌋. Values are not
    shared: every head keeps its own, of width d_model/h, because the question is what the key–query
    channel holds. One key head per head is the same spec as leaving it out.

    >>> spec = BlockSpec(items=6144, d_model=768, heads=8, key_dim=64)
    >>> spec.budget, BlockSpec.from_json(spec.to_json()) == spec
    (512, True)
    >>> shared = BlockSpec(items=6144, d_model=768, heads=8, key_dim=64, kv_heads=2)
    >>> shared.budget, shared.key_budget
    (512, 128)
    """

    kind: ClassVar[str] = "block run"

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
    kv_heads: int = 0  # g; 0: every head has its own keys

    added: ClassVar[Mapping[str, Any]] = {"kv_heads": 0}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_ranges(
            {
                "items": (3, MOST_ITEMS),
                "d_model": (1, 2**16),
                "heads": (1, 2**16),
                "key_dim": (1, 2**16),
                "seed": (0, 2**63 - 1),
                "length": (1, (self.items - 1) // 2),
                "batch": (1, 2**20),
                "steps": (1, 10**9),
                "check_every": (1, 10**6),
                "validation": (1, 10**6),
                "test": (1, 10**6),
            }
        )
        require_divisor(self.d_model, self.heads)
        require_kv_heads(self.heads, self.key_heads)
        if self.kv_heads == self.heads:
            object.__setattr__(self, "kv_heads", 0)
        self._require_positive("learning_rate", "scale")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(
                f"weight_decay {self.weight_decay} is negative or infinite; the paper uses 0.01"
            )
        self._require_choice("control", get_args(Control))
        if self.two_values and self.heads != 1:
            raise InputError(
                f"two values are a control for one head; {self.heads} heads do not fit, use 1"
            )

    @property
    def two_values(self) -> bool:
        return self.control == "two-values"


def require_divisor(d_model: int, heads: int) -> None:
    """Refuse heads that cannot share the values' width d_v = d_model/h."""
    if d_model % heads:
        raise InputError(
            f"{heads} heads do not divide d_model {d_model} into values; choose a divisor"
        )


@dataclass(frozen=True)
class Attention:
    """Mean attention of the last position on the target's slot, on itself and on NULL.

    By head, and of whichever head pays it most in each example.
    """

    target: tuple[float, ...]
    own: tuple[float, ...]
    null: tuple[float, ...]
    best_target: float
    best_own: float
    best_null: float


@dataclass(frozen=True)
class BlockResult:
    """One finished run.

    All but `seconds` and `versions` follows from the spec, the table and the kind of machine.
    """

    spec: BlockSpec
    best_validation: float  # accuracy
    best_step: int  # where it was reached first
    test: float  # accuracy at that checkpoint: what Figure 7 shows
    final_test: float  # accuracy after the last step
    history: tuple[tuple[int, float], ...]  # (step, validation accuracy) at every check
    answers: dict[str, float]  # shares after the last step, by the names of `evaluate.ANSWERS`
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
        values = json_object(text, "the result of a block run")
        values["spec"] = BlockSpec.from_mapping(values["spec"])
        values["history"] = tuple((step, accuracy) for step, accuracy in values["history"])
        seen: dict[str, Any] = values["attention"]
        seen |= {name: tuple(part) for name, part in seen.items() if isinstance(part, list)}
        values["attention"] = Attention(**seen)
        return cls(**values)


class BlockResults(list[BlockResult]):
    """A list of results of block runs that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        names = ("table", "control", "items", "d_model", "heads", "key_heads", "key_dim", "seed")
        rows = [
            [getattr(run.spec, name) for name in names] + [run.test, run.best_step] for run in self
        ]
        return html_table((*names, "test accuracy", "best step"), rows)
