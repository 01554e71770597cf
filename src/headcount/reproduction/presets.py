"""Presets: the sweep files behind `headcount reproduce`, and the parts that figures need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from headcount.errors import InputError
from headcount.sweeps.file import SweepFile, read_sweep
from headcount.training.spec import RunSpec

_FOLDER = Path(__file__).with_name("presets")
PRESETS = tuple(sorted((path.stem for path in _FOLDER.glob("*.toml")), reverse=True))  # quick first


@dataclass(frozen=True)
class Need:
    """Runs from which a figure is drawn: a grid of the paper, or some of its points and degrees."""

    grid: str
    points: tuple[tuple[int, int], ...] = ()  # empty for all
    degrees: tuple[int, ...] = ()
    curves: bool = False  # whether whole curves are shown, which a search does not leave

    def covers(self, spec: RunSpec) -> bool:
        """Whether a run of that grid is needed."""
        here = not self.points or (spec.items, spec.d_model) in self.points
        return here and (not self.degrees or spec.degree in self.degrees)


@cache
def preset(name: str) -> SweepFile:
    """Give a preset by its name.

    >>> quick, paper = preset("quick"), preset("paper")
    >>> {spec for part in (*quick.grids, *quick.searches) for spec in part.runs} <= set(paper.runs)
    True
    """
    if name not in PRESETS:
        raise InputError(f"preset {name!r} is unknown; use {' or '.join(PRESETS)}")
    return read_sweep(_FOLDER / f"{name}.toml")


def restricted(sweep: SweepFile, needs: Iterable[Need]) -> SweepFile:
    """The parts of a sweep that these needs cover."""
    wanted = list(needs)

    def needed(part, some):
        fitting = [need for need in some if need.grid == part.paper]
        return tuple(spec for spec in part.runs if any(need.covers(spec) for need in fitting))

    grids = (replace(part, runs=needed(part, wanted)) for part in sweep.grids)
    judged = [need for need in wanted if not need.curves]
    searches = (replace(part, runs=needed(part, judged)) for part in sweep.searches)
    return replace(
        sweep,
        grids=tuple(part for part in grids if part.runs),
        searches=tuple(part for part in searches if part.runs),
    )
