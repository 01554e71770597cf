"""The problems that engines are timed on, and the arithmetic of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from headcount.problem.streams import generator
from headcount.training.spec import RunSpec

STEPS = 500  # between two checks
LENGTH = 16
# What is trained: the variants of `RunSpec`, shared keys, and a table of one's own.
VARIANTS = ("max", "softmax", "value", "sum", "logsumexp", "shared keys", "own table")
_TASKS = 80
_FLOATS = 2**29  # of embeddings that the runs of one fleet may hold
_OWN_TABLE = 0x0B7  # seed of the table that stands for one of a user's own


class Case(NamedTuple):
    """m, d_model, h and D_K, and one of `VARIANTS`."""

    items: int
    d_model: int
    heads: int
    budget: int
    variant: str = "max"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(m, d_model, h, D_K)."""
        return self[:4]

    @property
    def kv_heads(self) -> int:
        """Different keys: as many as heads, or a quarter where they are shared."""
        return max(1, self.heads // 4) if self.variant == "shared keys" else self.heads

    def specs(self, runs: int) -> list[RunSpec]:
        """As many runs as asked for, on at most `_TASKS` problems: preparing one takes long."""
        first = self._first_spec()
        return [replace(first, seed=number % _TASKS) for number in range(runs)]

    def _first_spec(self) -> RunSpec:
        fields: dict[str, Any] = {
            "heads": self.heads,
            "key_dim": self.budget // self.heads,
            "length": LENGTH,
            "kv_heads": self.kv_heads,
        }
        if self.variant == "own table":  # rows of different lengths, as those of a model are
            rows = generator(_OWN_TABLE).standard_normal((self.items, self.d_model))
            return RunSpec.on("regular", rows / self.d_model**0.5, **fields)
        kept: Any = "max" if self.variant == "shared keys" else self.variant
        return RunSpec(self.items, self.d_model, variant=kept, **fields)

    @property
    def flops(self) -> int:
        """Of one step of one run: projections, scores and all gradients; Adam is not counted.

        >>> MAIN.flops, MAIN._replace(variant="sum").flops
        (303104, 360448)
        """
        columns = self.budget * (self.heads + self.kv_heads) // self.heads
        projections = weight_gradients = 2 * LENGTH * self.d_model * columns
        scores = 2 * LENGTH**2 * self.budget
        # Where heads are joined by max, one head per pair gets a gradient.
        every = self.variant in ("softmax", "sum", "logsumexp")
        backward = 2 * scores // (1 if every else self.heads)
        messages = 2 * 2 * LENGTH**2 * self.d_model if self.variant == "value" else 0
        return projections + scores + messages + backward + weight_gradients

    def runs(self, most: int) -> int:
        """No more than `most`, and no more arithmetic than that many runs of the main case."""
        return max(2, min(most, most * MAIN.flops // self.flops))

    def runs_on_cuda(self, most: int) -> int:
        """No more than `most`, and no more than have room for their embeddings."""
        return max(2, min(most, _FLOATS // (self.items * self.d_model)))


MAIN = Case(256, 32, 8, 64)
SHAPES = (
    Case(64, 16, 4, 20),
    MAIN,
    Case(512, 64, 8, 64),
    Case(512, 16, 32, 224),
    Case(1024, 128, 16, 96),
    Case(4096, 512, 16, 96),
)
