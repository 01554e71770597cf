"""This machine's verdicts beside those at the scale of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headcount.report.figures import claims
from headcount.report.figures.base import Claim
from headcount.report.formatting import listed
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.results_folder import ResultsFolder
from headcount.reproduction.shipped import MEASURED, measured_evidence

Agreement = Literal["agrees", "differs", "counted", "not measured here", "nothing to compare with"]


@dataclass(frozen=True)
class LocalVerdict:
    """A claim as this machine's runs judge it, and as the shipped runs of the same part do.

    A part of the runs may well give another verdict than all of them. Whether the machine agrees is
    therefore asked of the same part: it does where the two verdicts are the same.
    """

    claim: Claim
    same_part: Claim

    @property
    def agreement(self) -> Agreement:
        if not rule(self.claim.id).least:
            return "counted"
        if self.claim.verdict == "not measured":
            return "not measured here"
        if self.same_part.verdict == "not measured":
            return "nothing to compare with"
        return "agrees" if self.claim.verdict == self.same_part.verdict else "differs"

    @property
    def text(self) -> str:
        """The agreement in words; empty where nothing was measured here."""
        if self.agreement == "agrees":
            return "agrees: the shipped runs of this part give the same verdict"
        if self.agreement == "differs":
            return f"differs: the shipped runs of this part give “{self.same_part.verdict}”"
        if self.agreement == "not measured here":
            return ""
        return rule(self.claim.id).without_runs if self.agreement == "counted" else self.agreement


def judge(
    folder: ResultsFolder, evidence: Evidence
) -> tuple[Sequence[Claim], dict[str, LocalVerdict]]:
    """The claims by the runs at the scale of the paper, and by id this machine's own verdicts.

    The second is empty where the folder holds the shipped runs themselves.
    """
    if folder == MEASURED:
        return claims(evidence), {}
    shipped = {claim.id: claim for claim in claims(_same_part(folder, evidence))}
    local = {claim.id: LocalVerdict(claim, shipped[claim.id]) for claim in claims(evidence.own())}
    return shipped_claims(), local


def tally_text(local: Mapping[str, LocalVerdict]) -> str:
    """How many verdicts of this machine agree, and how many do not."""
    counts = Counter(found.agreement for found in local.values())
    agree, differ = counts["agrees"], counts["differs"]
    rest = counts["not measured here"] + counts["nothing to compare with"]
    words = [f"{agree} {'agrees' if agree == 1 else 'agree'}"] if agree else []
    words += [f"{differ} {'differs' if differ == 1 else 'differ'}"] if differ else []
    words += [f"{rest} {'is' if rest == 1 else 'are'} not measured here"] if rest else []
    return listed(words)


def shipped_claims() -> tuple[Claim, ...]:
    """The claims as the runs at the scale of the paper judge them, which are shipped."""
    return claims(measured_evidence())


def _same_part(folder: ResultsFolder, evidence: Evidence) -> Evidence:
    """The shipped runs that are this folder's too, with the bounds of the folder."""
    shipped = MEASURED.block.frame()
    block = shipped.loc[shipped["hash"].isin(evidence.own().block["hash"])]
    return replace(folder.part_of(MEASURED), bounds=evidence.bounds, block=block)
