"""The report page as a file; tests/test_browser.py opens it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest

from headcount.errors import InputError
from headcount.report.chart_files import write_chart
from headcount.report.figures.base import Figure
from headcount.report.page import write_report
from tests.small_report import (
    NASTY,
    small_claims,
    small_evidence,
    small_figures,
    write_small_report,
)


class Page(HTMLParser):
    """Elements with their attributes and texts; fails where tags do not close in order."""

    EMPTY: ClassVar = {"meta", "link", "img", "br", "input"}

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        self.elements.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def all(self, tag: str, name: str = "") -> list[str]:
        """The values of an attribute on all elements of a tag."""
        return [
            attributes[name] or ""
            for found, attributes in self.elements
            if found == tag and name in attributes
        ]


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[Path]:
    return write_small_report(tmp_path_factory.mktemp("report") / "new")


@pytest.fixture(scope="module")
def page(paths) -> Page:
    return Page(paths[0].read_text(encoding="utf-8"))


def test_all_files_are_written_and_named(paths):
    names = [str(path.relative_to(paths[0].parent)) for path in paths]
    charts = [
        f"figures/{id}.{suffix}"
        for id in ("fig1", "fig2", "bars", "grid")
        for suffix in ("png", "svg", "pdf")
    ]
    assert names == [
        "report.html",
        *charts[:6],
        "figures/fig2.csv",
        *charts[6:],
        "figures/table1.csv",
    ]
    assert sorted(path.name for path in (paths[0].parent / "figures").iterdir()) == sorted(
        Path(n).name for n in names[1:]
    )


def test_pictures_are_valid(paths):
    for path in paths:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG\r\n\x1a\n")
            assert content.endswith(b"IEND\xaeB`\x82")
        elif path.suffix == ".pdf":
            assert content.startswith(b"%PDF-")
            assert b"%%EOF" in content[-10:]
        elif path.suffix == ".svg":
            assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
    widths = [int.from_bytes(path.read_bytes()[16:20]) for path in paths if path.suffix == ".png"]
    svgs = [ElementTree.parse(path).getroot() for path in paths if path.suffix == ".svg"]
    assert widths == pytest.approx([2 * float(svg.attrib["width"]) for svg in svgs], abs=2)


def test_tables_are_files_too(paths):
    [path] = [path for path in paths if path.name == "table1.csv"]
    assert pd.read_csv(path)["note"].iloc[0] == NASTY


def test_every_figure_claim_and_link_has_its_place(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {
        "fig1",
        "fig2",
        "bars",
        "table1",
        "fig5",
        "claim-C1",
        "claim-C4",
        "claims",
        "contents",
    } <= set(ids)
    assert page.all("div", "data-id") == ["fig1", "fig2", "bars", "grid"]
    for address in page.all("a", "href"):
        assert not address.startswith("#") or address[1:] in ids
    assert [
        address for address in page.all("a", "href") if "fig99" in address
    ] == []  # no such figure, so no link


def test_downloads_exist(page, paths):
    links = [path for path in page.all("a", "href") if path.startswith("figures/")]
    assert sorted(links) == sorted(f"figures/{path.name}" for path in paths[1:])
    assert page.all("img", "src") == [
        f"figures/{id}.svg" for id in ("fig1", "fig2", "bars", "grid")
    ]


def test_nothing_comes_from_outside(page, paths):
    loaded = [
        value
        for tag in ("script", "img", "iframe", "source", "object")
        for value in page.all(tag, "src")
    ]
    loaded += page.all("link", "href") + page.all("object", "data")
    assert not [value for value in loaded if re.match(r"(https?:)?//", value)]
    assert [link for link in page.all("a", "href") if link.startswith("http")] == [
        "https://arxiv.org/abs/2509.22840"
    ]
    styles = "".join(page.texts["style"])
    assert "url(" not in styles
    assert "@import" not in styles
    scripts = [text for text in page.texts["script"] if "vegaEmbed=" in text]
    assert len(scripts) == 1  # the libraries stand in the page once
    assert paths[0].stat().st_size < 2e6


def test_text_is_escaped(page):
    assert not [text for text in page.texts["script"] if text.startswith("alert")]
    assert NASTY in page.texts["dd"]
    assert f"Heads help: {NASTY}" in page.texts["td"]
    assert f"One sentence & another. {NASTY}" in page.texts["p"]
    assert any("Bars <without> filters" in text for text in page.texts["h2"])


def test_specs_are_whole(page):
    specs = [json.loads(text) for text in page.texts["script"] if text.startswith("{")]
    assert len(specs) == 4
    assert NASTY in specs[0]["title"]
    assert specs[0]["description"].startswith("Figure 1: four panels. One sentence")
    assert [param["name"] for param in specs[0]["params"]] == ["m", "d_model_", "h"]


def test_what_a_reader_asks_is_said(page):
    facts = dict(zip(page.texts["dt"], page.texts["dd"], strict=False))
    assert facts["runs"] == "12,345"
    assert facts["training time"] == "1.0 h"
    assert facts["versions"] == "numpy 2.4.6"
    assert "headcount reproduce --preset paper --only table1" in page.texts["code"]
    assert "Not measured by the preset “paper”." in page.texts["p"]
    badges = [text for text in page.texts["span"] if "confirmed" in text]
    assert {"✓ confirmed", "✗ not confirmed"} <= set(badges)
    assert {"yes", "–", "1.70 ± 0.10"} <= set(page.texts["td"])


def test_readers_without_eyes_are_told(page):
    labels = [
        attributes.get("aria-label")
        for tag, attributes in page.elements
        if attributes.get("role") == "img"
    ]
    assert labels[0] == f"Figure 1: four panels. One sentence & another. {NASTY}"
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")
    assert page.all("img", "alt")[0] == labels[0]


def test_filters_offer_what_was_measured(page):
    assert page.all("select", "name") == ["m", "d_model_", "h"]
    heads = sorted({int(value) for value in small_evidence().curves["heads"]})
    options = page.all("option", "value")
    assert options == ["", "64", "128", "", "16", "32", "", *map(str, heads)]


def test_the_same_evidence_gives_the_same_page(paths, tmp_path):
    again = write_small_report(tmp_path)
    for old, new in zip(paths, again, strict=True):
        if old.suffix != ".pdf":  # the order of a PDF's resources is drawn anew each time
            assert old.read_bytes() == new.read_bytes(), old.name


def test_formats_can_be_chosen(tmp_path):
    figures = [figure for figure in small_figures() if figure.id == "bars"]
    paths = write_report(tmp_path, small_evidence(), figures, [], formats=("png",))
    assert [path.name for path in paths] == ["report.html", "bars.png"]
    assert Page(paths[0].read_text(encoding="utf-8")).all("img", "src") == ["figures/bars.png"]
    with pytest.raises(InputError, match="no format gif for a figure; choose from png, svg, pdf"):
        write_chart({}, tmp_path / "bars", ["gif"])


def test_what_cannot_be_drawn_says_why(tmp_path):
    def draw(evidence):
        raise InputError("there is nothing to draw, since no budget passed; add larger budgets")

    figure = Figure("fig3", "Figure 3", ("base",), draw=draw)
    [path] = write_report(tmp_path, small_evidence(), [figure], small_claims())
    found = Page(path.read_text(encoding="utf-8"))
    assert (
        "There is nothing to draw, since no budget passed; add larger budgets." in found.texts["p"]
    )
    assert "script" not in found.texts  # no chart, so no library


def test_empty_evidence_gives_a_page(tmp_path):
    none = pd.DataFrame()
    evidence = replace(small_evidence(), curves=none, thresholds=none, by_heads=none, provenance={})
    paths = write_report(tmp_path, evidence, small_figures()[:1], [])
    assert [path.name for path in paths] == ["report.html"]
