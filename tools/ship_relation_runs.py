"""Turn what preregistrations/relations-2/measure.py wrote into the runs that headcount ships.

Usage: python tools/ship_relation_runs.py FOLDER_OF_RUNS FOLDER_OF_MORE, the outputs of `runs.toml`
and `more.toml`. The manifest beside the runs says by hand where they come from.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from headcount.reproduction.long_relation_verdicts import with_means

FOLDER = Path(__file__).parents[1] / "src" / "headcount" / "reproduction" / "measured" / "relations"


def main(first: Path, more: Path) -> None:
    plans = {"runs": first, "more": more}
    runs, compiled = (
        pd.concat(
            [
                pd.read_parquet(folder / f"{name}.parquet").assign(plan=plan)
                for plan, folder in plans.items()
            ],
            ignore_index=True,
        )
        for name in ("runs", "compiled")
    )
    order = ["plan", "relation", "problem", "budget", "seed"]
    runs = (
        with_means(runs).drop(columns="after_s").sort_values(order, ascending=[False, *4 * [True]])
    )
    runs = runs.assign(diverged=runs["diverged"].astype(float))
    runs.to_parquet(FOLDER / "long-runs.parquet", index=False, compression="zstd")
    found = compiled.drop(columns="note").round({"margin": 6})
    found.to_csv(FOLDER / "compiled.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main(*(Path(folder) for folder in sys.argv[1:]))
