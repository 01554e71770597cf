"""The paper as data: grids, steps and numbers."""

from __future__ import annotations

from itertools import pairwise, product
from math import log, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.analysis.fits import fit_line
from headcount.errors import InputError
from headcount.paper import data as paper
from headcount.theory.laws import BUDGET, BUDGET_REGULAR, BUDGET_WIDE
from headcount.training.spec import RunSpec

BASE = [(m, d) for m in (64, 128, 256, 512) for d in (16, 32, 64)]
DIAGONAL = [(128, 16), (256, 32), (512, 64), (1024, 128), (2048, 256), (4096, 512)]


# Grids


def test_the_grids_and_their_points():
    assert paper.grids() == ("base", "diagonal", "extreme", "regular", "softmax", "value", "linear")
    assert sorted(paper.grid("base").points) == BASE
    assert list(paper.grid("diagonal").points) == DIAGONAL
    assert paper.grid("extreme").points == ((512, 16), (1024, 32))
    assert paper.grid("regular").points == ((128, 32),)
    assert paper.grid("regular").degrees == (1, 2, 4, 8, 16, 32)
    assert (64, 32) in paper.grid("softmax").points
    assert set(paper.grid("value").points) == {(64, 16), (64, 32)}


def test_the_grids_agree_with_the_numbers():
    value = {name: paper.number(name).value for name in (item.id for item in paper.numbers())}
    base = paper.grid("base")
    assert base.heads == value["base.heads"]
    assert set(base.points) == set(product(value["base.items"], value["base.d-model"]))
    assert {part.seeds for part in base.parts} == {value["base.seeds"]}
    assert paper.grid("diagonal").points == value["diagonal.points"]
    assert paper.grid("diagonal").parts[-1].seeds == value["diagonal.seeds"]
    assert paper.grid("extreme").points == value["extreme.points"]
    assert paper.grid("regular").points == (value["regular.point"],)
    assert set(value["regular.degrees"]) < set(paper.grid("regular").degrees)
    assert {part.seeds for part in paper.grid("softmax").parts} == {value["softmax.runs"]}
    assert {part.seeds for part in paper.grid("value").parts} == {value["value.runs"]}


@pytest.mark.parametrize("name", paper.grids())
def test_runs_are_distinct_and_of_their_grid(name):
    grid, specs = paper.grid(name), paper.runs(name)
    assert len(set(specs)) == len(specs)
    assert len(specs) == sum(
        part.seeds * len(paper.budgets_for(m, d, h, degree=r, span=part.span, guide=grid.guide))
        for part in grid.parts
        for (m, d), r, h in product(part.pairs, grid.degrees, grid.heads)
    )
    assert {spec.variant for spec in specs} == {grid.variant}
    assert {(spec.items, spec.d_model, spec.degree, spec.heads) for spec in specs} == {
        (*point, r, h) for point, r, h in product(grid.points, grid.degrees, grid.heads)
    }
    assert all(
        spec.steps == paper.step_cutoff(spec.items, spec.d_model, grid.variant) for spec in specs
    )


def test_runs_that_two_grids_share_are_equal():
    base, diagonal, extreme = (set(paper.runs(name)) for name in ("base", "diagonal", "extreme"))
    at = {(128, 16), (256, 32), (512, 64)}
    assert base & diagonal == {spec for spec in base if (spec.items, spec.d_model) in at}
    assert base & extreme == {spec for spec in base if (spec.items, spec.d_model) == (512, 16)}


def test_runs_are_made_one_by_one():
    first = next(paper.grid("base").expand())
    assert first == RunSpec(64, 16, 1, 5, 0, steps=20_000)


def test_every_seed_stands_in_every_configuration():
    specs = [
        spec
        for spec in paper.runs("diagonal")
        if (spec.items, spec.heads, spec.key_dim) == (4096, 8, 10)
    ]
    assert [spec.seed for spec in specs] == [0, 1, 2]


def test_the_protocol_of_the_runs_is_the_papers():
    spec = paper.runs("base")[0]
    for field in ("length", "rate", "sharpness", "validation", "test", "patience", "target"):
        assert getattr(spec, field) == paper.number(f"protocol.{field}").value
    assert spec.learning_rate == paper.number("protocol.learning-rate").value
    assert spec.check_every == paper.number("protocol.check-every").value


def test_the_budgets_bracket_the_known_thresholds():
    # D_K* with Table 1's d_k and the head counts seen in training.
    for (items, d_model), heads, key_dim in [
        ((64, 16), 4, 5),
        ((128, 64), 1, 7),
        ((512, 64), 4, 14),
        ((256, 32), 4, 16),
    ]:
        grid = next(part for part in paper.grid("base").parts if (items, d_model) in part.pairs)
        budgets = paper.budgets_for(items, d_model, heads, span=grid.span)
        assert budgets[0] < heads * key_dim < budgets[-1]
        step = heads * (paper.next_key_dim(key_dim) - key_dim)
        assert min(abs(budget - heads * key_dim) for budget in budgets) <= step


# The rule of the budgets


@given(
    st.sampled_from(BASE + DIAGONAL),
    st.integers(1, 64),
    st.integers(1, 16),
    st.floats(0.1, 1),
    st.floats(1, 4),
    st.sampled_from(["permutations", "regular"]),
)
@settings(max_examples=60, deadline=None)
def test_budgets_cover_their_span_in_small_steps(point, heads, degree, low, high, guide):
    items, d_model = point
    budgets = paper.budgets_for(items, d_model, heads, degree=degree, span=(low, high), guide=guide)
    law = {"permutations": BUDGET, "regular": BUDGET_REGULAR}[guide](items, degree * items, d_model)
    law *= log(2) if guide == "permutations" else 1  # the guide of permutations
    assert budgets[-1] >= high * law
    assert budgets[0] == heads or budgets[0] <= low * law
    assert all(budget % heads == 0 for budget in budgets)
    for one, other in pairwise(budgets):
        assert heads <= other - one <= max(heads, 0.1 * one)
        assert one < high * law  # only the last may pass the upper end


