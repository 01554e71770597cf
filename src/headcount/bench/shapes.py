"""The problems that engines are timed on, and the arithmetic of a step."""

from __future__ import annotations

from typing import NamedTuple

from headcount.training.spec import RunSpec

STEPS = 500  # between two checks
_LENGTH = 16
_TASKS = 80
_FLOATS = 2**29  # of embeddings that the runs of one fleet may hold


class Shape(NamedTuple):
    """m, d_model, h and D_K."""

    items: int
    d_model: int
    heads: int
    budget: int

    def specs(self, runs: int) -> list[RunSpec]:
        """As many runs as asked for, on at most `_TASKS` problems: preparing one takes long."""
        key_dim = self.budget // self.heads
        seeds = (n % _TASKS for n in range(runs))
        return [
            RunSpec(self.items, self.d_model, self.heads, key_dim, seed=seed, length=_LENGTH)
            for seed in seeds
        ]

    @property
    def flops(self) -> int:
        """Of one step of one run: projections, scores and all gradients; Adam is not counted.

        >>> MAIN.flops
        303104
        """
        projections = weight_gradients = 2 * 2 * _LENGTH * self.d_model * self.budget
        scores = 2 * _LENGTH**2 * self.budget
        # Under max one head per pair gets a gradient.
        backward = 2 * 2 * _LENGTH**2 * (self.budget // self.heads)
        return projections + scores + backward + weight_gradients

    def runs(self, most: int) -> int:
        """No more than `most`, and no more arithmetic than that many runs of the main shape."""
        return max(2, min(most, most * MAIN.flops // self.flops))

    def runs_on_cuda(self, most: int) -> int:
        """No more than `most`, and no more than have room for their embeddings."""
        return max(2, min(most, _FLOATS // (self.items * self.d_model)))


MAIN = Shape(256, 32, 8, 64)
SHAPES = (
    Shape(64, 16, 4, 20),
    MAIN,
    Shape(512, 64, 8, 64),
    Shape(512, 16, 32, 224),
    Shape(1024, 128, 16, 96),
    Shape(4096, 512, 16, 96),
)
