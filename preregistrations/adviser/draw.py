"""Write the points and runs of a draw: python preregistrations/adviser/draw.py first

points-DRAW.csv has the sizes drawn and the advice for them, runs-DRAW.csv every configuration to
train. The advice is that of the commit at which a draw was made.
"""

from __future__ import annotations

import csv
import sys
from math import ceil, exp, log
from pathlib import Path

import numpy as np

from headcount.theory.adviser import USUAL_CHANCE, USUAL_STEPS, advise

HERE = Path(__file__).parent
POINTS, SOFTMAX_POINTS = 28, 6
SEEDS = {"first": 20261117, "second": 20261118}
HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
DEGREES = (1, 1, 1, 2, 3, 5, 8)
MOST = 30_000  # D_K · d_model advised: larger ones take more device time than there is


def draw(seed: int) -> list[dict]:
    rng, found = np.random.default_rng(seed), []
    while len(found) < POINTS:
        smallest = 1024 if len(found) >= POINTS - 4 else 48
        items = round(exp(rng.uniform(log(smallest), log(2048))))
        d_model = round(items / exp(rng.uniform(log(1.5), log(16))))
        degree = int(rng.choice(DEGREES))
        graph = "regular" if len(found) % 2 else "random"
        if d_model < 16:
            continue
        split = advise(items, degree * items, d_model).split
        if split is None or split.budget * d_model > MOST:
            continue
        found.append(point(len(found), "max", graph, items, degree, d_model, split))
    while len(found) < POINTS + SOFTMAX_POINTS:
        items, d_model = int(rng.integers(64, 257)), int(rng.integers(16, 33))
        split = advise(items, items, d_model, variant="softmax").split
        if split is None or split.budget > 256:
            continue
        found.append(point(len(found), "softmax", "regular", items, 1, d_model, split))
    return found


def point(number, variant, graph, items, degree, d_model, split) -> dict:
    return {
        "point": number,
        "variant": variant,
        "graph": graph,
        "items": items,
        "degree": degree,
        "d_model": d_model,
        "heads": split.heads,
        "key_dim": split.key_dim,
        "steps": split.steps,
        "chance": "" if split.chance is None else round(split.chance, 3),
    }


def runs(points: list[dict]) -> list[dict]:
    """The advice with six seeds, and for max narrower splits with three, to find the smallest."""
    rows = []
    for one in points:
        sizes = {name: one[name] for name in ("point", "variant", "graph", "items", "degree")}
        sizes |= {"d_model": one["d_model"], "steps": one["steps"]}
        rows.append({**sizes, "heads": one["heads"], "key_dim": one["key_dim"], "seeds": 6})
        if one["variant"] != "max":
            continue
        for heads in HEADS:
            edges = one["degree"] * one["items"]
            least = advise(one["items"], edges, one["d_model"], heads=heads).split
            advised = one["heads"] * one["key_dim"]
            if least is None or least.budget > 1.35 * advised:
                continue
            widths = np.linspace(ceil(0.55 * least.key_dim), least.key_dim, 7).round().astype(int)
            for width in sorted(set(widths.tolist()) - {0}):
                if (heads, width) != (one["heads"], one["key_dim"]) and heads * width < advised:
                    rows.append({**sizes, "heads": heads, "key_dim": width, "seeds": 3})
    return rows


def write(name: str, rows: list[dict]) -> None:
    with open(HERE / name, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    assert (USUAL_STEPS, USUAL_CHANCE) == (50_000, 0.95)
    name = sys.argv[1]
    drawn = draw(SEEDS[name])
    if name == "second":  # softmax was settled by the first
        drawn = [one for one in drawn if one["variant"] == "max"]
    write(f"points-{name}.csv", drawn)
    write(f"runs-{name}.csv", runs(drawn))
