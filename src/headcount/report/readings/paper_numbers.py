"""Numbers of the paper, in the types that readings need."""

from __future__ import annotations

from headcount.paper import data as paper
from headcount.report.formatting import paper_text


def paper_value(name: str) -> float:
    """A number of the paper as a float."""
    found = paper.number(name).value
    assert isinstance(found, int | float)
    return float(found)


def paper_pairs(name: str) -> tuple[tuple[int, int], ...]:
    """A number of the paper that is a list of (m, d_model)."""
    found = paper.number(name).value
    assert isinstance(found, tuple)
    return tuple((int(m), int(d)) for m, d in found)


def paper_integers(name: str) -> tuple[int, ...]:
    """A number of the paper that is a list of whole numbers."""
    found = paper.number(name).value
    assert isinstance(found, tuple)
    return tuple(int(item) for item in found)


def quoted(name: str) -> str:
    """A number of the paper as the report writes it."""
    return paper_text(paper.number(name).value)


LEVEL = paper_value("protocol.level")
