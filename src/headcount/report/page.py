"""The report: one self-contained HTML page, and the files of its figures in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, get_args

import pandas as pd
from markupsafe import Markup

from headcount.errors import InputError
from headcount.files import replacing
from headcount.progress import duration
from headcount.report.agreement import LocalVerdict, tally_text
from headcount.report.chart_files import FORMATS, chart_bundle, specification, write_chart
from headcount.report.figures import is_part_of
from headcount.report.figures.base import Claim, Figure, Verdict
from headcount.report.html import asset, page_template, script_json
from headcount.report.page_tables import PageTable, cell_text, comparison_table, frame_table
from headcount.report.statements import statement_table
from headcount.reproduction.evidence import Evidence

EXPLORER = "explorer.html"  # the interactive page, which the report links to if it is beside it
_FOLDER = "figures"
_MARKS = {"confirmed": "✓", "partly": "◐", "not confirmed": "✗", "not measured": "–"}
# What a manifest knows, in the order of a reader's questions, and how the page names it.
_FACTS = (
    *("preset", "runs", "run_steps", "seconds", "engine", "device"),
    *("machine", "date", "commit", "command", "versions"),
)
_TRAINED = ("runs", "run_steps", "seconds", "engine")  # facts of a training
_FACT_NAMES = {"seconds": "training time", "run_steps": "run-steps"}
# Without and with this machine's own verdicts.
_CLAIM_COLUMNS = (
    ("Claim", "What the paper says", "Verdict", "Evidence", "Shown in"),
    ("Claim", "What the paper says", "At paper scale", "Evidence", "This machine", "Shown in"),
)
# Signals of the charts, labels and columns of the filters.
_FILTERS = (("m", "m", "items"), ("d_model_", "d_model", "d_model"), ("h", "h", "heads"))
_FRAMES = ("curves", "thresholds", "by_heads")


@dataclass(frozen=True)
class Section:
    """What the page shows of one figure."""

    id: str
    title: str
    command: str
    claims: list[Claim]
    missing: str = ""  # why there is nothing to show
    meaning: str = ""
    spec: Markup | None = None
    height: int = 0  # pixels, reserved on the page until the chart is drawn
    picture: str = ""  # shown where scripts are off
    table: PageTable | None = None
    comparisons: PageTable | None = None
    files: Sequence[Path] = ()

    @property
    def label(self) -> str:
        """For readers who do not see the chart."""
        return f"{self.title}. {self.meaning}".strip()

    @property
    def downloads(self) -> list[tuple[str, str]]:
        """Names and relative addresses of the files."""
        return [(path.suffix[1:].upper(), f"{_FOLDER}/{path.name}") for path in self.files]


def write_report(
    out: Path,
    evidence: Evidence,
    figures: Sequence[Figure],
    claims: Sequence[Claim],
    formats: Sequence[str] = FORMATS,
    local: Mapping[str, LocalVerdict] | None = None,
) -> list[Path]:
    """Write `out`/report.html and `out`/figures/; returns the files written, the page first.

    A figure that the evidence has nothing for is listed on the page with the reason. `local` has
    this machine's own verdicts where the claims are judged by other runs.
    """
    out = Path(out)
    folder = out / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    sections = [_section(folder, figure, evidence, claims, formats) for figure in figures]
    page = out / "report.html"
    with replacing(page) as temporary:
        explorer = EXPLORER if (out / EXPLORER).exists() else ""
        text = _page(evidence, sections, claims, local or {}, explorer)
        temporary.write_text(text, encoding="utf-8")
    return [page, *(path for section in sections for path in section.files)]


def _section(
    folder: Path,
    figure: Figure,
    evidence: Evidence,
    claims: Sequence[Claim],
    formats: Sequence[str],
) -> Section:
    """Draw the figure, write its files, and say what the page shows of it."""
    preset = evidence.provenance.get("preset", "paper")
    section = Section(
        id=figure.id,
        title=figure.title,
        command=_command(figure, evidence, preset),
        claims=[claim for claim in claims if figure.id in claim.figures],
    )
    if not _is_measured(figure, evidence):
        return replace(section, missing=f"Not measured by the preset “{preset}”.")
    try:
        section = replace(
            section,
            meaning=figure.meaning(evidence),
            comparisons=comparison_table(figure.compare(evidence)),
        )
        chart = figure.draw(evidence) if figure.draw else None
        table = figure.table(evidence) if figure.table else None
    except InputError as error:
        return replace(section, missing=f"{str(error)[:1].upper()}{str(error)[1:]}.")
    if chart is not None:
        section = _with_chart(section, chart, folder, formats)
    if table is not None:
        path = _write_csv(table, folder / f"{figure.id}.csv")
        section = replace(section, table=frame_table(table), files=[*section.files, path])
    return section


def _command(figure: Figure, evidence: Evidence, preset: str) -> str:
    """The command that makes the figure; what the preset has no runs for, the whole paper has."""
    if figure.command:
        return figure.command(evidence)
    if not figure.grids:
        return f"headcount report --only {figure.id}"
    enough = preset if preset == "paper" or is_part_of(figure, preset) else "paper"
    return f"headcount reproduce --preset {enough} --only {figure.id}"


def _with_chart(section: Section, chart: Any, folder: Path, formats: Sequence[str]) -> Section:
    spec = specification(chart, section.label)
    files, height = write_chart(spec, folder / section.id, formats)
    shown = [name for name in ("svg", "png") if name in formats]
    picture = f"{_FOLDER}/{section.id}.{shown[0]}" if shown else ""
    return replace(section, spec=script_json(spec), height=height, picture=picture, files=files)


def _page(
    evidence: Evidence,
    sections: Sequence[Section],
    claims: Sequence[Claim],
    local: Mapping[str, LocalVerdict],
    explorer: str,
) -> str:
    counts = Counter(claim.verdict for claim in claims if not claim.is_control)
    drawn = any(section.spec for section in sections)
    return page_template("report.html").render(
        css=asset("report.css"),
        js=asset("report.js") if drawn else "",
        bundle=chart_bundle() if drawn else "",
        explorer=explorer,
        provenance=_provenance(evidence),
        claims=claims,
        local=local,
        local_tally=tally_text(local),
        trained_here=evidence.provenance.get("runs") != 0 or not evidence.own().block.empty,
        claim_columns=_CLAIM_COLUMNS[bool(local)],
        statements=statement_table() if claims else None,
        tally=[(verdict, counts[verdict]) for verdict in get_args(Verdict) if counts[verdict]],
        marks=_MARKS,
        titles={section.id: section.title for section in sections},
        choices=_choices(evidence),
        sections=sections,
    )


def _is_measured(figure: Figure, evidence: Evidence) -> bool:
    """Whether any grid of the figure is in the evidence; a figure without grids needs none."""
    found = {grid for name in _FRAMES for grid in getattr(evidence, name).get("grid", ())}
    return not figure.grids or not found.isdisjoint(figure.grids)


def _choices(evidence: Evidence) -> list[dict[str, Any]]:
    """The filters with the values that were measured."""
    return [
        {"signal": signal, "label": label, "column": column, "options": _values(evidence, column)}
        for signal, label, column in _FILTERS
    ]


def _values(evidence: Evidence, column: str) -> list[int]:
    frames = [getattr(evidence, name) for name in (*_FRAMES, "block")]
    return sorted(
        {int(value) for frame in frames if column in frame for value in frame[column].dropna()}
    )


def _provenance(evidence: Evidence) -> list[tuple[str, list[tuple[str, str]]]]:
    """What is known about the runs, and apart from it about those of the transformer block."""
    own, block = dict(evidence.provenance), dict(evidence.block_provenance)
    if own.get("runs") == 0:  # nothing was trained here, so no engine and no time
        own = {name: own[name] for name in own if name not in _TRAINED}
    parts = [("", _facts(own)), ("Figure 7 and its controls are other runs:", _facts(block))]
    return [(caption, facts) for caption, facts in parts if facts]


def _facts(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and texts, in the order of a reader's questions."""
    known = {name: value for name, value in given.items() if value not in (None, "", {}, [])}
    order = [name for name in _FACTS if name in known]
    order += [name for name in known if name not in _FACTS]
    return [(_FACT_NAMES.get(name, name), _fact(name, known[name])) for name in order]


def _fact(name: str, value: Any) -> str:
    if isinstance(value, dict):  # of versions; one that ran from its source folder may be unknown
        return ", ".join(f"{part} {inner}" for part, inner in value.items() if inner != "unknown")
    if name == "seconds" and isinstance(value, Real):
        return duration(float(value))
    return cell_text(value)


def _write_csv(table: pd.DataFrame, path: Path) -> Path:
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False)
    return path
