"""The page of an audit: one self-contained HTML file, with one sentence on what each part means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from headcount.auditing.result import ModelAudit
from headcount.files import replacing
from headcount.report import audit_charts as charts
from headcount.report.chart_files import chart_bundle, specification, write_chart
from headcount.report.formatting import num
from headcount.report.html import asset, page_template, script_json
from headcount.report.page_tables import PageTable, cell_text, frame_table

_FOLDER = "figures"
_FORMATS = ("svg", "png")
_SHOWN_FINDINGS = 40
_SCORES = {
    "relation": "relation",
    "layer": "layer",
    "head": "head",
    "auc": "AUC",
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
    "best_auc": "best AUC",
    "cosine_auc": "AUC of plain cosines",
    "random_auc_high": "97.5 % of random heads below",
    "random_pass_permutation": "random heads with p ≤ level",
    "head_width": "width of a head",
    "compiled_budget": "compiled D_K",
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


@dataclass(frozen=True)
class AuditSection:
    """One part of the page: a chart, a table or both."""

    id: str
    title: str
    meaning: str
    table: PageTable | None = None
    spec: Markup | None = None
    height: int = 0
    files: tuple[Path, ...] = ()

    @property
    def label(self) -> str:
        """For readers who do not see the chart."""
        return f"{self.title}. {self.meaning}"

    @property
    def picture(self) -> str:
        """Shown where scripts are off."""
        return f"{_FOLDER}/{self.id}.svg" if self.spec else ""

    @property
    def downloads(self) -> list[tuple[str, str]]:
        return [(path.suffix[1:].upper(), f"{_FOLDER}/{path.name}") for path in self.files]


def write_audit_page(audit: ModelAudit, folder: Path) -> Path:
    """Write `folder`/audit.html and the files of its charts; gives the page."""
    (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
    page = folder / "audit.html"
    text = page_template("audit.html").render(
        css=asset("report.css"),
        js=asset("report.js"),
        bundle=chart_bundle(),
        model=audit.model,
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
        sections=list(_sections(audit, folder / _FOLDER)),
    )
    with replacing(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return page


def _sections(audit: ModelAudit, folder: Path) -> Iterator[AuditSection]:
    def drawn(id: str, title: str, meaning: str, draw: Callable[[ModelAudit], Any]) -> AuditSection:
        spec = specification(draw(audit), f"{title}. {meaning}")
        files, height = write_chart(spec, folder / id, _FORMATS)
        return AuditSection(id, title, meaning, None, script_json(spec), height, tuple(files))

    capacity = audit.capacity.advice
    yield AuditSection("capacity", "Shape and capacity", capacity, _capacity_table(audit))
    yield drawn("ranks", "Directions that a head uses", _rank_text(audit), charts.rank_chart)
    yield drawn("spectra", "Spectra", _spectrum_text(audit), charts.spectrum_chart)
    yield drawn("overlap", "Overlap between heads", _overlap_text(audit), charts.overlap_chart)
    title = "Columns that a head's choices need"
    yield drawn("choices", title, _choice_text(audit), charts.choice_chart)
    rows = _turned(audit.table, _TABLE)
    yield AuditSection("table", "The token table", _table_text(audit), rows)
    if not audit.relations.empty:
        title = "Relations that heads know"
        yield drawn("relations", title, _relation_text(audit), charts.relation_chart)
        yield AuditSection(
            "relation-table",
            "Relations beside the best possible weights",
            "Compiled weights are the smallest found that decide every pair of the relation on "
            "the same table; a head that knows a relation ranks it well without deciding it.",
            _turned(audit.relations, _RELATIONS),
        )
        yield _findings(audit)
    yield drawn("removal", "Redundancy", _removal_text(audit), charts.removal_chart)


def _findings(audit: ModelAudit) -> AuditSection:
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
    table = _renamed(shown, _SCORES) if len(shown) else None
    return AuditSection("findings", "Heads that know a relation", text, table)


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


def _renamed(frame: Any, names: dict[str, str]) -> PageTable:
    return frame_table(frame[list(names)].rename(columns=names))


def _turned(frame: Any, names: dict[str, str]) -> PageTable:
    """One row per measure and one column per row: few rows with many measures read better so."""
    first, *rest = names
    rows = [[names[name], *map(_cell, frame[name])] for name in rest]
    return frame_table(pd.DataFrame(rows, columns=[names[first], *frame[first]]))


def _cell(value: Any) -> str:
    """A number to four places, never in powers of ten."""
    return cell_text(round(value, 4) if isinstance(value, float) else value)


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


def _rank_text(audit: ModelAudit) -> str:
    heads: Any = audit.heads
    rank, width = heads["entropy_rank"], audit.sizes.key_dim
    random = audit.random["entropy_rank"]
    few = int((rank < random / 2).sum())
    return (
        f"The entropy rank says how many directions a head's form spreads over: {num(rank.min())} "
        f"to {num(rank.max())} of {width}, mean {num(rank.mean())}, where random weights have "
        f"{num(random)}. {few:,} of {len(rank):,} heads use less than half of what random weights "
        "do."
    )


def _spectrum_text(audit: ModelAudit) -> str:
    heads: Any = audit.heads
    energy = heads["energy_rank"]
    return (
        f"90 % of a head's energy is in its {int(energy.min())} to {int(energy.max())} largest "
        f"singular values (median {num(energy.median())}); of random weights in "
        f"{num(audit.random['energy_rank'])}. A curve above the dashed one is a head that leans "
        "on few directions."
    )


def _overlap_text(audit: ModelAudit) -> str:
    heads: Any = audit.heads
    random = audit.random["overlap"]
    return (
        "The overlap is the share of a head's energy in the space of another head, averaged over "
        f"the others: {num(heads['query_overlap'].mean())} for queries and "
        f"{num(heads['key_overlap'].mean())} for keys, {num(random)} for random heads. More means "
        "that the heads of a layer read the same directions of the residual stream."
    )


def _choice_text(audit: ModelAudit) -> str:
    heads: Any = audit.heads
    kept, columns = heads["kept_rank_90"], heads["compiled_columns"].dropna()
    text = (
        "A head's choice is the word that it scores highest for a word. Cut to its largest "
        f"singular values, a head keeps 90 % of its choices from {kept.min()} to {kept.max()} of "
        f"its {audit.sizes.key_dim} directions on (median {num(kept.median())})."
    )
    if columns.empty:
        return text
    return text + (
        f" Other weights, compiled, make all of a head's choices with {columns.min():.0f} to "
        f"{columns.max():.0f} columns ({len(columns):,} of {len(heads):,} heads, in the time "
        "given)."
    )


def _table_text(audit: ModelAudit) -> str:
    table: Any = audit.table
    own, gaussian = table.iloc[0], table.iloc[-1]
    return (
        f"{int(own['items']):,} random words as the first layer reads them. Their mean cosine is "
        f"{num(own['mean_cosine'])}, and they spread over {num(own['participation'])} directions "
        f"where Gaussian rows have {num(gaussian['participation'])}. ρ is the leakage of "
        "Definition B.4; a block of 0 means that the theorem guarantees no head anything on this "
        "table."
    )


def _relation_text(audit: ModelAudit) -> str:
    rows: Any = audit.relations.itertuples()
    parts = [
        f"{row.relation}: {row.heads_that_know:,} heads know it, "
        f"{row.heads_beyond_similarity:,} beyond similarity"
        for row in rows
    ]
    return (
        "AUC is how often a head scores an edge above a non-edge of the same source; 0.5 is "
        f"chance. {'; '.join(parts)}. Related words have similar embeddings, so compare with the "
        "AUC of plain cosines in the next table."
    )


def _removal_text(audit: ModelAudit) -> str:
    frame: Any = audit.removal
    half = frame[frame["kept"] == max(audit.sizes.heads // 2, 1)]["left"]
    return (
        f"With half of its heads a layer keeps {num(half.min())} to {num(half.max())} of its "
        "choices (the words that some head scores highest). On the diagonal no choice is made "
        "twice; above it heads repeat each other."
    )
