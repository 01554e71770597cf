"""A page of sections: facts on top, then charts and tables with a sentence on each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from headcount.files import replacing
from headcount.report.chart_files import chart_bundle
from headcount.report.html import asset, page_template
from headcount.report.page_tables import PageTable


@dataclass(frozen=True)
class PageSection:
    """One part of the page: a chart, a table or both."""

    id: str
    title: str
    meaning: str
    table: PageTable | None = None
    kind: str = "stack compared"  # of the table: on a narrow screen, one card per row
    spec: Markup | None = None
    height: int = 0  # pixels, reserved until the chart is drawn
    picture: str = ""  # shown where scripts are off
    downloads: Sequence[tuple[str, str]] = ()  # names and relative addresses

    @property
    def label(self) -> str:
        """For readers who do not see the chart."""
        return f"{self.title}. {self.meaning}"


def write_section_page(
    page: Path,
    title: str,
    heading: str,
    sections: Iterable[PageSection],
    *,
    notes: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
    choices: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write the page whole or not at all; gives its path."""
    text = page_template("sections.html").render(
        css=asset("report.css"),
        js=asset("report.js"),
        bundle=chart_bundle(),
        title=title,
        heading=heading,
        notes=notes,
        facts=facts,
        choices=choices,
        sections=list(sections),
    )
    with replacing(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return page
