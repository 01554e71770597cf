"""Definition B.4 against all subsets, and the conditions of Theorem B.5."""

from __future__ import annotations

import json
from itertools import combinations, product
from math import inf, log, nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import InputError, gaussian_embeddings, save_embeddings
from headcount.theory.incoherence import balanced_scale, cross_leakage, incoherence, largest_block
from headcount.theory.noise import leakage


@st.composite
def tables(draw, max_items=6):
    """Rows of any norm, or nearly orthogonal ones; never all zero."""
    items = draw(st.integers(1, max_items))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.standard_normal((items, draw(st.integers(1, 4))))
    if draw(st.booleans()):
        rows = np.hstack([np.eye(items), rows * draw(st.floats(0.01, 0.3))])
    return torch.from_numpy(rows)


def _by_definition(
    table: torch.Tensor, block: int, scale: float
) -> tuple[float, float, float, float]:
    """ε_d, ρ, γ and γ over i ≠ j from every S with |S| ≤ B."""
    items = len(table)
    delta = (table @ table.T / scale - torch.eye(items, dtype=torch.float64)).numpy()
    subsets = [list(s) for size in range(block + 1) for s in combinations(range(items), size)]
    rho = max((delta[i, s] ** 2).sum() for i in range(items) for s in subsets if i not in s)
    pairs = {
        (i, j): max(abs((delta[i, s] * delta[j, s]).sum()) for s in subsets)
        for i, j in product(range(items), repeat=2)
    }
    distinct = max((value for (i, j), value in pairs.items() if i != j), default=0.0)
    return np.abs(np.diag(delta)).max(), rho, max(pairs.values()), distinct


@settings(deadline=None, max_examples=60)
@given(tables(), st.integers(1, 6), st.one_of(st.none(), st.floats(0.3, 3)))
def test_against_every_subset(table, block, scale):
    block = min(block, len(table))
    found = incoherence(table, block, scale)
    epsilon, rho, gamma, distinct = _by_definition(table, block, found.scale)
    assert found.exact
    assert (found.diagonal, found.leakage) == pytest.approx((epsilon, rho), abs=1e-12)
    assert (found.cross_leakage, found.distinct[0]) == pytest.approx((gamma, distinct), abs=1e-12)
    assert rho - 1e-12 <= gamma <= rho + epsilon**2 + 1e-12
    bracket = incoherence(table, block, scale, work=0).distinct
    assert bracket[0] - 1e-12 <= distinct <= bracket[1] + 1e-12


def test_by_hand():
    """⟨x_0, x_1⟩ = 0.6, ⟨x_1, x_2⟩ = 0.8, ⟨x_0, x_2⟩ = 0, unit norms."""
    table = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
    one, two = incoherence(table, 1), incoherence(table, 2)
    assert (one.diagonal, one.leakage, one.cross_leakage) == pytest.approx((0, 0.64, 0.64))
    assert (two.leakage, two.cross_leakage) == pytest.approx((1, 1))
    # Rows 0 and 2 share item 1: 0.6·0.8. Rows 0 and 1: δ = (0, 0.6, 0) and (0.6, 0, 0.8) share none.
    assert one.distinct == pytest.approx((0.48, 0.48))
    assert cross_leakage(table, np.array([0]), np.array([1]), 2).tolist() == [0.0]
    assert two.margin == pytest.approx(0.5 - 2)


@settings(deadline=None, max_examples=40)
@given(tables(), st.floats(0.05, 5))
def test_the_balanced_scale_has_the_smallest_diagonal_deviation(table, other):
    scale = balanced_scale(table)
    assert incoherence(table, 1).diagonal <= incoherence(table, 1, scale * other).diagonal + 1e-12


