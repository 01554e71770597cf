"""`headcount reproduce` and `headcount report`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import EngineOption, Json, Quiet, chosen_engine, emit
from headcount.errors import InputError
from headcount.files import made_folder
from headcount.progress import duration, notice, progress_line

if TYPE_CHECKING:
    from headcount.report.agreement import LocalVerdict
    from headcount.report.figures.base import Claim


class PresetOption(StrEnum):
    quick = "quick"
    paper = "paper"


Only = Annotated[
    str | None,
    typer.Option(help="Run and draw these alone, as in fig3,table1.", show_default="all"),
]


def reproduce(
    preset: Annotated[
        PresetOption,
        typer.Option(help="quick: minutes on two cores; paper: every run of the paper, on a GPU."),
    ] = PresetOption.quick,
    only: Only = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to fill.", show_default="results/PRESET"),
    ] = None,
    engine: Annotated[EngineOption, typer.Option(help="How to train.")] = EngineOption.auto,
    table: Annotated[
        str | None,
        typer.Option(
            help="Token table of Figure 7; see headcount block.", show_default="the preset's"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be run, and how long it takes.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run the paper's experiments and write a report: every figure and table beside the paper's.

    Finished runs are stored in the folder within seconds. After an interrupt, a
    crash or a kill, the same command continues where it stopped. Figure 7 is
    drawn from runs shipped with headcount unless --only asks for it.

    \b
    Examples:
      headcount reproduce
      headcount reproduce --dry-run
      headcount reproduce --only fig7
      headcount reproduce --only fig1,fig3,table1
      headcount reproduce --preset paper --out results/paper
    """
    from headcount.report.reproduce import reproduce as run

    names, folder = _names(only), out or Path("results") / preset.value
    if dry_run:
        _print_forecast(preset.value, names, folder, engine, table, json)
        return
    try:
        found = run(
            preset.value,
            names,
            folder,
            engine=chosen_engine(engine.value),
            table=table,
            progress=not quiet,
        )
    except KeyboardInterrupt:
        notice(
            f"interrupted; finished runs are stored in {folder}, "
            "and the same command continues from there"
        )
        sys.exit(130)
    more = {"seconds": dict(found.seconds), "trained": found.trained}
    _print(found.folder, found.claims, found.local, found.files, more, json)


def _print_forecast(
    preset: str,
    names: Sequence[str],
    folder: Path,
    engine: EngineOption,
    table: str | None,
    json: bool,
) -> None:
    from headcount.report.reproduce import forecast_reproduction

    used = chosen_engine(engine.value)
    found = forecast_reproduction(preset, names, folder, engine=used, table=table)
    if json:
        emit({**asdict(found), "folder": str(found.folder)}, True)
        return
    shown = {
        "figures": found.figures,
        "runs": f"{found.runs + found.known:,}: {found.known:,} known, {found.runs:,} to train",
        "training": f"about {duration(found.seconds)}, by speed measured here just now; "
        "bounds and report come on top",
        "engine": f"{found.engine} on {found.device}",
        "folder": f"{found.folder}{'' if found.folder.exists() else ' (new)'}",
    }
    if found.block_runs:
        shown["block runs"] = f"{found.block_runs:,} to train, whose time is not estimated"
    emit(shown, False, f"{preset}: a dry run, nothing is trained")


def report(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="A folder that reproduce filled.", show_default="our own runs of the whole paper"
        ),
    ] = None,
    only: Only = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Where to write.", show_default="FOLDER, or results/report"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Draw the report from finished runs: those of a folder, or the paper-scale runs we ship.

    \b
    Examples:
      headcount report
      headcount report results/quick --only fig3
    """
    from headcount.report.agreement import judge
    from headcount.report.figures import chosen_figures
    from headcount.report.page import write_report
    from headcount.reproduction.results_folder import ResultsFolder
    from headcount.reproduction.shipped import MEASURED, measured_evidence

    figures = chosen_figures(_names(only))
    results = ResultsFolder(folder) if folder else MEASURED
    evidence = results.evidence() if folder else measured_evidence()
    target = made_folder(out or folder or Path("results/report"))
    with progress_line() as tell:
        tell("drawing the report")
        claims, local = judge(results, evidence)
        files = write_report(target, evidence, figures, claims, local=local)
    _print(target, claims, local, files, {}, json)


def _names(only: str | None) -> list[str]:
    """The ids in a list such as fig3,table1."""
    names = [name.strip().lower() for name in (only or "").split(",") if name.strip()]
    if only is not None and not names:
        raise InputError("--only names nothing; write for instance --only fig3,table1")
    return list(dict.fromkeys(names))


def _print(
    out: Path,
    claims: Sequence[Claim],
    local: Mapping[str, LocalVerdict],
    files: Sequence[Path],
    more: dict[str, Any],
    json: bool,
) -> None:
    if json:
        verdicts = {claim.id: _verdict(claim) | _here(local.get(claim.id)) for claim in claims}
        written = [str(path) for path in files]
        emit({"folder": str(out), "files": written, "claims": verdicts} | more, True)
        return
    if local:
        print("Verdicts at the scale of the paper, by the shipped runs; here: by your own.")
    for claim in claims:
        print(f"  {claim.id:<5}{claim.verdict:<15}{claim.text}")
        print(f"{'':22}{_marked(claim.number, claim)}")
        if claim.id in local:
            here = local[claim.id]
            text = f"{here.claim.verdict}, {here.text}" if here.text else here.claim.verdict
            print(f"{'':22}here: {_marked(text, here.claim)}")
    print(f"Open {out / 'report.html'}")


def _marked(text: str, claim: Claim) -> str:
    """A text with a note where the evidence is thin."""
    return f"{text} (thin evidence: {claim.thin})" if claim.thin else text


def _verdict(claim: Claim) -> dict[str, Any]:
    return {"verdict": claim.verdict, "number": claim.number, "thin": claim.thin}


def _here(found: LocalVerdict | None) -> dict[str, Any]:
    return {"here": _verdict(found.claim) | {"agreement": found.agreement}} if found else {}
