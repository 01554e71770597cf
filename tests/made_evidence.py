"""Made-up evidence: every head count of a point rises to 0.99 at a given budget, or never does.

`WORLD` is like the paper's findings, `QUICK` a part of it, `NOTHING` has no runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import log2

import pandas as pd

from headcount.reproduction.evidence import Evidence
from headcount.theory.laws import BUDGET, FEATURES
from tests.made_block import BLOCK, SMALL, Block, block_runs

PASSING, FAILING = 0.995, 0.6
COUNTS = (1, 2, 4, 8, 16, 32, 64)
SHARES = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)


@dataclass(frozen=True)
class Point:
    """One point: `needs` maps head counts to the smallest passing budget, None where none passes.

    Below it F1 is 0.995·(budget/need)^power: a large power is a sharp rise.
    """

    grid: str
    items: int
    d_model: int
    needs: dict[int, int | None]
    degree: int = 1
    variant: str = "max"
    power: float = 8.0
    runs: int = 10

    @property
    def key(self) -> dict[str, object]:
        names = ("grid", "variant", "degree", "items", "d_model")
        return {name: getattr(self, name) for name in names}

    @property
    def best(self) -> tuple[int, int] | None:
        """The smallest budget and its head count."""
        return min(
            ((need, heads) for heads, need in self.needs.items() if need is not None), default=None
        )

    def curve(self) -> Iterable[dict[str, object]]:
        centre = self.best[0] if self.best else 64
        for heads, need in self.needs.items():
            reach = need or 2 * centre
            budgets = sorted(
                {max(1, round(share * reach / heads)) * heads for share in SHARES} | {need or heads}
            )
            for budget in budgets:
                mean = FAILING if need is None else PASSING * min(1.0, budget / need) ** self.power
                ends = {"mean": mean, "low": mean - 0.002, "high": mean + 0.002}
                split = {"heads": heads, "budget": budget}
                yield self.key | split | ends | {"runs": self.runs, "diverged": 0}

    def threshold(self) -> dict[str, object]:
        budget, heads = self.best or (None, None)
        three = {"central": budget, "optimistic": budget, "conservative": budget}
        split = {"heads": heads, "key_dim": budget and budget // heads, "mean": budget and PASSING}
        return (
            self.key | three | split | {"heads_low": heads, "heads_high": heads, "runs": self.runs}
        )

    def by_heads(self) -> Iterable[dict[str, object]]:
        for heads, need in self.needs.items():
            three = {"central": need, "optimistic": need, "conservative": need}
            more = {"key_dim": need and need // heads, "mean": need and PASSING}
            yield self.key | {"heads": heads} | three | more


@dataclass(frozen=True)
class World:
    """What evidence is made from: points, value errors, bounds and runs of the block.

    `errors` maps d_model to {heads: [errors at growing budgets]}.
    """

    points: tuple[Point, ...] = ()
    errors: dict[int, dict[int, list[float]]] = field(default_factory=dict)
    bounds: tuple[tuple[int, int, int, str, str, int | None], ...] = ()
    block: tuple[Block, ...] = ()

    def map(self, grid: str, change) -> World:
        """Change the points of one grid; one changed to None is taken away."""
        changed = [change(point) if point.grid == grid else point for point in self.points]
        return replace(self, points=tuple(point for point in changed if point is not None))

    def without(self, grid: str) -> World:
        return self.map(grid, lambda point: None)

    def evidence(self) -> Evidence:
        curves = [row for point in self.points for row in point.curve()] + list(
            self._value_curves()
        )
        whole = ["central", "optimistic", "conservative"]
        whole += ["heads", "key_dim", "heads_low", "heads_high"]
        by_heads = pd.DataFrame([row for point in self.points for row in point.by_heads()])
        table = pd.DataFrame([point.threshold() for point in self.points])
        names = ["items", "d_model", "degree", "kind", "name", "heads", "key_dim", "budget"]
        split = [(*row[:5], *_split_of(*row[:4], row[5]), row[5]) for row in self.bounds]
        bounds = _whole(pd.DataFrame(split, columns=pd.Index(names)), names[5:])
        frames = (_nullable(table, whole), _nullable(by_heads, whole[:5]), bounds)
        return Evidence(pd.DataFrame(curves), *frames, block=block_runs(self.block))

    def _value_curves(self) -> Iterable[dict[str, object]]:
        for d_model, by_heads in self.errors.items():
            key = {"grid": "value", "variant": "value", "degree": 1, "items": 64}
            for heads, errors in by_heads.items():
                for step, error in enumerate(errors, start=1):
                    split = {"d_model": d_model, "heads": heads, "budget": 16 * step}
                    ends = {"mean": error, "low": error - 0.01, "high": error + 0.01}
                    yield key | split | ends | {"runs": 3, "diverged": 0}


def _split_of(
    items: int, d_model: int, degree: int, kind: str, budget: int | None
) -> tuple[int | None, int | None]:
    """One head per edge where a construction has D_K = m', else one head."""
    if kind != "construction" or budget is None:
        return None, None
    return (budget, 1) if budget == items * degree else (1, budget)


