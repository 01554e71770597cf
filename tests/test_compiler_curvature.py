"""The iterative model: what its sample keeps, what its preconditioner saves, odd shapes."""

from __future__ import annotations

import pytest
import torch

from headcount.compiler import curvature
from headcount.compiler.curvature import Direct, Iterative, Tile, solve_together
from headcount.compiler.descent import start
from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import permutation_graph


def test_a_sample_keeps_every_edge_and_the_total_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "_SAMPLE", {"cpu": 150})
    generator = torch.Generator().manual_seed(0)
    points, active = (
        torch.randn(40, 6, generator=generator),
        torch.rand(2, 40, 40, generator=generator),
    )
    edges = torch.arange(40), torch.randperm(40, generator=generator)
    model = Iterative(points, torch.zeros(2, 40, 3), torch.zeros(2, 40, 3))
    for top in (0, 20):
        rows = slice(top, top + 20)
        model.add(Tile(rows, active[:, rows], active[:, rows], (edges[0][:20], edges[1][rows])))
    for head, pairs in enumerate(model.heads()):
        kept = torch.zeros(40, 40)
        kept[pairs.rows, pairs.columns] = pairs.weight
        assert torch.equal(kept[edges], active[head][edges])
        assert 40 + 100 < len(pairs.rows) <= 40 + 152
        assert float(kept.sum()) == pytest.approx(float(active[head].sum()), rel=0.1)
        assert bool((pairs.rows.diff() >= 0).all())


def gathered(
    kind: type[Direct | Iterative], widths: tuple[int, ...], tilt: float = 1.0
) -> Direct | Iterative:
    """A model of heads whose last columns are `tilt` times as long, with every pair active."""
    problem = WhitenedProblem.of(
        permutation_graph(20), gaussian_embeddings(20, 5), 1.0, torch.device("cpu")
    )
    weights = start(problem, widths, 1, seed=1)
    queries, keys = ((problem.points @ part[0]).clone() for part in (weights.queries, weights.keys))
    for part in (queries, keys):
        part[:, :, -1] *= tilt
    slope, active = (
        torch.randn(len(widths), 20, 20, generator=torch.Generator().manual_seed(1)),
        torch.ones(20, 20),
    )
    model = kind(problem.points, queries, keys)
    model.add(
        Tile(
            slice(0, 20), slope, active.expand_as(slope).clone(), (problem.sources, problem.targets)
        )
    )
    return model


def rounds(monkeypatch: pytest.MonkeyPatch) -> int:
    """Conjugate gradients until the residual is small."""
    counted: list[None] = []
    real = curvature._Pairs.apply
    with monkeypatch.context() as patch:
        patch.setattr(
            curvature._Pairs,
            "apply",
            lambda self, *change: (counted.append(None), real(self, *change))[1],
        )
        model = gathered(Iterative, (4,), tilt=0.03)
        assert isinstance(model, Iterative)
        solve_together(model.points, [model], torch.tensor([1e-4]))
    return len(counted)


def test_the_preconditioner_saves_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    helped = rounds(monkeypatch)
    monkeypatch.setattr(
        torch.linalg, "inv", lambda matrix: torch.eye(matrix.shape[-1]).expand_as(matrix)
    )
    assert 0 < helped < rounds(monkeypatch)


def test_uneven_widths_are_solved_as_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "_ROUNDS", 500)
    monkeypatch.setattr(curvature, "_CLOSE", 1e-6)
    direct, iterative, damping = (
        gathered(Direct, (3, 1)),
        gathered(Iterative, (3, 1)),
        torch.full((2,), 0.1),
    )
    assert isinstance(direct, Direct)
    assert isinstance(iterative, Iterative)
    step = solve_together(iterative.points, [iterative], damping)
    torch.testing.assert_close(step, direct.step(damping), rtol=1e-3, atol=1e-4)
    assert not step.view(2, 2, 5, 3)[1, :, :, 1:].any()


def test_a_head_without_active_pairs_stays() -> None:
    model, both = gathered(Iterative, (2, 2)), torch.full((2,), 0.1)
    idle = Iterative(model.points, model.queries, model.keys)
    slope, active = (
        torch.randn(2, 20, 20, generator=torch.Generator().manual_seed(2)),
        torch.ones(2, 20, 20),
    )
    slope[1] = active[1] = 0
    idle.add(Tile(slice(0, 20), slope, active, (torch.arange(20), torch.arange(20))))
    alone = Iterative(model.points, model.queries[:1], model.keys[:1])
    alone.add(Tile(slice(0, 20), slope[:1], active[:1], (torch.arange(20), torch.arange(20))))
    step = solve_together(model.points, [idle], both)
    torch.testing.assert_close(step[:1], solve_together(model.points, [alone], both[:1]))
    assert not step[1].any()
