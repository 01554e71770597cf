"""A chart as files: PNG, SVG and PDF from one Vega-Lite spec."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from markupsafe import Markup

from headcount.errors import InputError
from headcount.files import replacing

FORMATS = ("png", "svg", "pdf")
_DIGITS = 6  # of the data in a spec: more than a chart can show
_FROM_SVG: dict[str, Callable[[str], bytes]] = {
    "png": lambda svg: vl_convert.svg_to_png(svg, scale=2),
    "svg": lambda svg: svg.encode(),
    "pdf": lambda svg: vl_convert.svg_to_pdf(svg),
}


def specification(chart: Any, description: str = "") -> dict[str, Any]:
    """The Vega-Lite spec of an Altair chart, its data inside, rounded to 6 digits.

    >>> import pandas as pd
    >>> spec = specification(alt.Chart(pd.DataFrame({"x": [1 / 3]})).mark_point().encode(x="x:Q"))
    >>> list(spec["datasets"].values())
    [[{'x': 0.333333}]]
    """
    with alt.data_transformers.enable("default", max_rows=None):
        spec = chart.to_dict()
    spec["datasets"] = {name: _rounded(rows) for name, rows in spec.get("datasets", {}).items()}
    return {**spec, "description": description} if description else spec


def vega_lite_version() -> str:
    """The version that Altair's specs are written for, as vl-convert names it: `6.4`."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


@cache
def chart_bundle() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script that defines `vegaEmbed`."""
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vega_lite_version())
    return Markup(script.replace("</script", "<\\/script"))


def write_chart(
    spec: dict[str, Any], stem: Path, formats: Sequence[str] = FORMATS
) -> tuple[list[Path], int]:
    """Write `stem`.png, .svg and .pdf; gives their paths and the height of the picture in pixels.

    The SVG is drawn once and the others are made from it: half the time of drawing each of them.
    """
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise InputError(
            f"no format {', '.join(unknown)} for a figure; choose from {', '.join(FORMATS)}"
        )
    svg, height = _drawn(spec)
    paths = []
    for suffix in formats:
        path = stem.with_name(f"{stem.name}.{suffix}")
        with replacing(path) as temporary:
            temporary.write_bytes(_FROM_SVG[suffix](svg))
        paths.append(path)
    return paths, height


def inline_picture(spec: dict[str, Any]) -> tuple[str, int]:
    """The chart as the address of an image that holds it, and its height in pixels."""
    svg, height = _drawn(spec)
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}", height


def _drawn(spec: dict[str, Any]) -> tuple[str, int]:
    svg = vl_convert.vegalite_to_svg(spec, vl_version=vega_lite_version())
    found = re.match(r'<svg[^>]*\sheight="([\d.]+)', svg)
    return svg, round(float(found[1])) if found else 0


def save_chart(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> None:
    """Write a chart as PNG, SVG or PDF, by the suffix of the path."""
    suffix = Path(path).suffix.lower()
    suffixes = [f".{name}" for name in FORMATS]
    if suffix not in suffixes:
        raise InputError(
            f"{path}: charts are written as {', '.join(suffixes)}; choose one of these suffixes"
        )
    with replacing(path) as temporary:
        chart.save(str(temporary), scale_factor=2 if suffix == ".png" else 1)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return value
