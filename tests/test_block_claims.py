"""Claims, comparisons and sentences about the block follow from its runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headcount.report.figures import block, fig7
from headcount.report.figures.fig7_claims import (
    block_advantage,
    block_collapse,
    block_partial,
    block_saturation,
    block_stability,
)
from tests.block_evidence import JUDGES, WHOLE, evidence, with_cells
from tests.made_block import BUDGETS, MPNET, SMALL, SMOLLM2, Block, seeds_around
from tests.made_evidence import NOTHING

ONE_AS_GOOD = with_cells(MPNET, {(1, budget): MPNET.accuracies[4, budget] for budget in BUDGETS})


NEVER_COLLAPSES = with_cells(MPNET, {(1, 256): seeds_around(0.81), (1, 512): seeds_around(0.81)})


# Claims, comparisons and sentences


def _number(claim) -> str:
    return claim(evidence(MPNET, SMOLLM2)).number


SEVERAL_FALL = with_cells(MPNET, {(2, 512): seeds_around(0.985, collapsed=1)})


HIGHER = with_cells(MPNET, {(1, 512): seeds_around(0.6, collapsed=3)})


YES, PARTLY, NO, NONE = "confirmed", "partly", "not confirmed", "not measured"


VERDICTS = {  # C13 to C17
    "like the paper's": (evidence(MPNET, SMOLLM2), (YES, YES, YES, YES, YES)),
    "one table is thin": (evidence(MPNET), (PARTLY, PARTLY, PARTLY, PARTLY, PARTLY)),
    "one head as good": (evidence(ONE_AS_GOOD, SMOLLM2), (NO, NO, PARTLY, NO, YES)),
    "one head as good at 64": (
        evidence(with_cells(MPNET, {(1, 64): MPNET.accuracies[4, 64]}), SMOLLM2),
        (PARTLY, YES, YES, YES, YES),
    ),
    "a little ahead at 64": (
        evidence(with_cells(MPNET, {(1, 64): seeds_around(0.73)}), SMOLLM2),
        (PARTLY, YES, YES, YES, YES),
    ),
    "2 heads behind one at 128": (
        evidence(with_cells(MPNET, {(2, 128): seeds_around(0.7)}), SMOLLM2),
        (YES, YES, YES, YES, YES),
    ),
    "8 heads behind one at 64": (
        evidence(with_cells(MPNET, {(8, 64): seeds_around(0.3)}), SMOLLM2),
        (YES, YES, YES, YES, YES),
    ),
    "no collapse": (evidence(NEVER_COLLAPSES, SMOLLM2), (YES, YES, YES, NO, YES)),
    "2 heads collapse too": (evidence(SEVERAL_FALL, SMOLLM2), (YES, NO, YES, YES, NO)),
    "one head elsewhere": (evidence(HIGHER, SMOLLM2), (YES, YES, PARTLY, YES, YES)),
    "one head still gains": (
        evidence(with_cells(MPNET, {(1, 512): seeds_around(0.9, collapsed=3)}), SMOLLM2),
        (YES, YES, NO, YES, YES),
    ),
    "few collapse": (
        evidence(with_cells(NEVER_COLLAPSES, {(1, 512): seeds_around(0.81, 7, 1)}), SMOLLM2),
        (YES, YES, YES, PARTLY, YES),
    ),
    "2 heads short of 1": (
        evidence(with_cells(MPNET, {(2, 512): seeds_around(0.9)}), SMOLLM2),
        (YES, NO, YES, YES, YES),
    ),
    "a third table differs": (
        evidence(MPNET, SMOLLM2, replace(ONE_AS_GOOD, table="gpt2")),
        (NO, NO, PARTLY, NO, YES),
    ),
    "random rows do not count": (
        evidence(MPNET, SMOLLM2, replace(ONE_AS_GOOD, table="gaussian")),
        (YES, YES, YES, YES, YES),
    ),
    "controls do not count": (
        evidence(MPNET, SMOLLM2, replace(ONE_AS_GOOD, control="barred")),
        (YES, YES, YES, YES, YES),
    ),
    "small": (evidence(SMALL), (NONE, NONE, NONE, NONE, NONE)),
    "nothing": (NOTHING, (NONE, NONE, NONE, NONE, NONE)),
}


@pytest.mark.parametrize(("found", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts_follow_the_runs(found, expected):
    assert tuple(judge(found).verdict for judge in JUDGES) == expected


def test_claims_say_their_numbers():
    ahead = "mpnet-base: clearly ahead at 4 of 4 D_K, by +0.15 to +0.536"
    assert _number(block_advantage).startswith(ahead)
    ends = "mpnet-base at D_K = 512: 0.461 with 1, 0.985 with 2, 0.995 with 4 and 0.997 with 8"
    assert ends in _number(block_saturation)
    fallen = "mpnet-base: 5 of 14 one-head runs from D_K = 256 up collapsed"
    assert fallen in _number(block_collapse)
    assert "mpnet-base: 0 of 84 runs with several heads collapsed" in _number(block_stability)
    assert "0.807 (95 %: 0.803 to 0.811) at D_K = 512 in the 4 one-head runs" in _number(
        block_partial
    )
    assert "but on smollm2 (m = 512, d_model = 576)" in block_advantage(evidence(SMALL)).number
    assert block_advantage(NOTHING).number == "no runs for it"
    assert block_advantage(evidence(MPNET)).thin == "1 table where the rule asks for 2"


def test_the_advantage_is_judged_by_the_controls():
    claim = block.capacity(WHOLE)
    assert claim.verdict == "not confirmed"
    assert "mpnet-base with second value path 89 % (3 seeds)" in claim.number
    crossing = Block({(1, 64): (0.94, 0.94), (1, 128): (0.991, 0.991)}, control="barred")
    number = block.capacity(evidence(MPNET, SMOLLM2, crossing)).number
    assert "one head crosses 0.99 between D_K = 64 and 128" in number
    assert "the law of Section 6.1 has 97.3" in number  # 0.966·8·log₂ 6144
    assert block.capacity(NOTHING).verdict == "not measured"


def test_the_papers_numbers_stand_beside_ours():
    found = {row.what: row for row in fig7.compare(evidence(MPNET))}
    partial = found["mpnet-base: accuracy of the one-head runs that do not collapse"]
    assert (partial.paper, partial.overlap) == ("0.81", True)
    assert partial.ours.startswith("0.807 (95 %: 0.803 to 0.811; D_K = 512, 4 runs)")
    assert (
        found["mpnet-base: D_K from which runs with one head collapse"].ours
        == "2 of 7 at 256 and 3 of 7 at 512"
    )
    assert {row.difference for row in found.values() if row is not partial} == {"same"}
    other = {row.what: row.difference for row in fig7.compare(evidence(ONE_AS_GOOD))}
    assert other["mpnet-base: several heads ahead of one"] == "differs"
    assert other["mpnet-base: D_K from which runs with one head collapse"] == "differs"
    assert fig7.compare(evidence(SMALL)) == []


def test_fig7_says_what_it_shows():
    text = fig7.meaning(evidence(MPNET, SMOLLM2))
    assert "one head reaches 0.807 at D_K = 512 (95 %: 0.803 to 0.811) after 0.808 at 256" in text
    assert ", level, its last quarter" in text
    assert "5 of 28 runs that end below 0.05 (2 at 256 and 3 at 512)" in text
    assert "0.985 with 2, 0.995 with 4 and 0.997 with 8 at 512, all near 1" in text
    assert "8 heads at D_K = 64 are too many, as in the paper: 0.62 against 0.76 with 4" in text
    elsewhere = "on smollm2-135m (m = 6,144, d_model = 576) at D_K = 512 "
    assert f"{elsewhere}one head has 0.788 apart from 2 of 3 runs" in text
    best = with_cells(MPNET, {(8, 64): seeds_around(0.9)})
    assert "8 heads at D_K = 64 are the best, 0.9, not too many" in fig7.meaning(evidence(best))
    assert "none of its runs collapses" in fig7.meaning(evidence(NEVER_COLLAPSES))
    nothing = Block({(1, 64): (0.0, 0.01), (2, 64): (0.0, 0.0)})
    assert "all 2 runs with one head end below 0.05" in fig7.meaning(evidence(nothing))


def test_what_the_second_head_gives_follows_from_the_controls():
    text = block.meaning(WHOLE)
    assert "“second value path” closes 89 % (from 80 % to 99 %)" in text
    assert "95 % of its errors answer s at 512" in text
    assert "mainly a way to take s out of the answer" in text
    assert "2 of 3 with rows × 1.35 on mpnet-base (3 of 7 unscaled)" in text
    useless = Block({(1, 512): (0.46, 0.46)}, control="two-values")
    capacity = block.meaning(evidence(replace(MPNET, to_s=0.0), useless))
    assert "is not a way to take s out of the answer" in capacity
    some = Block({(1, 512): (0.75, 0.75)}, control="two-values")
    assert "a part of what the second head gives" in block.meaning(
        evidence(replace(MPNET, to_s=0.0), some)
    )
    even = Block({(1, 64): (0.9, 0.91), (2, 64): (0.91, 0.9)})
    assert "no gap for a control to close" in block.meaning(evidence(even))
