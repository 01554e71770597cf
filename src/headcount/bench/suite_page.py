"""Pages of benchmarks: one self-contained HTML file each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headcount.bench.engines import named
from headcount.bench.ratios import TITLES
from headcount.bench.suite_charts import change_chart, ratio_chart
from headcount.report.chart_files import inline_picture, specification
from headcount.report.formatting import num
from headcount.report.html import script_json
from headcount.report.page_tables import cell_text, frame_table
from headcount.report.section_page import PageSection, write_section_page

if TYPE_CHECKING:
    from headcount.bench.comparison import BenchmarkComparison
    from headcount.bench.suite import Benchmark

_SIZES = {"items": "m", "d_model": "d_model", "heads": "h", "budget": "D_K"}
_TURNS = (
    "Engines and peers take turns in every round, after one round that does not count. The engines "
    "draw their contexts and check themselves on validation contexts, as in training; "
    "the peers do neither."
)


def write_benchmark_page(benchmark: Benchmark, page: Path) -> Path:
    """Write the ratios by shape and variant, and the times behind them."""
    return write_section_page(
        page,
        "headcount benchmark",
        "How fast the training engines are",
        _benchmark_sections(benchmark),
        notes=[_TURNS, *_missing(benchmark)],
        facts=_facts(benchmark),
        choices=_choices(benchmark.ratios),
    )


def write_comparison_page(comparison: BenchmarkComparison, page: Path) -> Path:
    """Write what changed between two benchmarks."""
    return write_section_page(
        page,
        "headcount benchmarks, compared",
        "What changed between two benchmarks",
        _comparison_sections(comparison),
        notes=comparison.notes,
        facts=[
            (f"{which} {name}", value)
            for which, part in (("first", comparison.before), ("second", comparison.after))
            for name, value in _facts(part)
            if name in ("date", "commit", "machine")
        ],
        choices=_choices(comparison.changes),
    )


def _benchmark_sections(benchmark: Benchmark) -> Iterator[PageSection]:
    ratios = benchmark.ratios
    for name in TITLES:
        own: Any = ratios[ratios["ratio"] == name]
        if len(own):
            chart = ratio_chart(ratios, name)
            yield _drawn(name.replace("_", "-"), TITLES[name], _reached(own), chart)
    meaning = "Medians over rounds; check and draw are shares of an engine's own time."
    table = frame_table(_times(benchmark))
    yield PageSection("times", "µs per run-step", meaning, table, kind="compact")


def _comparison_sections(comparison: BenchmarkComparison) -> Iterator[PageSection]:
    changes = comparison.changes
    worse, better = len(comparison.regressions), len(comparison.improvements)
    meaning = (
        f"{worse} of {len(changes)} ratios are worse, {better} are better. A ratio counts as worse "
        f"when its median fell by more than {comparison.noise:.0%} and every round of the second "
        "file is below every round of the first."
    )
    yield _drawn("changes", "Changes", meaning, change_chart(changes, comparison.noise))
    parts = (
        ("worse", "Ratios that are worse", comparison.regressions),
        ("better", "Ratios that are better", comparison.improvements),
        ("all", "All ratios", changes),
    )
    for id, title, frame in parts:
        if len(frame):
            table = frame_table(_written(frame))
            yield PageSection(id, title, f"{len(frame)} of them.", table, kind="compact")


def _drawn(id: str, title: str, meaning: str, chart: Any) -> PageSection:
    spec = specification(chart, f"{title}. {meaning}")
    picture, height = inline_picture(spec)
    return PageSection(id, title, meaning, spec=script_json(spec), height=height, picture=picture)


def _reached(own: Any) -> str:
    """The range of a ratio, and in how many cases its target is reached."""
    text = f"From {num(own['value'].min())} to {num(own['value'].max())}"
    goals = own["target"].dropna()
    if goals.empty:
        return f"{text}; there is no target."
    reached = int((own["value"] >= own["target"]).sum())
    goal = num(goals.iloc[0])
    return f"{text}; the target of {goal} is reached in {reached} of {len(own)} cases."


def _written(changes: pd.DataFrame) -> pd.DataFrame:
    """The changes as a reader writes them."""
    frame: Any = changes.rename(columns=_SIZES)
    change = [f"{value:+.1%}".replace("-", "−").replace("%", " %") for value in frame["change"]]
    named = frame.assign(ratio=frame["ratio"].map(TITLES), change=change)
    return named[["ratio", "variant", *_SIZES.values(), "before", "after", "change", "verdict"]]


def _times(benchmark: Benchmark) -> pd.DataFrame:
    rows = [
        {
            "engine": named(row["engine"], row["device"], row["threads"]),
            "variant": row["variant"],
            **{word: row[name] for name, word in _SIZES.items()},
            "runs": row["runs"],
            "µs": row["us_per_run_step"],
            "GFLOP/s": row["gflops"],
            "check": _share(row["share_evaluation"]),
            "draw": _share(row["share_drawing"]),
        }
        for row in benchmark.times.astype(object).to_dict("records")
        if not row["missing"]
    ]
    return pd.DataFrame(rows)


def _share(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{value:.0%}".replace("%", " %")


def _missing(benchmark: Benchmark) -> list[str]:
    """What could not be timed, and why, once each."""
    times: Any = benchmark.times
    if times.empty:
        return []
    found = times[times["missing"].notna()].groupby(["engine", "device", "missing"]).size()
    return [
        f"{named(engine, device, None)} is missing in {count} cases: {reason}."
        for (engine, device, reason), count in found.items()
    ]


def _choices(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The filters with the values that were measured."""
    signals = (("m", "m", "items"), ("d_model_", "d_model", "d_model"), ("h", "h", "heads"))
    return [
        {"signal": signal, "label": label, "column": column, "options": sorted(set(frame[column]))}
        for signal, label, column in signals
    ]


def _facts(benchmark: Benchmark) -> list[tuple[str, str]]:
    values, loads = benchmark.values, [found.get("load") for found in benchmark.cases]
    known = [load for load in loads if load is not None]
    facts: dict[str, Any] = {
        "machine": values["machine"],
        "date": f"{values['date'][:16].replace('T', ' ')} UTC",
        "commit": values.get("commit"),
        "rounds": values["settings"].get("repeats"),
        "cases": f"{len(benchmark.cases)} of {len(values['planned'])}",
        "load": f"{min(known):.1f} to {max(known):.1f}" if known else None,
        "versions": ", ".join(f"{name} {text}" for name, text in values["versions"].items()),
    }
    return [(name, cell_text(value)) for name, value in facts.items() if value is not None]
