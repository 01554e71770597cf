"""Made-up runs of the transformer block: `BLOCK` is like Figure 7, with our controls beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from headcount.sweeps.block_frame import BLOCK_COLUMNS


@dataclass(frozen=True)
class Block:
    """Runs on one table: `accuracies` maps (h, D_K) to the test accuracy of each seed.

    Of the wrong answers a share `to_s` is s, and the rest is another item of the context; a run at
    0 answers NULL.
    """

    accuracies: dict[tuple[int, int], tuple[float, ...]]
    table: str = "mpnet-base-top6144"
    items: int = 6144
    d_model: int = 768
    control: str = "none"
    scale: float = 1.0
    to_s: float = 0.95
    steps: int = 100_000
    rate: float = 3e-4

    def rows(self) -> Iterable[dict[str, object]]:
        for (heads, budget), scores in self.accuracies.items():
            for seed, test in enumerate(scores):
                wrong = 1 - test
                kinds = (
                    {"null": wrong}
                    if test == 0
                    else {"s": self.to_s * wrong, "context": (1 - self.to_s) * wrong}
                )
                answers = (
                    dict.fromkeys(("s", "q", "context", "null", "other"), 0.0)
                    | {"correct": test}
                    | kinds
                )
                course = [
                    [share * self.steps // 4, test * (0.6 + 0.1 * share)] for share in (1, 2, 3, 4)
                ]
                named = ("table", "items", "d_model", "control", "scale", "steps")
                shares = {f"answer_{kind}": share for kind, share in answers.items()}
                yield (
                    {name: getattr(self, name) for name in named}
                    | shares
                    | {
                        "table_hash": f"hash of {self.table}",
                        "hash": f"{self.table}-{self.control}-{self.scale}-{heads}-{budget}-{seed}",
                        "length": 16,
                        "heads": heads,
                        "key_dim": budget // heads,
                        "budget": budget,
                        "key_heads": heads,
                        "key_budget": budget,
                        "seed": seed,
                        "batch": 1024,
                        "learning_rate": self.rate,
                        "best_validation": test,
                        "best_step": self.steps,
                        "test": test,
                        "final_test": test,
                        "barred_test": min(1.0, test + answers["s"]),
                        "target_best": 0.9,
                        "target_mean": 0.5,
                        "own_best": 0.8,
                        "own_mean": 0.4,
                        "loss": 0.1,
                        "diverged": float("nan"),
                        "seconds": 60.0,
                        "history": json.dumps(course),
                    }
                )


def block_runs(parts: Iterable[Block]) -> pd.DataFrame:
    """The frame of `Evidence.block`."""
    return pd.DataFrame(
        [row for part in parts for row in part.rows()], columns=pd.Index(BLOCK_COLUMNS)
    )


BUDGETS = (64, 128, 256, 512)
ONE_HEAD = (0.55, 0.8, 0.81, 0.81)  # by D_K, of the runs that do not collapse
SEVERAL = {2: (0.7, 0.9, 0.97, 0.985), 4: (0.76, 0.94, 0.985, 0.995), 8: (0.62, 0.95, 0.99, 0.997)}
COLLAPSES = {256: 2, 512: 3}  # of 7 seeds with one head


def seeds_around(mean: float, count: int = 7, collapsed: int = 0) -> tuple[float, ...]:
    """Accuracies 0.002 apart with this mean, before the last ones are set to 0."""
    spread = [mean + 0.002 * (seed - (count - 1) / 2) for seed in range(count)]
    return tuple(0.0 if seed >= count - collapsed else score for seed, score in enumerate(spread))


def block_like_the_papers(
    count: int = 7, less: float = 0.0
) -> dict[tuple[int, int], tuple[float, ...]]:
    """One head bimodal from D_K = 256 up, several heads near 1 at 512, 8 too many at 64."""
    one = {
        (1, budget): seeds_around(mean - less, count, min(COLLAPSES.get(budget, 0), count - 1))
        for budget, mean in zip(BUDGETS, ONE_HEAD, strict=True)
    }
    several = {
        (heads, budget): seeds_around(mean - less, count)
        for heads, means in SEVERAL.items()
        for budget, mean in zip(BUDGETS, means, strict=True)
    }
    return one | several


MPNET = Block(block_like_the_papers())
SMOLLM2 = Block(block_like_the_papers(3, 0.02), table="smollm2-135m-top6144", d_model=576)
BLOCK = (
    MPNET,
    SMOLLM2,
    Block(
        {(1, 128): seeds_around(0.93, 3), (1, 512): seeds_around(0.99, 3)},
        control="barred",
        to_s=0.0,
    ),
    Block({(1, 128): seeds_around(0.92, 3), (1, 512): seeds_around(0.99, 3)}, control="two-values"),
    Block({(1, 512): seeds_around(0.81, 3, 2)}, scale=1.35),
    Block({(1, 512): (0.0, 0.0, 0.0)}, scale=1.66),
)
_QUICK = {(1, 32): (0.3, 0.32), (1, 128): (0.7, 0.72), (2, 32): (0.4, 0.42), (2, 128): (0.8, 0.82)}
SMALL = Block(_QUICK, table="smollm2-top512", items=512, d_model=576, steps=100)
