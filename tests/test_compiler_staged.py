"""L-BFGS on all pairs: its loss against autograd, its directions against the textbook's loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.compiler import tiled_pass
from headcount.compiler.layout import Layout
from headcount.compiler.pair_loss import PairLoss
from headcount.compiler.quasi_newton import Memory, minimise
from headcount.compiler.staged_descent import Stages, descend_in_stages, widen_in_stages
from headcount.compiler.trial import start
from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph, random_graph

CPU = torch.device("cpu")


def matrices(loss: PairLoss, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """W_Q and W_K of all heads, each head's key looked up."""
    layout, (rank, width) = loss.layout, loss.matrix
    queries = at[: layout.heads * rank * width].view(layout.heads, rank, width)
    keys = at[layout.heads * rank * width : loss.parameters].view(layout.keys, rank, width)
    return queries, torch.stack(
        [keys[k * layout.keys // layout.heads] for k in range(layout.heads)]
    )


def plain_loss(
    loss: PairLoss, at: torch.Tensor, margin: float, temperature: float, weight: torch.Tensor
) -> torch.Tensor:
    """The loss as its definition reads: all scores at once, in float64, no tiles."""
    problem, items = loss.problem, loss.problem.items
    queries, keys = matrices(loss, at)
    points = problem.points.double()
    scores = (points @ queries) @ (points @ keys).mT
    levels = at[loss.parameters :] if loss.top else at.new_full((items,), problem.level)
    if loss.top:
        levels = levels - levels.mean() + levels.mean().detach()  # the mean is fixed
    edge = torch.zeros(items, items, dtype=torch.bool)
    edge[problem.sources, problem.targets] = True
    costs = (levels[:, None] + margin - scores).clamp_min(0).square()
    soft = temperature or 1.0
    shared = -soft * (-costs / soft).logsumexp(0) if temperature else costs.amin(0)
    excess = (scores - levels[:, None] + margin).clamp_min(0).square().sum(0)
    return (weight * torch.where(edge, shared, excess)).sum()


@settings(max_examples=25, deadline=None)
@given(
    top=st.booleans(),
    soft=st.booleans(),
    shape=st.sampled_from([((3,), None), ((2, 1), None), ((3, 3, 2), None), ((3, 3, 2, 2), 2)]),
    level=st.sampled_from([1.0, -1.0]),
    seed=st.integers(0, 1000),
    tile=st.sampled_from([1, 64, 2**18]),
)
def test_loss_and_slope_are_those_of_the_definition(top, soft, shape, level, seed, tile):
    widths, kv_heads = shape
    graph = random_graph(20, 31, seed=seed)
    problem = WhitenedProblem.of(graph, gaussian_embeddings(20, 6, seed=seed), level, CPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiled_pass._TILE, "cpu", tile)
        patch.setattr(tiled_pass, "_ROWS", 3)
        loss = PairLoss(problem, Layout(widths, top, kv_heads))
    at = loss.start(start(problem, widths, seed))
    if top:
        at[loss.parameters :] += 0.2 * torch.randn(
            20, generator=torch.Generator().manual_seed(seed)
        )
    found = loss.look(at)
    loss.press(found, 1.5)
    loss.press(found, 1.5)
    weight = torch.ones(20, 20, dtype=torch.float64)
    weight.view(-1)[found.above] = 1.5**2
    pairs = problem.sources[found.missed], problem.targets[found.missed]
    weight[pairs] = 1.5**2
    temperature = 0.3 if soft else 0.0
    double = at.double().requires_grad_()
    wanted = plain_loss(loss, double, 0.4, temperature, weight)
    (slope,) = torch.autograd.grad(wanted, double)
    got, got_slope, exact = loss.value_and_slope(at, 0.4, temperature)
    assert exact == (found.gap > 0)
    assert got == pytest.approx(wanted.item(), rel=1e-4)
    torch.testing.assert_close(got_slope.double(), slope, rtol=1e-3, atol=1e-3)


def test_a_look_counts_what_is_wrong_and_finds_the_gap():
    graph = Graph.from_edges(9, [(0, 3), (0, 4), (2, 2), (8, 1)])
    problem = WhitenedProblem.of(graph, gaussian_embeddings(9, 4, seed=2), 1.0, CPU)
    for top in (False, True):
        loss = PairLoss(problem, Layout((2, 1), top))
        at = loss.start(start(problem, (2, 1), 5))
        queries, keys = (problem.points @ part for part in matrices(loss, at))
        scores = queries @ keys.mT
        best = scores.amax(0)
        edge = torch.zeros(9, 9, dtype=torch.bool)
        edge[problem.sources, problem.targets] = True
        found = loss.look(at)
        assert found.wrong == int((best[edge] <= 1).sum() + (best[~edge] > 1).sum())
        low = best.masked_fill(~edge, torch.inf).amin(1)
        high = best.masked_fill(edge, -torch.inf).amax(1)
        gap = (low - high).min() if top else low.min() - high.max()
        assert found.gap == pytest.approx(float(gap), abs=1e-5)
        assert set(found.above.tolist()) == set(
            ((best > 1) & ~edge).flatten().nonzero().flatten().tolist()
        )


def test_directions_are_those_of_the_two_loop_recursion():
    generator = np.random.default_rng(3)
    curvature = np.diag(generator.uniform(0.5, 4.0, 7))
    memory, history = Memory.like(torch.zeros(7, dtype=torch.float64)), []
    for _ in range(13):  # more than are kept
        step = generator.standard_normal(7)
        history.append((step, curvature @ step))
        memory.keep(torch.from_numpy(step), torch.from_numpy(curvature @ step))
    slope = generator.standard_normal(7)
    wanted, parts = slope.copy(), []
    for step, change in reversed(history[-10:]):
        parts.append((step @ wanted) / (step @ change))
        wanted -= parts[-1] * change
    step, change = history[-1]
    wanted *= (step @ change) / (change @ change)
    for (step, change), part in zip(history[-10:], reversed(parts), strict=True):
        wanted += step * (part - (change @ wanted) / (step @ change))
    direction, rate = memory.direction(torch.from_numpy(slope))
    np.testing.assert_allclose(direction.numpy(), -wanted, rtol=1e-8)
    assert rate == pytest.approx(-wanted @ slope)


def test_minimise_reaches_the_minimum_of_a_smooth_function():
    scale = torch.tensor([1.0, 30.0, 400.0], dtype=torch.float64)

    def function(at):
        value = float((scale * (at - 1) ** 2).sum())
        return value, 2 * scale * (at - 1), value < 1e-12

    at = torch.zeros(3, dtype=torch.float64)
    at = minimise(function, at + 5, Memory.like(at), 60, lambda: True)
    torch.testing.assert_close(at, torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-5)


@pytest.mark.parametrize("top", [False, True])
def test_a_descent_is_exact_and_widening_keeps_it_so(top):
    problem = WhitenedProblem.of(
        permutation_graph(48, seed=1), gaussian_embeddings(48, 16, seed=1), 1.0, CPU
    )
    layout = Layout((5, 5), top)
    found = descend_in_stages(problem, layout, 0, Stages())
    assert found.gap > 0
    loss = PairLoss(problem, layout)
    before = loss.look(loss.start(found.weights)).relative_gap
    wide = widen_in_stages(problem, found.weights, layout, lambda: True, 0.9, 6)
    after = loss.look(loss.start(wide))
    assert after.relative_gap > before > 0
    assert after.gap > 0


def test_a_descent_ends_when_told_to():
    problem = WhitenedProblem.of(permutation_graph(32), gaussian_embeddings(32, 4), 1.0, CPU)
    found = descend_in_stages(problem, Layout((1,)), 0, Stages(), lambda steps, best: steps < 7)
    assert found.steps == 7
    assert found.gap < 0


def test_columns_to_spare_shorten_the_way():
    """The margin begins narrower then; not where keys are shared or rows have their own levels."""
    plain = Layout((8, 8))
    assert [Stages.of(plain, 16, spare).widest for spare in (1.0, 1.25, 2.0)] == [0.8, 0.4, 0.2]
    assert Stages.of(Layout((8, 8), top=True), 16, 4.0).widest == 0.8
    assert Stages.of(Layout((8, 8), kv_heads=1), 16, 4.0).widest == 0.3
    graph, table = permutation_graph(128, seed=6), gaussian_embeddings(128, 32, seed=6)
    problem = WhitenedProblem.of(graph, table, 1.0, torch.device("cpu"))
    layout = Layout((20, 20))
    short, long = (
        descend_in_stages(problem, layout, 6, Stages.of(layout, 16, spare)) for spare in (4.0, 1.0)
    )
    assert short.gap > 0
    assert long.gap > 0
    assert short.steps < long.steps / 2
