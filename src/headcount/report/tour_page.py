"""The page that the tour leaves: one self-contained HTML file."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headcount.attention.recovery import Recovery
from headcount.files import replacing
from headcount.problem.graph import Graph

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
<h2>Words, looked up by attention</h2>
<p>A context of {count} words goes through a stock <code>torch.nn.MultiheadAttention</code> that has
the weights below. A word attends to its opposite if that is in the context, and to nothing
otherwise.</p>
<table>{found}</table>
{stops}
<h2>Run it yourself</h2>
<pre>headcount verify weights.safetensors graph.csv table.safetensors
headcount show weights.safetensors graph.csv table.safetensors --scores scores.png
headcount export weights.safetensors graph.csv table.safetensors
headcount verify one-head.safetensors permutation.csv narrow-table.npy
headcount verify several-heads.safetensors permutation.csv narrow-table.npy</pre>
<p>All 1,149 words with antonyms: <code>headcount make relations antonyms --table minilm --out
antonyms</code>.</p>
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
    graph: Graph
    found: Recovery
    picture: Path


def write_tour_page(
    path: str | os.PathLike[str],
    words: Stop,
    looked_up: Mapping[str, Sequence[str]],
    others: Sequence[Stop],
) -> None:
    """What was looked up, each stop with its verdict and picture, and the commands to repeat it."""
    rows = "".join(
        f"<tr><td>{html.escape(word)}</td><td>→ {html.escape(', '.join(found) or 'nothing')}</td>"
        for word, found in looked_up.items()
    )
    page = _PAGE.format(
        count=len(looked_up), found=rows, stops="\n".join(map(_stop, [words, *others]))
    )
    with replacing(path) as temporary:
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
