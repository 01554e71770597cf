"""One head of the transformer block under a control: s barred, or a second value path."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from headcount.report.readings.block_runs import Cell, Setting, settings
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

# Shares of the gap that count as all of it and as nothing.
CLOSED, OPEN = rule("C18")["closed"], rule("C18")["open"]
AT_TEST = "s and q barred at the test"
_NAMES = {"barred": "s barred in training too", "two-values": "second value path"}


@dataclass(frozen=True)
class Control:
    """One head under a control, beside the plain experiment on the same table."""

    name: str
    plain: Setting
    setting: Setting

    @property
    def scaled(self) -> bool:
        return self.setting.scale != self.plain.scale

    @property
    def cells(self) -> list[Cell]:
        """One head, by D_K."""
        each = (self.setting.one(budget) for budget in self.setting.budgets)
        return [cell for cell in each if cell is not None]

    @property
    def closed(self) -> dict[int, float]:
        """By D_K, the share of the gap between one head and several that is gone.

        Only where the plain gap is clear. Several heads have the control too where they were run
        with it; otherwise the plain ones are used.
        """
        found = {}
        for cell in self.cells:
            gap = self.plain.gap(cell.budget)
            best = self.setting.best(cell.budget) or self.plain.best(cell.budget)
            if gap is not None and self.plain.ahead(cell.budget) and best is not None:
                found[cell.budget] = 1 - (best.mean - cell.mean) / gap
        return found

    @property
    def share(self) -> float | None:
        """The median of `closed`; None where there is no clear gap to close."""
        return median(self.closed.values()) if self.closed else None


def controls(evidence: Evidence) -> list[Control]:
    """Every control with one head, by table; first barring at the test, which needs no new run."""
    found = settings(evidence)
    made = []
    for plain in (setting for setting in found if setting.plain):
        made.append(Control(AT_TEST, plain, plain.barred_at_test))
        same = [setting for setting in found if setting.place == plain.place and not setting.plain]
        made += [Control(_name(setting), plain, setting) for setting in same]
    return [control for control in made if control.cells]


def most_controlled(found: list[Control]) -> list[Control]:
    """The controls, without scaled rows, of the table with most of them; the first of equals."""
    unscaled = [control for control in found if not control.scaled]
    tables = [
        [control for control in unscaled if control.plain is plain.plain] for plain in unscaled
    ]
    return max(tables, key=len, default=[])


def _name(setting: Setting) -> str:
    parts = [_NAMES[setting.control]] if setting.control in _NAMES else []
    return ", ".join(parts + ([f"rows × {setting.scale:g}"] if setting.scale != 1 else []))
