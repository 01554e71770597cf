"""Verdicts follow from the evidence: a world like the paper's confirms, a changed one does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.report.figures import FIGURES, claims
from headcount.report.figures.base import Check, Claim, judged, verdict
from headcount.report.rules import rule, rules
from headcount.reproduction.evidence import Evidence
from tests.changed_worlds import CHANGED, FLAT_BEYOND, one_head_at, printed
from tests.made_evidence import (
    QUICK,
    WORLD,
    World,
    budget_set,
)


@cache
def judges() -> dict[str, Callable[[Evidence], Claim]]:
    """The function that judges each claim, so that a test of one claim need not judge them all."""
    evidence = WORLD.evidence()
    return {judge(evidence).id: judge for figure in FIGURES for judge in figure.claims}


def claim_of(name: str, world: World) -> Claim:
    return judges()[name](world.evidence())


# Where even the paper's own numbers do not confirm the claim, or the paper has too little for it.
NOT_CONFIRMED = {
    "C1": "partly",  # the accuracies of its block do not jump
    "C4": "partly",  # h* at (512, 16) is the largest head count swept
    "C12": "partly",  # one point where the construction as printed is exact
    "C18": "not confirmed",  # with controls that close the gap
    "C19": "partly",  # two points where one head passes
    "C20": "not confirmed",  # the same factor at every m
    "C21": "partly",  # D_K* in proportion to r is the construction's scaling
    "C22": "partly",  # counted
    "C23": "partly",  # counted
}


def test_world_like_the_papers_confirms_its_claims():
    found = {claim.id: claim.verdict for claim in claims(WORLD.evidence())}
    assert list(found) == list(rules())
    assert found == dict.fromkeys(rules(), "confirmed") | NOT_CONFIRMED


@pytest.mark.parametrize(("name", "world", "expected"), CHANGED.values(), ids=CHANGED)
def test_changed_evidence_changes_its_verdict(name, world, expected):
    assert claim_of(name, world).verdict == expected


def test_fewer_points_say_how_few():
    found = {claim.id: claim for claim in claims(QUICK.evidence())}
    assert found["C3"].verdict == "confirmed"
    assert "8 points" in found["C3"].number
    assert found["C7"].verdict == "partly"
    assert "not measured" in found["C7"].number
    assert found["C9"].verdict == "not measured"
    assert "1 panel" in found["C6"].number
    assert "3 degrees" in found["C5"].number


def test_thin_evidence_is_marked_and_confirms_nothing():
    found = {claim.id: claim for claim in claims(QUICK.evidence())}
    assert found["C11"].thin == "3 degrees where the rule asks for 5"
    assert "within a factor 2 of m'/d_model at 3 of 3 degrees" in found["C11"].number
    assert found["C11"].verdict == "partly"
    assert found["C6"].thin == "1 panel where the rule asks for 3"
    assert not [claim.id for claim in found.values() if claim.thin and claim.verdict == "confirmed"]
    two = WORLD.map("regular", lambda p: replace(p, runs=2))
    claim = claim_of("C11", two)
    assert (claim.verdict, claim.thin) == ("partly", "2 seeds where the rule asks for 3")


@given(st.sampled_from(sorted(rules())), st.integers(0, 30), st.integers(0, 30))
def test_no_rule_confirms_on_thin_evidence(name, some, seeds):
    found = {part: some for part in rule(name).least} | {"seeds": seeds}  # noqa: C420
    claim = judged(name, [Check(True, "")], found)
    short = any(found[part] < least for part, least in rule(name).least.items())
    assert (claim.verdict, bool(claim.thin)) == ("partly" if short else "confirmed", short)
    assert judged(name, [Check(None, "")]).thin == ""


def number_of(name: str, world: World) -> str:
    return claim_of(name, world).number


def test_numbers_say_what_they_leave_out():
    found = number_of("C5", FLAT_BEYOND)
    assert "from r = 1 to 32 D_K* grows like m' to the power" in found
    assert "up to r = 16" in found
    assert "r = 32 lies below the line" in found
    found = number_of("C12", printed(None))
    assert "as printed it is exact at 0 of 1 point (in the d_k searched)" in found
    assert "at 1 only a head per edge is exact" in found
    assert "only a head per edge" not in number_of("C12", WORLD)
    assert "r = 16; that one needs 10.7 times" in number_of(
        "C24", CHANGED["C24 one head per edge"][1]
    )
    found = number_of("C4", WORLD)
    assert "h* at (512, 16) is the largest head count swept; without it slope" in found
    passes = WORLD.map("diagonal", one_head_at(1024, 128, 1.25))
    assert "it passes at (1024, 128) with 1.25 times D_K*" in number_of("C2", passes)
    one = WORLD.map(
        "linear", lambda p: p if p.items == 128 else replace(p, needs={1: None, 2: None})
    )
    found = number_of("K1", one)
    assert "several heads pass with less at 0 of 1 point; nothing passes at (64, 16)" in found
    assert "20,000 steps up to m = 512, 80,000 at 1,024 and 2,048, 200,000 at 4,096" in number_of(
        "C9", WORLD
    )
    assert "docs/deviations.md, 22" in number_of("C9", WORLD)
    assert "at most ×" in number_of("C1", WORLD)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (5, "15 of 15 points in [5, 24];"),
        (4, "14 of 15 points in [5, 24], not 4 at (64, 64);"),
        (40, "14 of 15 points in [5, 24], not 40 at (64, 64);"),
    ],
)
def test_widths_outside_the_range_are_not_counted_in_it(width, expected):
    changed = WORLD.map(
        "base", lambda p: budget_set(lambda q: width)(p) if (p.items, p.d_model) == (64, 64) else p
    )
    assert expected in number_of("C10", changed)


checks = st.lists(st.sampled_from([True, False, None]), min_size=1).map(
    lambda held: [Check(h, "") for h in held]
)


@given(checks, st.integers(0, 10))
def test_a_failed_check_never_raises_a_verdict(found, place):
    order = ["not measured", "not confirmed", "partly", "confirmed"]
    worse = [
        Check(False, "") if index == place % len(found) else check
        for index, check in enumerate(found)
    ]
    if found[0].holds is not None:
        assert order.index(verdict(worse)) <= order.index(verdict(found))
