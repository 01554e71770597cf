"""Verdicts on the paper's theorems and lemmas, read from statements.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headcount.report.page_tables import PageTable

VERDICTS = ("holds", "holds with a correction", "does not hold as printed", "open")
_FILE = Path(__file__).with_name("statements.toml")


@dataclass(frozen=True)
class Statement:
    """A statement of the paper and whether it holds as printed."""

    id: str  # "Theorem 4.1"
    text: str
    verdict: str  # one of VERDICTS
    deviations: tuple[int, ...]  # items of docs/deviations.md
    why: str

    @property
    def where(self) -> str:
        """The items of docs/deviations.md in words; a dash where there is none."""
        return ", ".join(str(number) for number in self.deviations) or "–"


@cache
def statements() -> tuple[Statement, ...]:
    """Every statement, in the order of the paper.

    >>> [found.verdict for found in statements() if found.id == "Lemma B.8"]
    ['holds']
    """
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["statement"]
    return tuple(
        Statement(
            entry["id"],
            entry["text"],
            entry["verdict"],
            tuple(entry["deviations"]),
            entry["why"].strip(),
        )
        for entry in entries
    )


def statement_table() -> PageTable:
    """The statements as the page shows them."""
    rows = [[one.id, one.text, one.verdict, one.why, one.where] for one in statements()]
    columns = ["statement", "what it says", "verdict", "why", "docs/deviations.md"]
    return PageTable(columns, rows, [False] * len(columns))
