"""How results look in a notebook: small HTML tables, and charts that are drawn on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table for `_repr_html_`; numbers are shown with four digits.

    >>> html_table(["x"], [[0.123456], [None]])
    '<table><tr><th>x</th></tr><tr><td>0.1235</td></tr><tr><td>–</td></tr></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_text(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<tr>{head}</tr>{body}</table>"


def _text(value: object) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


def chart(module: str, function: str, *arguments: Any) -> Any:
    """An Altair chart that a module of `headcount.report` draws.

    `report` is above all packages whose objects can be plotted, and importing Altair takes time,
    so it is imported only here and only when a chart is asked for.
    """
    return getattr(import_module(f"headcount.report.{module}"), function)(*arguments)
