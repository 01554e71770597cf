"""The explorer's page and command: one file, no network, and bad input in a sentence."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import headcount as hc
from headcount.explorer.contents import antonym_pairs, head_colours, measured_points
from headcount.explorer.scripts import ASSETS, joined_script
from headcount.report.page import write_report
from headcount.report.palette import COLOURS
from tests.small_report import small_evidence, small_figures


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return hc.explore(tmp_path_factory.mktemp("page") / "page.html", report="report.html")


class Addresses(HTMLParser):
    """What a page would load or link to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href", "action")]


def test_the_page_is_one_small_file(page):
    text = page.read_text()
    assert len(text.encode()) <= 1_500_000
    addresses = Addresses()
    addresses.feed(text)
    arxiv = "https://arxiv.org/abs/2509.22840"
    assert sorted(addresses.found) == ["#views", "data:,", arxiv, "report.html"]
    assert not re.findall(r"\b(?:fetch|XMLHttpRequest|importScripts|eval)\(", text)
    assert not re.findall(r"url\((?!data:)", text)


def test_scripts_are_joined_in_the_order_of_their_imports():
    script = joined_script("main.js")
    order = re.findall(r'^modules\["([^"]+)"\] = ', script, re.MULTILINE)
    assert len(order) == len(set(order))
    assert order[-1] == "main.js"
    assert order.index("engine/streams.js") < order.index("engine/contexts.js")
    assert not re.findall(r"^(?:import|export) ", script, re.MULTILINE)
    used = set(order) | set(
        re.findall(r'^modules\["([^"]+)"\] = ', joined_script("worker.js"), re.MULTILINE)
    )
    assert used == {path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*.js")}


def test_no_source_is_long():
    sources = [path for path in ASSETS.rglob("*") if path.is_file()]
    assert len(sources) > 20
    assert [path.name for path in sources if len(path.read_text().splitlines()) > 300] == []


def test_the_page_has_the_shipped_runs_and_the_reports_colours():
    points = measured_points()
    runs = hc.measured_runs("max")
    assert sum(row[-1] for row in points["splits"]) == len(runs)
    assert [1, 64, 16, 20, 4] in points["thresholds"]
    assert sorted(head_colours()) == sorted(COLOURS)


def test_opposites_are_pairs_of_words():
    words = [word for pair in antonym_pairs() for word in pair]
    assert len(words) == len(set(words)) == 128
    assert ["bad", "good"] in antonym_pairs()


def test_the_command_writes_a_page(command, tmp_path):
    code, out, _ = command("explore", "--out", "some.html", "--json")
    assert code == 0
    size = (tmp_path / "some.html").stat().st_size
    assert json.loads(out) == {"page": "some.html", "bytes": size}
    assert command("explore")[0] == 0
    assert (tmp_path / "explorer.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "page.pdf"], "page.pdf: this is written as .html or .htm"),
        (["--out", "no/such/page.html"], "its folder does not exist"),
        (["w.safetensors"], "the page shows weights on a graph and a table"),
        (["--key", "x"], "--key and --names are for a table"),
        (["w.safetensors", "g.csv", "t.npy"], "w.safetensors: no such file"),
    ],
)
def test_the_command_refuses_in_a_sentence(command, words, message):
    code, _, err = command("explore", *words)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


def weights_of(aggregation: str, d_model: int = 4, **notes: str) -> hc.KeyQuery:
    ones = torch.ones(1, d_model, 2)
    return hc.KeyQuery(ones, ones, 0.5, aggregation, notes=notes)


@pytest.mark.parametrize(
    ("weights", "graph", "message"),
    [
        (weights_of("softmax"), hc.permutation_graph(8), "the scores of softmax depend on"),
        (weights_of("max", 5), hc.permutation_graph(8), "the weights take d_model 5"),
        (weights_of("max", decide="top"), hc.permutation_graph(8), "have no threshold"),
        (weights_of("max"), None, "give all three"),
        (weights_of("max"), hc.permutation_graph(3000), "3,000 items are more than the page"),
    ],
)
def test_weights_that_cannot_be_shown_are_refused(tmp_path, weights, graph, message):
    table = torch.ones(8 if graph is None else graph.items, 4)
    with pytest.raises(hc.InputError, match=message):
        hc.explore(tmp_path / "page.html", weights, graph, table)
    with pytest.raises(hc.InputError, match=r"written as \.html"):
        hc.explore(tmp_path / "page.txt")


def test_the_report_links_to_an_explorer_beside_it(tmp_path):
    hc.explore(tmp_path / "explorer.html")
    [with_it, *_] = write_report(tmp_path, small_evidence(), small_figures()[:1], [], ("svg",))
    alone = tmp_path / "alone"
    [without, *_] = write_report(alone, small_evidence(), small_figures()[:1], [], ("svg",))
    assert '<a href="explorer.html">' in with_it.read_text()
    assert "explorer.html" not in without.read_text()
