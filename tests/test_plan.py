"""Trained laws and the plans made of all bounds and laws."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.theory.capacity import capacity
from headcount.theory.counting import family_of
from headcount.theory.laws import (
    BUDGET,
    BUDGET_REGULAR,
    BUDGET_WIDE,
    COMPILED,
    TrainedLaw,
)
from headcount.theory.planner import plan

GRID = [(m, d) for m in (64, 128, 256, 512) for d in (16, 32, 64)]
GRID += [(128, 16), (1024, 128), (2048, 256), (4096, 512), (1024, 32)]
quick = settings(deadline=None, max_examples=50)


def test_laws_of_the_paper():
    assert BUDGET(256, 256, 32) == pytest.approx(1.19 * 256 * 8 / 32)
    assert BUDGET_WIDE(4096, 4096, 512) == pytest.approx(0.966 * 8 * 12)
    # Eqs. (31)–(32): log₂ 128 = 7.
    assert BUDGET_REGULAR(128, 8 * 128, 32) == pytest.approx(0.46 * 32 * 7)
    assert BUDGET(4, 2, 64) == 1  # clipped


def test_a_law_with_an_interval_replaces_the_papers():
    own = TrainedLaw(
        name="own",
        quantity="budget",
        form="edges·log2(items)/d_model",
        slope=1.0,
        source="ours",
        interval=(0.8, 1.3),
    )
    rows = [row for row in plan(256, d_model=32, law=own).rows if row.kind == "trained law"]
    row, value = rows[-1], 256 * 8 / 32
    assert [row.name for row in rows if not row.name.endswith("steps")] == ["own"]
    assert row.interval == pytest.approx((0.8 * value, 1.3 * value))
    assert BUDGET.interval_at(256, 256, 32) is None


@pytest.mark.parametrize(("items", "d_model"), GRID)
@pytest.mark.parametrize("variant", ["max", "softmax"])
def test_bounds_enclose_the_trained_law_on_the_papers_grid(items, d_model, variant):
    answer = plan(items, d_model=d_model, variant=variant)
    lower, trained, built = (
        answer.row(kind) for kind in ("lower bound", "trained law", "construction")
    )
    assert lower is not None
    assert trained is not None
    assert built is not None
    assert lower.budget <= trained.budget <= built.budget
    assert answer.bits == pytest.approx(math.lgamma(items + 1) / math.log(2))


def test_plan_by_hand():
    answer = plan(items=256, edges=256, d_model=32)
    row, split = answer.row("trained law"), answer.advised.split
    assert row is not None
    assert split is not None
    assert (row.heads, row.key_dim, row.budget) == (split.heads, split.key_dim, split.budget)
    assert row.parameters == 2 * 32 * row.budget + 1
    assert row.flops_per_token == 4 * 32 * row.budget
    assert row.bytes == 4 * row.parameters
    assert row.bits_per_parameter == pytest.approx(answer.bits / (2 * 32 * row.budget))
    assert answer.advice.startswith(answer.advised.text)
    assert "The margin rules out D_K < 6; compiled weights need about" in answer.advice
    assert answer.in_range


def test_the_advised_rows_trade_width_for_steps():
    rows = [row for row in plan(256, d_model=32).rows if row.name.endswith("steps")]
    budgets = {row.name: row.budget for row in rows}
    assert budgets["20,000 steps"] > budgets["50,000 steps"] > budgets["100,000 steps"]


def test_outside_the_measured_range_there_is_no_split():
    for sizes in ({"items": 10, "d_model": 512}, {"items": 4096, "d_model": 512}):
        answer = plan(**sizes)
        assert answer.advice.startswith("Outside the measured range (")
        assert not answer.in_range
        assert answer.advised.split is None
        trained = [row for row in answer.rows if row.kind == "trained law"]
        assert {row.heads for row in trained} == {None}


def test_wide_tables_need_one_head():
    built = plan(256, d_model=256).row("construction")
    assert built is not None
    assert (built.heads, built.name) == (1, "one-hot")


def test_hubs_drive_the_heads():
    built = plan(1000, 5000, d_model=64, max_degree=400).row("construction")
    assert built is not None
    assert built.heads == 400
    assert "Eq. (33), Δ ≤ m'/d_model, fails" in built.reason
    even = plan(1000, 5000, d_model=64, max_degree=5).row("construction")
    assert even is not None
    assert even.heads == math.ceil(5000 / 64)
    assert "Eq. (33), Δ ≤ m'/d_model, holds" in even.reason


def test_partial_permutations_are_counted_as_such():
    answer = plan(1000, 999, d_model=64, max_degree=1)
    whole = plan(1000, d_model=64)
    assert (answer.family, answer.max_degree) == ("bounded", 1)
    assert whole.bits < answer.bits < whole.bits + math.log2(1000)


def test_the_papers_other_fits_stand_beside_the_law():
    def trained(answer):
        return [(row.name, row.budget) for row in answer.rows if row.kind == "trained law"]

    assert trained(plan(4096, d_model=512))[1] == ("wide", 93)  # 0.966·8·12 = 92.7
    name, budget = trained(plan(128, 8 * 128, d_model=32))[-1]
    assert (name, budget) == ("regular", math.ceil(0.46 * 32 * 7))  # Eqs. (31)–(32)
    names = [name for name, _ in trained(plan(128, d_model=16))]
    assert names[-1] == "permutations"  # left out of the second fit


def test_a_context_costs_its_projections_and_logits():
    row = plan(256, d_model=32, context_length=16).row("trained law")
    assert row is not None
    assert row.context_flops == 16 * 4 * 32 * row.budget + 16**2 * 2 * row.budget  # Appendix C
    bare = plan(256, d_model=32).row("trained law")
    assert bare is not None
    assert bare.context_flops is None


def test_the_compiled_law_stands_between_the_bounds_and_the_trained_laws():
    answer = plan(256, d_model=32)
    kinds = [row.kind for row in answer.rows]
    assert kinds == [*["lower bound"] * 3, "compiled", *["trained law"] * 5, *["construction"] * 2]
    row = answer.row("compiled")
    assert row is not None
    assert (row.name, row.heads, row.budget) == (
        "compiled law",
        None,
        math.ceil(COMPILED(256, 256, 32)),
    )
    assert row.interval == COMPILED.interval_at(256, 256, 32)
    assert "headcount compile" in row.reason
    assert f"; compiled weights need about {row.budget};" in answer.advice
    assert "fitted to permutations" in str(plan(128, 512, d_model=32).row("compiled"))
    assert "compiled weights" not in plan(128, 512, d_model=32).advice
    assert plan(256, d_model=32, variant="softmax").row("compiled") is None


def test_softmax_beyond_permutations_has_no_construction():
    answer = plan(256, 512, d_model=32, variant="softmax")
    assert answer.row("construction") is None
    assert "no softmax construction" in answer.advice


def test_families():
    assert family_of(64, 64) == "permutation"
    assert family_of(64, 64, 3) == "bounded"
    assert family_of(64, 63, 1) == "bounded"
    assert family_of(64, 99, 63) == family_of(64, 5, 5) == "graph"  # degrees that exclude no graph
    assert family_of(64, 192, 3) == "regular"


@quick
@given(items=st.integers(3, 5000), d_model=st.integers(1, 1000), degree=st.integers(1, 8))
def test_plans_are_consistent(items, d_model, degree):
    edges = min(degree, items - 1) * items
    answer = plan(items, edges, d_model=d_model)
    wider = plan(items, edges, d_model=d_model + 1)
    for row in answer.rows:
        if row.heads and row.key_dim:
            assert row.budget == row.heads * row.key_dim
        assert row.budget >= 1
        assert row.parameters == 2 * d_model * row.budget + 1
    floors, wider_floors = (
        [row for row in p.rows if row.kind == "lower bound"] for p in (answer, wider)
    )
    for row, other in zip(floors, wider_floors, strict=True):
        assert other.budget <= row.budget


def test_ten_million_items_are_planned_quickly():
    start = time.process_time()
    answer = plan(10**7, 10**8, d_model=4096)
    assert all(math.isfinite(row.bits_per_parameter) for row in answer.rows)
    assert len(capacity(4096, 32, 128, items=10**7)) == 4
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"items": 1}, "items = 1"),
        ({"d_model": 0}, "d_model = 0"),
        ({"edges": 4, "max_degree": 9}, "max_degree = 9"),
        ({"edges": 24, "max_degree": 2}, "must be between 3 and 8"),
        ({"context_length": 0}, "context_length = 0"),
    ],
)
def test_plans_refuse(arguments, words):
    with pytest.raises(InputError, match=words):
        plan(**{"items": 8, "d_model": 4} | arguments)