def _whole(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return table.astype(dict.fromkeys(names, "Int64"))


def _nullable(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return (
        table.astype(dict.fromkeys(names, "Int64") | {"mean": "float64"}) if len(table) else table
    )


def split(budget: float, heads: int) -> int:
    """The budget as a multiple of the head count."""
    return max(1, round(budget / heads)) * heads


BEST_HEADS = {1: 1, 2: 1, 4: 2, 8: 8, 16: 16, 32: 64}  # by m/d_model


def wider(budget: int, heads: int) -> dict[int, int | None]:
    """Needs of a point that passes at `budget` with `heads`: more need more, fewer do not pass."""
    needs: dict[int, int | None] = {
        count: None if count < heads else split(1.4 * budget, count) for count in COUNTS
    }
    return needs | {heads: budget}


def base_point(items: int, d_model: int) -> Point:
    narrow = d_model == 16 and items > 64
    law = (1.25 if narrow else 0.966) * FEATURES[BUDGET.form](items, items, d_model)
    heads = BEST_HEADS[items // d_model]
    return Point("base", items, d_model, wider(split(law, heads), heads))


def diagonal_point(items: int) -> Point:
    return Point("diagonal", items, items // 8, wider(split(8 * log2(items), 8), 8))


def regular_point(degree: int) -> Point:
    heads = 4 * degree
    return Point("regular", 128, 32, wider(split(0.46 * 28 * degree, heads), heads), degree=degree)


def softmax_point(items: int, d_model: int, factor: float = 2.0) -> Point:
    needs = base_point(items, d_model).needs
    moved = {heads: need and split(factor * need, heads) for heads, need in needs.items()}
    return Point("softmax", items, d_model, moved, variant="softmax", runs=3)


def linear_point(items: int, d_model: int, several: int | None = 32) -> Point:
    return Point("linear", items, d_model, {1: 32, 2: several, 4: several}, variant="sum", runs=3)


BASE = tuple(base_point(m, d) for m in (64, 128, 256, 512) for d in (16, 32, 64))
ERRORS = {
    16: {
        1: [0.9, 0.8, 0.8, 0.8],
        4: [0.9, 0.6, 0.3, 0.2],
        8: [0.9, 0.5, 0.3, 0.2],
        16: [1.0, 0.6, 0.3, 0.2],
    },
    32: {
        1: [0.9, 0.5, 0.25, 0.23],
        4: [0.9, 0.4, 0.25, 0.2],
        8: [0.9, 0.4, 0.25, 0.21],
        16: [1.0, 0.6, 0.3, 0.25],
    },
}
BOUNDS = (
    (64, 16, 1, "lower bound", "Warren", 2),
    (64, 16, 1, "construction", "as printed", 120),
    (64, 16, 1, "construction", "pseudo-inverse", 90),
    (128, 32, 1, "lower bound", "Warren", 2),
    (128, 32, 1, "construction", "pseudo-inverse", 90),
    (128, 32, 16, "lower bound", "Warren", 15),
    (128, 32, 16, "construction", "pseudo-inverse", 320),
)
WORLD = World(
    points=BASE
    + tuple(diagonal_point(2**power) for power in range(7, 13))
    + tuple(regular_point(degree) for degree in (1, 2, 4, 8, 16))
    + tuple(softmax_point(m, d) for m, d in ((64, 16), (64, 32), (128, 16), (128, 32), (256, 32)))
    + (linear_point(64, 16), linear_point(128, 32)),
    errors=ERRORS,
    bounds=BOUNDS,
    block=BLOCK,
)
NOTHING = Evidence(*(pd.DataFrame() for _ in range(4)))


_LEFT_OUT = ((512, 16), (512, 64), (256, 16), (128, 64))
QUICK = (
    WORLD.map("base", lambda p: p if (p.items, p.d_model) not in _LEFT_OUT else None)
    .map("softmax", lambda p: p if (p.items, p.d_model) == (64, 16) else None)
    .map("linear", lambda p: p if p.items == 64 else None)
    .map("regular", lambda p: p if p.degree <= 4 else None)
    .without("diagonal")
)
QUICK = replace(QUICK, errors={16: ERRORS[16]}, block=(SMALL,))


def with_needs(change):
    """Change what the head counts of a point need."""
    return lambda point: replace(point, needs=change(point))


def one_best(point: Point) -> dict[int, int | None]:
    assert point.best is not None
    return wider(point.best[0], 1)


def scaled(factor: float):
    return with_needs(
        lambda p: {heads: need and split(factor * need, heads) for heads, need in p.needs.items()}
    )


def budget_set(budget_of):
    """Give every point the budget that a rule of the point says, with its own best head count."""

    def change(point: Point) -> dict[int, int | None]:
        assert point.best is not None
        heads = point.best[1]
        return wider(split(budget_of(point), heads), heads)

    return with_needs(change)


def heads_set(heads_of):
    """Give every point another best head count at about the same budget."""

    def change(point: Point) -> dict[int, int | None]:
        assert point.best is not None
        return wider(split(point.best[0], heads_of(point)), heads_of(point))

    return with_needs(change)
