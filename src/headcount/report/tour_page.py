"""The page that the tour leaves: one self-contained HTML file."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headcount.attention.recovery import Recovery
from headcount.files import replacing

_SHOWN = (
    *("exact", "margin", "threshold", "budget", "heads", "key_dim"),
    *("pairs", "false_positives", "false_negatives", "f1"),
)
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headcount: a tour</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; }}
  body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
  img {{ max-width: 100%; height: auto; }}
  td {{ padding: 0.15rem 1.5rem 0.15rem 0; vertical-align: top; }}
  pre {{ background: #f4f4f4; padding: 0.75rem; overflow-x: auto; }}
</style>
<h1>A tour of headcount</h1>
{stops}
<h2>Run it yourself</h2>
<pre>headcount verify weights.safetensors graph.csv table.npy
headcount show weights.safetensors graph.csv table.npy --scores scores.png
headcount verify one-head.safetensors graph.csv narrow-table.npy
headcount verify several-heads.safetensors graph.csv narrow-table.npy</pre>
</html>
"""
_STOP = """<h2>{title}</h2>
<p>{reason} {verdict}</p>
<img alt="score matrix and score distribution" src="data:image/png;base64,{image}">
<table>{rows}</table>"""


class Stop(NamedTuple):
    """Weights on the tour: what they are, why they are shown, and what verification found."""

    title: str
    reason: str
    found: Recovery
    picture: Path


def write_tour_page(path: str | os.PathLike[str], stops: Sequence[Stop]) -> None:
    """Each stop with its verdict and picture, and the commands that repeat them."""
    with replacing(path) as temporary:
        page = _PAGE.format(stops="\n".join(map(_stop, stops)))
        temporary.write_text(page, encoding="utf-8")


def _stop(stop: Stop) -> str:
    found = stop.found
    verdict = (
        "Every true edge scores above the threshold and no other pair does, so the weights are "
        "correct in every context."
        if found.exact
        else f"{found.false_positives} pairs are wrongly above the threshold, "
        f"and {found.false_negatives} edges are below it."
    )
    cells = found.as_dict()
    rows = "".join(
        f"<tr><td>{name.replace('_', ' ')}</td><td>{html.escape(str(cells[name]))}</td></tr>"
        for name in _SHOWN
    )
    image = base64.b64encode(stop.picture.read_bytes()).decode()
    title, reason = html.escape(stop.title), html.escape(stop.reason)
    return _STOP.format(title=title, reason=reason, verdict=verdict, image=image, rows=rows)