@settings(deadline=None, max_examples=80)
@given(tables(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_margin_bounds_every_permutation_and_partition(table, block, random):
    """Scores over d_k as d_k → ∞: L_ij = Σ_{s ∈ V_k} u_i(s) u_j(π(s)), heads of at most B sources."""
    items = len(table)
    block = min(block, items)
    found = incoherence(table, block)
    pi, order = (
        np.array(random.sample(range(items), items)),
        np.array(random.sample(range(items), items)),
    )
    u = (leakage(table, scale=found.scale) + torch.eye(items)).numpy()
    best = np.full((items, items), -np.inf)
    for top in range(0, items, block):
        sources = order[top : top + block]
        best = np.maximum(best, u[:, sources] @ u[:, pi[sources]].T)
    edge = np.zeros((items, items), dtype=bool)
    edge[np.arange(items), pi] = True
    reached = min((best[edge] - 0.5).min(), (0.5 - best[~edge]).min(initial=np.inf))
    assert reached >= found.margin - 1e-9


@settings(deadline=None, max_examples=40)
@given(tables(), st.floats(0.01, 2), st.floats(0.05, 3), st.floats(0.05, 3))
def test_the_largest_block_is_the_last_that_fits(table, c_diagonal, c_leakage, c_cross):
    items = len(table)
    growth = log(items) if items > 1 else 0.0

    def fits(block):
        found = incoherence(table, block)
        return (
            found.diagonal <= c_diagonal
            and found.leakage * growth <= c_leakage
            and found.cross_leakage * growth <= c_cross
        )

    expected = max((block for block in range(1, items + 1) if fits(block)), default=0)
    assert largest_block(table, c_diagonal, c_leakage, c_cross) == expected


def test_the_largest_block_beyond_the_first_pass():
    """140 items with 0.01 in common: ρ(B) = B·10⁻⁴, until 139 others are used up."""
    table = torch.linalg.cholesky(torch.eye(140, dtype=torch.float64) * 0.99 + 0.01)
    for block in (70, 100, 138):
        constant = (block + 0.5) * 1e-4 * log(140)
        assert largest_block(table, c_leakage=constant, c_cross=constant) == block
    assert largest_block(table, c_leakage=1, c_cross=1) == 140


def test_default_constants_prove_the_theorem_from_635_items():
    """With ε_d = c₁ and ρ = c₂/ln m the margin is positive at m = 635 and not at 634."""
    found = incoherence(torch.eye(2), 1)
    margins = [
        type(found)(1.0, 1, 0.1, 1 / 3 / log(items), 0.0, (0.0, 0.0)).margin
        for items in (634, 635, 10**6)
    ]
    assert margins[0] < 0 < margins[1] < margins[2]


def test_gaussian_tables_leak_more_than_corollary_b6_says():
    """ρ ≲ B/d_model holds for one fixed S; the definition takes the worst, a factor 2 ln(m/B) above."""
    items, d_model = 1024, 128
    table = gaussian_embeddings(items, d_model)
    found = {block: incoherence(table, block, work=10**6).leakage for block in (1, 16, d_model)}
    assert found[1] > 10 / d_model
    assert found[16] > 7 * 16 / d_model
    assert found[d_model] > 4
    assert largest_block(table) == 0


def test_impossible_blocks_and_tables_are_refused():
    for block in (0, 3):
        with pytest.raises(InputError, match="choose 1…2"):
            incoherence(torch.eye(2), block)
    with pytest.raises(InputError, match="zero"):
        largest_block(torch.zeros(2, 2))
    for scale in (-1.0, inf, nan):
        with pytest.raises(InputError, match="positive"):
            incoherence(torch.eye(2), 1, scale)
    for name, value in product(("c_diagonal", "c_leakage", "c_cross"), (-1.0, inf, nan)):
        with pytest.raises(InputError, match=name):
            largest_block(torch.eye(2), **{name: value})


def test_the_command(command, tmp_path):
    save_embeddings(torch.eye(8), tmp_path / "t.npy")
    found = json.loads(command("incoherence", "t.npy", "--block", "3", "--json")[1])
    assert (found["leakage"], found["cross_leakage"], found["distinct"]) == (0, 0, [0, 0])
    assert (found["margin"], found["largest_block"]) == (0.5, 8)
    save_embeddings(torch.ones(8, 2), tmp_path / "t.npy")
    assert "no block size" in command("incoherence", "t.npy")[1]
    for option, value in product(
        ("--scale", "--c-diagonal", "--c-leakage", "--c-cross"), ("0", "inf", "nan")
    ):
        code, _, err = command("incoherence", "t.npy", option, value)
        assert code == 2
        assert f"{option} {float(value)}" in err
