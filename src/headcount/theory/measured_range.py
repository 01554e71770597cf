"""The sizes between which training was measured: outside them nothing is advised."""

from __future__ import annotations

from dataclasses import dataclass

from headcount.theory.laws import PlannedAggregation

SOFTMAX_STEPS = 80_000
MOST_COLUMNS = 1024  # the largest D_K measured
# The widths of the best splits that were measured: the smallest passing D_K at each of 111 points.
BEST_WIDTHS = (4, 28)


@dataclass(frozen=True)
class Range:
    """The sizes between which a law was measured."""

    items: tuple[int, int]
    d_model: tuple[int, int]
    degree: tuple[float, float]
    steps: tuple[int, int]
    items_per_dimension: tuple[float, float] = (1.0, 16.0)  # m/d_model
    permutations_to: float = 32.0  # m/d_model, where the graph is a permutation
    items_per_edge: float = 8.0  # m/r, at least

    def beyond(self, items: int, edges: int, d_model: int, steps: int) -> str | None:
        """Name the first size that is outside, or None."""
        low, high = self.items_per_dimension
        if edges == items:
            high = self.permutations_to
        sizes = {
            "items": (items, *self.items),
            "d_model": (d_model, *self.d_model),
            "edges per item": (edges / items, *self.degree),
            "items per dimension": (items / d_model, low, high),
            "steps": (steps, *self.steps),
        }
        for name, (value, low, high) in sizes.items():
            if not low <= value <= high:
                ends = f"{low:,g} to {high:,g}" if low < high else f"{low:,g}"
                shown = f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
                return f"{name} {shown}; measured: {ends}"
        if items / (edges / items) < self.items_per_edge:
            return f"{edges / items:,.3g} edges per item among {items:,} items"
        return None

    def in_words(self) -> str:
        """The range in one sentence."""
        items, widths, steps = self.items, self.d_model, self.steps
        return (
            f"Measured: {items[0]:,} to {items[1]:,} items, d_model {widths[0]} to {widths[1]}, "
            f"{self.items_per_dimension[0]:g} to {self.items_per_dimension[1]:g} items per "
            f"dimension, {steps[0]:,} to {steps[1]:,} steps."
        )


RANGES: dict[PlannedAggregation, Range] = {
    "max": Range((40, 2048), (16, 256), (1, 16), (5_000, 100_000)),
    "softmax": Range((64, 256), (16, 32), (1, 1), (SOFTMAX_STEPS, SOFTMAX_STEPS)),
}

# Heads that share keys, under max: five points with permutations and one regular graph of degree 4.
SHARED_RANGE = Range(
    (64, 1024), (16, 128), (1, 4), (20_000, 100_000), (4.0, 8.0), permutations_to=8.0
)
