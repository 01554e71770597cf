"""The page of an audit: one self-contained HTML file, with one sentence on what each part means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.auditing.resampling import FEWEST_WORDS, RESAMPLES
from headcount.auditing.result import ModelAudit
from headcount.report import audit_charts as charts
from headcount.report import audit_texts as texts
from headcount.report.chart_files import specification, write_chart
from headcount.report.html import script_json
from headcount.report.page_tables import PageTable, cell_text, frame_table
from headcount.report.section_page import PageSection, write_section_page

_FOLDER = "figures"
_FORMATS = ("svg", "png")
_SHOWN_FINDINGS = 40
_SCORES = {
    "relation": "relation",
    "layer": "layer",
    "head": "head",
    "auc_text": "AUC (95 % interval)",
    "mrr": "MRR",
    "f1": "best F1",
    "p_corrected": "corrected p",
    "beyond_random": "sd above random",
    "residual_auc": "residual AUC",
    "beyond_similarity": "beyond similarity",
}
_RELATIONS = {
    "relation": "relation",
    "words": "words",
    "edges": "edges used",
    "edges_given": "edges given",
    "heads_that_know": "heads that know it",
    "heads_beyond_similarity": "beyond similarity",
    "best_auc_text": "AUC of the best head (95 % interval)",
    "cosine_auc_text": "AUC of plain cosines (95 % interval)",
    "random_auc_high": "97.5 % of random heads have an AUC below",
    "random_pass_permutation": "share of random heads with p ≤ the level",
    "head_width": "width of a head",
    "compiled": "compiled D_K",
    "compiled_heads": "its heads",
    "head_ratio": "G of one head",
    "layer_ratio": "R of a layer",
}
_TABLE = {
    "table": "table",
    "items": "rows",
    "block": "block B",
    "leakage": "ρ at B",
    "theorem_block": "largest block (Theorem B.5)",
    "margin_block": "largest block proved",
    "mean_cosine": "mean cosine",
    "participation": "participation ratio",
}


def write_audit_page(audit: ModelAudit, folder: Path) -> Path:
    """Write `folder`/audit.html and the files of its charts; gives the page."""
    (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
    return write_section_page(
        folder / "audit.html",
        f"headcount audit: {audit.model}",
        f"What the key–query channels of {audit.model} hold",
        _sections(audit, folder / _FOLDER),
        notes=audit.notes,
        facts=_facts(audit),
        choices=[
            {
                "signal": "layer_",
                "label": "layer",
                "column": "layer",
                "options": list(audit.layers),
            }
        ],
    )


def _sections(audit: ModelAudit, folder: Path) -> Iterator[PageSection]:
    def drawn(id: str, title: str, meaning: str, draw: Callable[[ModelAudit], Any]) -> PageSection:
        spec = specification(draw(audit), f"{title}. {meaning}")
        files, height = write_chart(spec, folder / id, _FORMATS)
        places = [(path.suffix[1:].upper(), f"{_FOLDER}/{path.name}") for path in files]
        return PageSection(
            id,
            title,
            meaning,
            spec=script_json(spec),
            height=height,
            picture=f"{_FOLDER}/{id}.svg",
            downloads=places,
        )

    capacity = audit.capacity.advice
    yield PageSection("capacity", "Shape and capacity", capacity, _capacity_table(audit))
    yield drawn("ranks", "Directions that a head uses", texts.rank_text(audit), charts.rank_chart)
    yield drawn("spectra", "Spectra", texts.spectrum_text(audit), charts.spectrum_chart)
    yield drawn("overlap", "Overlap between heads", texts.overlap_text(audit), charts.overlap_chart)
    title = "Directions that a head's choices need"
    yield drawn("choices", title, texts.choice_text(audit), charts.choice_chart)
    heads: Any = audit.heads
    if heads["compiled_columns"].notna().any():
        title = "Columns that other weights need for the same choices"
        yield drawn("columns", title, texts.column_text(audit), charts.column_chart)
    rows = _turned(audit.table, _TABLE)
    yield PageSection("table", "The token table", texts.table_text(audit), rows)
    if not audit.relations.empty:
        title = "Relations that heads know"
        yield drawn("relations", title, texts.relation_text(audit), charts.relation_chart)
        yield PageSection(
            "relation-table",
            "Relations beside the best possible weights",
            "Compiled weights are the smallest found that decide every pair of the relation on "
            "the same table; a head that knows a relation ranks it well without deciding it. "
            "D_K, G and R are of the edges used, which may be a sample, and the sizes may lie "
            "outside the range in which the laws behind G and R were measured. "
            f"Intervals are from {RESAMPLES:,} bootstrap samples of source words, where there are "
            f"{FEWEST_WORDS} or more; that of the best head does not account for the choice among "
            "heads.",
            _turned(_with_intervals(audit.relations, "best_", "cosine_"), _RELATIONS),
        )
        yield _findings(audit)
    yield drawn("removal", "Redundancy", texts.removal_text(audit), charts.removal_chart)


def _findings(audit: ModelAudit) -> PageSection:
    found: Any = audit.findings
    parts = [part.head(_SHOWN_FINDINGS) for _, part in found.groupby("relation", sort=False)]
    shown = pd.concat(parts) if parts else found
    total = len(audit.scores)
    text = (
        f"{len(found):,} of {total:,} head–relation pairs pass both tests: p ≤ the level after "
        "correction for the number of heads, and an AUC above what as many random heads would "
        "reach on this table. The residual AUC is of what a linear fit to the cosines leaves."
    )
    if len(shown) < len(found):
        text += f" The best {_SHOWN_FINDINGS} of each relation are shown."
    table = _renamed(_with_intervals(shown, ""), _SCORES) if len(shown) else None
    return PageSection("findings", "Heads that know a relation", text, table, kind="compact")


def _capacity_table(audit: ModelAudit) -> PageTable:
    rows = [
        {
            "by": holding.law,
            "a layer holds": f"{holding.sense} {holding.edges:,} relations",
            "among": f"{holding.items:,} tokens",
            "reason": holding.reason,
        }
        for holding in audit.capacity.holdings
    ]
    return frame_table(pd.DataFrame(rows))


def _with_intervals(frame: Any, *prefixes: str) -> Any:
    """With AUCs and their 95 % intervals as text."""
    written = {
        f"{prefix}auc_text": [
            f"{auc:.3f}" + ("" if isnan(low) else f" ({low:.3f} to {high:.3f})")
            for auc, low, high in frame[
                [f"{prefix}auc", f"{prefix}auc_low", f"{prefix}auc_high"]
            ].itertuples(index=False)
        ]
        for prefix in prefixes
    }
    return frame.assign(**written)


def _renamed(frame: Any, names: dict[str, str]) -> PageTable:
    """Some columns under other names, numbers to three places."""
    shown = frame[list(names)]
    numbers = shown.select_dtypes("float").columns
    shown = shown.assign(**{name: shown[name].map("{:.3f}".format) for name in numbers})
    return frame_table(shown.rename(columns=names))


def _turned(frame: Any, names: dict[str, str]) -> PageTable:
    """One row per measure and one column per row: few rows with many measures read better so."""
    first, *rest = names
    rows = [[names[name], *map(_cell, frame[name])] for name in rest if frame[name].notna().any()]
    return frame_table(pd.DataFrame(rows, columns=[names[first], *frame[first]]))


def _cell(value: Any) -> str:
    """A number to four places, never in powers of ten."""
    # Adding 0 makes a rounded −0 a 0.
    return cell_text(round(value, 4) + 0.0 if isinstance(value, float) else value)


def _facts(audit: ModelAudit) -> list[tuple[str, str]]:
    sizes = audit.sizes
    facts: dict[str, Any] = {
        "family": sizes.name,
        "layers": f"{len(audit.layers)} of {sizes.layers}",
        "heads": f"{sizes.heads} of width {sizes.key_dim}",
        "key heads": sizes.kv_heads,
        "d_model": sizes.d_model,
        "D_Q, D_KV": f"{sizes.query_budget:,}, {sizes.key_budget:,}",
        "vocabulary": audit.capacity.items,
        **{name: audit.provenance[name] for name in ("machine", "date", "commit")},
    }
    return [(name, cell_text(value)) for name, value in facts.items() if value is not None]
