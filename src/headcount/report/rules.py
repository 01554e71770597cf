"""The rules by which the paper's claims are judged, read from claims.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from headcount.report.formatting import counted, listed
from headcount.report.readings.paper_numbers import quoted

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_FILE = Path(__file__).with_name("claims.toml")


@dataclass(frozen=True)
class EarlierRule:
    """A rule that was changed after the runs, with the verdict before and after the change."""

    date: str
    commit: str
    rule: str
    before: str
    after: str
    why: str


@dataclass(frozen=True)
class Rule:
    """A claim of the paper and the rule by which it is judged.

    >>> rule("C6").place, rule("C6").least
    ('Section 7.1', {'panels': 3, 'seeds': 3})
    >>> rule("C7")["apart"], rule("C6")["grid_step"]
    (1.25, 0.1)
    """

    id: str  # "C3"; K1 is a control of ours
    title: str  # in a few words
    text: str  # what the paper says
    place: str  # where it says so
    rule: str  # in words
    date: str  # of the rule
    figures: tuple[str, ...]  # that show it
    numbers: Mapping[str, float]  # of the rule, the shared ones included
    least: Mapping[str, int] = field(default_factory=dict)  # evidence below which it is thin
    earlier: tuple[EarlierRule, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)  # what is not in the evidence

    def __getitem__(self, name: str) -> float:
        return self.numbers[name]

    def thin(self, found: Mapping[str, int]) -> str:
        """What of the evidence is less than the rule asks for; empty where it is enough.

        >>> rule("C11").thin({"degrees": 3, "seeds": 10})
        '3 degrees where the rule asks for 5'
        >>> rule("C11").thin({"degrees": 6, "seeds": 10})
        ''
        """
        short = [
            f"{counted(found[name], name.removesuffix('s'))} where the rule asks for {least}"
            for name, least in self.least.items()
            if found[name] < least
        ]
        return listed(short) if short else ""

    @property
    def without_runs(self) -> str:
        """What a rule rests on that asks for no runs.

        >>> rule("C22").without_runs
        'counted, without runs'
        """
        if not self.measured:
            return "counted, without runs"
        return f"counted; times of {self.measured['date']} on {self.measured['machine']}"


def rule(name: str) -> Rule:
    """The rule of one claim."""
    return rules()[name]


@cache
def rules() -> dict[str, Rule]:
    """Every rule by its claim, in the order of the file."""
    file = _file()
    return {entry["id"]: _rule(entry, file["shared"]) for entry in file["claim"]}


def shared_number(name: str) -> float:
    """A number that several rules use."""
    return _file()["shared"][name]


def rules_version() -> int:
    """The version of the file of rules."""
    return _file()["version"]


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def _rule(entry: dict[str, Any], shared: Mapping[str, float]) -> Rule:
    numbers = {**shared, **entry.get("numbers", {})}
    earlier = [
        EarlierRule(**{name: str(value).strip() for name, value in before.items()})
        for before in entry.get("earlier", ())
    ]
    return Rule(
        id=entry["id"],
        title=entry["title"],
        text=_filled(entry["text"], numbers),
        place=entry["place"],
        rule=_filled(entry["rule"], numbers),
        date=str(entry["date"]),
        figures=tuple(entry["figures"]),
        numbers=numbers,
        least=entry.get("least", {}),
        earlier=tuple(earlier),
        measured=entry.get("measured", {}),
    )


def _filled(text: str, numbers: Mapping[str, float]) -> str:
    """The text with its numbers: {name}, {name%} and {paper:id}."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("paper:"):
            return quoted(name.removeprefix("paper:"))
        if name.endswith("%"):
            return f"{100 * numbers[name[:-1]]:g} %"
        return f"{numbers[name]:,}"

    return PLACEHOLDER.sub(value, text).strip()