def test_wrong_budgets_are_refused():
    with pytest.raises(InputError, match="do not fit"):
        paper.budgets_for(64, 16, 0)
    with pytest.raises(InputError, match="do not fit"):
        paper.budgets_for(64, 16, 1, span=(2.0, 1.0))


# Tables


def test_table_1():
    table = paper.table_1().pivot(index="items", columns="d_model", values="key_dim")
    assert table.to_numpy().tolist() == [[5, 6, 5], [11, 21, 7], [6, 16, 24], [7, 9, 14]]
    assert (table.min().min(), table.max().max()) == paper.number("key-dim.range").value
    assert np.median(table) == 8  # the text says 11
    assert paper.number("key-dim.median").value == 11
    assert "is 8" in paper.number("key-dim.median").note


def test_table_2():
    cutoffs = {
        (row.items, row.d_model): row.steps for row in paper.table_2().itertuples(index=False)
    }
    raised = {
        (256, 16): 30_000,
        (512, 16): 80_000,
        (1024, 128): 80_000,
        (2048, 256): 80_000,
        (4096, 512): 200_000,
    }
    assert cutoffs == dict.fromkeys(BASE, 20_000) | raised
    recorded = {
        tuple(dict(item.at).values()): item.value
        for item in paper.numbers()
        if item.id[:8] == "table-2."
    }
    recorded.pop(())  # the default
    assert recorded == cutoffs
    for (items, d_model), steps in cutoffs.items():
        assert paper.step_cutoff(items, d_model) == steps
        assert paper.step_cutoff(items, d_model, "softmax") == max(steps, 80_000)
    assert paper.step_cutoff(1024, 32) == 80_000  # ours
    assert paper.step_cutoff(96, 24) == paper.number("table-2.default").value == 20_000


@pytest.mark.parametrize(("logarithm", "least", "most"), [(log2, 0.98, 1), (log, 0, 0.61)])
def test_table_1_fits_the_papers_second_line_only_with_logarithms_to_base_2(logarithm, least, most):
    """Every swept head count that puts D_K* = h·d_k within 0.2 … 4 of m log m/d is tried."""
    table = [
        row
        for row in paper.table_1().itertuples(index=False)
        if row.d_model > 16 or row.items == 64
    ]
    x = np.array([row.items * logarithm(row.items) / row.d_model for row in table])
    choices = [
        [row.key_dim * h for h in paper.grid("base").heads if 0.2 <= row.key_dim * h / at <= 4]
        for row, at in zip(table, x, strict=True)
    ]
    budgets = np.array(list(product(*choices)), dtype=float)
    slopes = budgets @ x / (x @ x)
    close = budgets[abs(slopes - paper.number("law.wide.slope").value) <= 0.02]
    assert len(close) > 10
    assert least < max(fit_line(x, y, intercept=False).r_squared for y in close) < most


# Numbers


def test_numbers_are_complete_records():
    found = paper.numbers()
    assert len({item.id for item in found}) == len(found) == 128
    for item in found:
        assert item.kind in ("setting", "result", "claim")
        assert item.what
        assert item.quote
        assert item.place.startswith(("Section", "Appendix", "Fig.", "Table"))
        assert (item.value is True) == (item.kind == "claim")
    for kind in ("setting", "result", "claim"):
        assert any(item.kind == kind for item in found)


def test_plain_numbers_stand_in_their_quotes():
    """A number that is no word, no formula and no list is written in its own quote."""
    words = {
        "protocol.patience",
        "protocol.contexts-a-step",
        "law.wide.excluded",
    }  # five, one, three
    formulas = {
        "protocol.positive-weight",
        "block.sampled-items",
        "block.tokens",
    }  # ℓ − 1, 2ℓ − 1, ℓ + 2
    other = {
        "protocol.learning-rate",
        "block.corpus-tokens",
        "intervals.confidence",
        "intervals.pool",
    }  # 10^-3, 95 %
    for item in paper.numbers():
        if (
            isinstance(item.value, int | float)
            and item.kind != "claim"
            and item.id not in words | formulas | other
        ):
            texts = (str(item.value), f"{item.value:,}", str(item.value).replace("-", "- "))
            assert any(text in item.quote for text in texts), item


def test_the_laws_of_the_planner_are_the_papers():
    value = {item.id: item.value for item in paper.numbers()}
    assert (BUDGET.slope, BUDGET.r_squared) == (value["law.budget.slope"], value["law.budget.r2"])
    assert (BUDGET_WIDE.slope, BUDGET_WIDE.r_squared) == (
        value["law.wide.slope"],
        value["law.wide.r2"],
    )
    assert BUDGET_REGULAR.slope == value["law.regular.slope"]
    heads = [value[f"law.heads.{name}"] for name in ("slope", "intercept", "r2")]
    assert heads == [1.65, -6.64, 0.824]  # Section 6.1; no law of ours is made of these


def test_numbers_and_grids_are_found_by_name():
    assert paper.number("law.heads.intercept").value == -6.64
    assert dict(paper.number("fig-11.plateau.4").at) == {"items": 128, "d_model": 32, "degree": 4}
    with pytest.raises(InputError, match=r"did you mean 'law.budget.slope'"):
        paper.number("law.budget.slop")
    with pytest.raises(InputError, match="did you mean 'diagonal'"):
        paper.grid("diagonals")
