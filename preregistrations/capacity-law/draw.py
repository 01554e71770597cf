"""Write the sweep files of this preregistration: python preregistrations/capacity-law/draw.py

The points follow from the law alone: items at given multiples of the number that it predicts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headcount.theory.capacity_law import freedom_needed, gardner_capacity, items_held

HERE = Path(__file__).parent
NEAR = (0.75, 0.8, 0.84, 0.87, 0.9, 0.93, 0.96, 0.98, 1.0, 1.03, 1.07, 1.15)
WIDE = (0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
FEW = (0.8, 0.87, 0.93, 1.0, 1.07, 1.15)


def grid(
    d_model: int,
    heads: int,
    key_dim: int,
    factors: tuple[float, ...],
    steps: int,
    seeds: int,
    *,
    degree: int = 1,
    share: float | None = None,
    held: float | None = None,
    variant: str = "max",
    first_seed: int = 100,
) -> str:
    """One [[grid]] table: items at multiples of what the law says these heads hold."""
    predicted = held or items_held(d_model, heads, key_dim, degree)
    tables = []
    for items in sorted({round(predicted * factor) for factor in factors}):
        # With a constant share of edges the degree follows m.
        chosen = degree if share is None else max(1, round(share * items))
        tables.append(
            f"[[grid]]\npoints = [[{items}, {d_model}]]\nheads = [{heads}]\nkey_dim = [{key_dim}]\n"
            f'degree = [{chosen}]\nvariant = ["{variant}"]\n'
            f"seeds = {list(range(first_seed, first_seed + seeds))}\n"
            f"steps = {steps}\ncheck_every = 2000\n"
        )
    return "\n".join(tables)


def write(name: str, about: str, tables: list[str]) -> None:
    text = f'# {about}\n# Written by draw.py.\nengine = "triton"\n\n' + "\n".join(tables)
    (HERE / f"{name}.toml").write_text(text, encoding="utf-8")


def calibration(points: int = 160, seed: int = 20261115) -> list[str]:
    """Random channels for the formula of the steps: sizes, degrees, heads and R drawn at random."""
    rng, tables = np.random.default_rng(seed), []
    while len(tables) < points:
        d_model = round(2 ** rng.uniform(4, 7))
        items = round(d_model * 2 ** rng.uniform(0.5, 4))
        degree = int(rng.choice([1, 1, 1, 2, 4, 8]))
        heads = int(rng.choice([1, 2, 4, 8, 16, 32]))
        ratio = rng.uniform(0.95, 2.6)
        if items > 2048 or 4 * degree > items:
            continue
        needed = ratio * freedom_needed(items, degree * items) / heads
        if needed > d_model**2:
            continue
        key_dim = round(d_model - np.sqrt(d_model**2 - needed))
        if not 1 <= key_dim <= d_model:
            continue
        tables.append(
            f"[[grid]]\npoints = [[{items}, {d_model}]]\nheads = [{heads}]\nkey_dim = [{key_dim}]\n"
            f"degree = [{degree}]\nseeds = [100, 101]\nsteps = 200000\ncheck_every = 1000\n"
        )
    return tables


if __name__ == "__main__":
    write(
        "a-one-head",
        "(a) One head of full width: the transition in m, and (e) the steps near it.",
        [grid(d, 1, d, NEAR, 2_000_000 if d <= 48 else 1_000_000, 6) for d in (16, 24, 32, 48)]
        + [grid(d, 1, d, NEAR, 1_000_000, 4) for d in (64, 96)],
    )
    write(
        "b-rank",
        "(b) One head of width k < d_model.",
        [grid(32, 1, k, NEAR, 1_000_000, 4) for k in (4, 8, 16, 24)]
        + [grid(64, 1, k, NEAR, 1_000_000, 4) for k in (8, 16, 32, 48)],
    )
    write(
        "c-heads",
        "(c) Several heads.",
        [
            grid(16, h, k, WIDE, 2_000_000, 4)
            for h, k in ((2, 16), (4, 16), (2, 8), (4, 8), (8, 8), (4, 4), (8, 4))
        ]
        + [
            grid(32, h, k, WIDE, 2_000_000, 4)
            for h, k in ((2, 32), (2, 16), (4, 16), (4, 8), (8, 8))
        ],
    )
    write(
        "d-degrees",
        "(d) One head of full width, denser graphs.",
        [grid(32, 1, 32, NEAR, 1_000_000, 4, degree=r) for r in (2, 4, 8)]
        + [
            # m² = α_c(f)·d² at a constant share f of edges.
            grid(d, 1, d, NEAR, 1_000_000, 4, share=f, held=d * gardner_capacity(f) ** 0.5)
            for d, f in ((32, 0.25), (32, 0.5), (64, 0.5))
        ],
    )
    write(
        "f-aggregations",
        "(f) sum over heads is one head: d_model² at most. Softmax: its own factor.",
        [
            grid(d, h, k, FEW, 1_000_000, 4, held=items_held(d, 1, min(h * k, d)), variant="sum")
            for d, h, k in ((16, 4, 4), (16, 4, 16), (32, 4, 8), (32, 4, 32))
        ]
        + [
            grid(16, h, k, (0.4, 0.5, 0.6, *WIDE), 1_000_000, 4, variant="softmax")
            for h, k in ((1, 16), (2, 16), (4, 8))
        ],
    )
    write("g-calibration", "Random channels that calibrate the steps.", calibration())
