"""The report page in a real browser, offline. `make test-browser` installs what this needs."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from tests.small_report import small_claims, small_evidence, small_figures

pytestmark = pytest.mark.browser

_CHARTS = ("fig1", "fig2", "bars", "grid")
_DRAWN = (
    "[...document.querySelectorAll('.chart')].every(box => box.querySelector('svg .role-mark > *'))"
)
_SETTLED = "new Promise(done => setTimeout(done, 200))"


@pytest.fixture(scope="module")
def report(browser, tmp_path_factory) -> Path:
    from headcount.report.page import write_report

    folder = tmp_path_factory.mktemp("report")
    return write_report(
        folder, small_evidence(), small_figures(), small_claims(), formats=("svg",)
    )[0]


@pytest.fixture
def opened(offline_tab, report):
    """Open the report at a width, offline."""

    def open_page(width: int = 1280, wait: bool = True, hash: str = "", **options):
        page = offline_tab(width, ("file:", "data:"), **options)
        page.goto(report.as_uri() + hash)
        if wait:
            page.wait_for_function(_DRAWN)
        return page

    return open_page


def marks(page, chart: str) -> int:
    """How many points and line ends a chart shows."""
    return page.evaluate(
        f"document.querySelectorAll(\"[data-id='{chart}'] .mark-symbol.role-mark > path\").length"
    )


def choose(page, name: str, value: str) -> None:
    page.select_option(f"select[name={name}]", value)
    page.evaluate(_SETTLED)


def test_filters_change_the_charts(opened):
    page = opened()
    before = {chart: marks(page, chart) for chart in _CHARTS}
    curves = small_evidence().curves
    assert before["fig1"] == len(curves)
    choose(page, "h", "1")
    assert marks(page, "fig1") == len(curves.query("heads == 1"))
    choose(page, "m", "64")
    assert marks(page, "fig1") == len(curves.query("heads == 1 and items == 64"))
    assert page.inner_text("#fig1 .note") == "Shown: m = 64, h = 1."
    assert page.inner_text("#bars .note") == "These filters do not apply to this chart."
    assert page.inner_text(".filters output") == "3 of 4 charts have matching points"
    assert page.url.endswith("#m=64&h=1")
    page.click("button[type=reset]")
    page.evaluate(_SETTLED)
    assert {chart: marks(page, chart) for chart in _CHARTS} == before
    assert not page.is_visible("#fig1 .note")


def test_a_filter_without_data_says_so(opened):
    page = opened()
    choose(page, "h", str(int(small_evidence().curves["heads"].max())))
    choose(page, "m", "64")
    choose(page, "d_model_", "16")
    assert page.inner_text("#fig2 .note").startswith("No point here has m = 64, d_model = 16, h = ")
    assert not page.is_visible("#fig2 .chart")  # no empty axes
    assert page.locator("#fig2 .card").bounding_box()["height"] < 80
    assert page.is_visible("#bars .chart")  # these filters do not apply to it
    page.set_viewport_size({"width": 800, "height": 800})  # drawn anew while it is hidden
    page.wait_for_timeout(1000)
    assert not page.is_visible("#fig2 .chart")
    page.click("button[type=reset]")
    page.evaluate(_SETTLED)
    assert page.locator("[data-id=fig2] svg").bounding_box()["width"] > 300


def test_a_link_carries_the_filter(opened):
    page = opened(hash="#h=1&m=128", wait=False)
    page.wait_for_function("!document.querySelector('.chart[aria-busy]')")
    assert page.input_value("select[name=m]") == "128"
    assert marks(page, "fig1") == len(small_evidence().curves.query("heads == 1 and items == 128"))


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_no_page_scrolls_sideways(opened, width):
    page = opened(width)
    page.evaluate(_SETTLED)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for chart in _CHARTS:
        box = page.locator(f"[data-id={chart}] svg").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_a_phone_sees_one_column(opened):
    page = opened(390)
    page.evaluate(_SETTLED)
    shape = "[data-id={}] svg"
    for chart in ("fig1", "fig2", "grid"):
        box = page.locator(shape.format(chart)).bounding_box()
        assert box["height"] > box["width"]
        drawn = float(page.get_attribute(shape.format(chart), "width"))
        assert box["width"] == pytest.approx(
            drawn, rel=0.1
        )  # narrowed, not shrunk: the letters keep their size


def test_turning_the_phone_draws_anew(opened):
    page = opened(390)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function(
        "document.querySelector('[data-id=fig1] svg').getBoundingClientRect().width > 600"
    )


def test_a_point_tells_its_numbers(opened):
    page = opened()
    point = page.locator("[data-id=fig1] .mark-symbol.role-mark > path").first
    point.scroll_into_view_if_needed()
    page.wait_for_timeout(300)  # a pointer that arrives while the page still moves is not noticed
    box = point.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 40, y - 40)
    page.mouse.move(x, y, steps=20)  # in small steps, as a hand would: a jump is not noticed either
    page.locator("#vg-tooltip-element.visible").wait_for(timeout=5000)
    assert "runs" in page.inner_text("#vg-tooltip-element")


def test_printing_has_every_chart(opened, tmp_path):
    """Printed at once, before the charts further down were drawn for the screen."""
    page = opened(390, wait=False)
    path = tmp_path / "report.pdf"
    page.pdf(path=str(path), format="A4")
    assert page.evaluate(_DRAWN)
    content = path.read_bytes()
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert pages >= 1 + len(small_figures())
    operators = b"".join(_streams(content))
    assert operators.count(b" l\n") + operators.count(b" c\n") > len(small_evidence().curves)


def test_without_scripts_there_are_pictures(opened):
    page = opened(java_script_enabled=False, wait=False)
    page.wait_for_load_state("load")
    pictures = page.locator(".card img")
    assert pictures.count() == len(_CHARTS)
    box = pictures.first.bounding_box()
    assert box is not None
    assert box["width"] > 300
    assert not page.is_visible(".filters")
    assert not page.is_visible(".chart")


def test_the_dark_keeps_charts_on_white(opened):
    page = opened(color_scheme="dark")
    colour = "getComputedStyle(document.querySelector('{}')).backgroundColor"
    assert page.evaluate(colour.format(".card")) == "rgb(255, 255, 255)"
    assert page.evaluate(colour.format("body")) != "rgb(255, 255, 255)"


def _streams(content: bytes):
    for found in re.finditer(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
        try:
            yield zlib.decompress(found[1])
        except zlib.error:
            continue
