"""Compute all cases: python preregistrations/refined-law/measure.py separability.csv"""

from __future__ import annotations

import csv
import sys

from headcount.reproduction.separability import cases, measure

if __name__ == "__main__":
    with open(sys.argv[1], "w", newline="", encoding="utf-8") as file:
        writer = None
        for case in cases():
            row = measure(case)
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
            writer.writerow(row)
            file.flush()
