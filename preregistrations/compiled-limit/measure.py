"""Compile all cases: python preregistrations/compiled-limit/measure.py OUT.csv [SHARE SHARES]

Several processes may take a share each; cases that a file already holds are left out.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, fields
from pathlib import Path

from headcount.reproduction.compiled_limit import LimitCase, cases, measure

_FOUND = ["budget", "ratio", "width_ratio", "failed", "failed_ratio", "failed_width_ratio"]

if __name__ == "__main__":
    path, share, shares = Path(sys.argv[1]), *map(int, sys.argv[2:4] or (0, 1))
    names = [field.name for field in fields(LimitCase)]
    done = []
    if path.exists():
        with path.open(encoding="utf-8") as file:
            done = [[row[name] for name in names] for row in csv.DictReader(file)]
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*names, *_FOUND, "relative_margin", "seconds"])
        if not done:
            writer.writeheader()
        for case in list(cases())[share::shares]:
            if [str(value) for value in asdict(case).values()] not in done:
                writer.writerow(measure(case))
                file.flush()
