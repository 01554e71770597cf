"""The planner's formulas in JavaScript against Python's, on random inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount import gaussian_embeddings, permutation_graph, plan
from headcount.constructions.construct import construct
from headcount.constructions.preconditions import PreconditionWarning
from headcount.constructions.template import Signatures, split_sources
from headcount.explorer.contents import theory_constants
from headcount.theory.capacity_law import capacity_ratio, gardner_capacity, items_with_freedom
from headcount.theory.noise import decompose
from headcount.theory.refined_law import width_ratio

from .javascript import run_node


def random_sizes(count: int, seed: int = 0) -> list[dict]:
    """Sizes within and beyond what was measured; a third of the graphs are permutations."""
    rng = np.random.default_rng(seed)
    drawn = []
    for n in range(count):
        items = int(np.exp(rng.uniform(np.log(8), np.log(4096))))
        degree = 1 if n % 3 == 0 else int(rng.integers(1, min(16, items - 1)))
        edges = items * degree if n % 2 else int(rng.integers(items, items * degree + 1))
        d_model = int(np.exp(rng.uniform(np.log(4), np.log(512))))
        heads, key_dim = int(rng.integers(1, 20)), int(rng.integers(1, 40))
        steps = int(rng.choice([20_000, 50_000, 100_000]))
        drawn.append(
            {
                "items": items,
                "edges": edges,
                "dModel": d_model,
                "heads": heads,
                "keyDim": key_dim,
                "steps": steps,
            }
        )
    return drawn


def test_the_planner_says_what_python_says():
    cases = random_sizes(120)
    modules = ["theory/adviser.js", "theory/bounds.js"]
    answers = run_node(
        modules,
        """
        const { constants } = given;
        return given.cases.map(({ items, edges, dModel, steps }) => {
          const adviser = new Adviser(constants, items, edges, dModel);
          const { compiled } = constants.laws;
          return {
            bits: logGraphs(items, edges),
            lower: lowerBounds(constants, items, edges, dModel),
            compiled: Math.ceil(fittedBudget(compiled, items, edges, dModel)),
            fits: paperLaws(constants, items, edges, dModel).map(
              (law) => Math.ceil(fittedBudget(law, items, edges, dModel))),
            built: constructions(constants, items, edges, dModel),
            advised: adviser.advise(steps),
          };
        });
        """,
        {"constants": theory_constants(), "cases": cases},
    )
    advised = 0
    for case, answer in zip(cases, answers, strict=True):
        ours = plan(case["items"], case["edges"], d_model=case["dModel"], steps=case["steps"])
        assert answer["bits"] == pytest.approx(ours.bits, rel=1e-10)
        by_kind = {kind: [row for row in ours.rows if row.kind == kind] for kind in KINDS}
        assert answer["lower"] == [[row.name, row.budget] for row in by_kind["lower bound"]]
        assert [answer["compiled"]] == [row.budget for row in by_kind["compiled"]]
        fits = [row.budget for row in by_kind["trained law"] if row.heads is None]
        assert answer["fits"] == fits
        built = [(row.name, row.heads, row.key_dim) for row in by_kind["construction"]]
        assert [(one["name"], one["heads"], one["keyDim"]) for one in answer["built"]] == built
        theirs, split = answer["advised"], ours.advised.split
        assert (theirs["outside"] is None) == (ours.advised.outside is None)
        assert theirs["oneHeadRatio"] == pytest.approx(ours.advised.one_head_ratio, rel=1e-8)
        if theirs["split"] is None:
            assert split is None
            continue
        assert split is not None
        assert split.chance == pytest.approx(theirs["split"]["chance"], rel=1e-6)
        pairs = zip(
            (split, *ours.advised.others), (theirs["split"], *theirs["others"]), strict=True
        )
        for mine, other in pairs:
            assert (mine.heads, mine.key_dim, mine.steps) == (
                other["heads"],
                other["keyDim"],
                other["steps"],
            )
        advised += 1
    assert advised > 10


KINDS = ("lower bound", "compiled", "trained law", "construction")


def test_the_capacity_law_is_pythons():
    cases = random_sizes(40, seed=1)
    rates = [0.5, 0.3, 1e-5, *np.random.default_rng(2).uniform(1e-4, 0.49, 20).tolist()]
    found = run_node(
        ["theory/capacity.js"],
        """
        return {
          gardner: given.rates.map(gardnerCapacity),
          held: given.cases.map((c) => itemsWithFreedom(c.dModel * c.keyDim)),
          ratios: given.cases.map(({ items, edges, dModel, heads, keyDim }) => [
            capacityRatio(items, edges, dModel, 2 * heads, keyDim, heads),
            widthRatio(items, edges, dModel, heads, keyDim),
          ]),
        };
        """,
        {"cases": cases, "rates": rates},
    )
    assert found["gardner"] == pytest.approx([gardner_capacity(rate) for rate in rates], rel=1e-8)
    for case, (ratio, width), held in zip(cases, found["ratios"], found["held"], strict=True):
        sizes = (case["items"], case["edges"], case["dModel"])
        heads, key_dim = case["heads"], case["keyDim"]
        assert ratio == pytest.approx(capacity_ratio(*sizes, 2 * heads, key_dim, heads), rel=1e-8)
        assert width == pytest.approx(width_ratio(*sizes, heads, key_dim), rel=1e-8)
        assert held == pytest.approx(items_with_freedom(case["dModel"] * key_dim), rel=1e-6)


@pytest.mark.parametrize(("heads", "key_dim", "seed"), [(1, 12, 0), (3, 7, 4)])
def test_signal_and_noise_are_pythons(heads, key_dim, seed):
    items, d_model = 20, 8
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, d_model, seed)
    found = run_node(
        ["theory/noise.js", "engine/problem.js"],
        """
        const { items, dModel, heads, keyDim, seed } = given;
        const rows = gaussianTable(items, dModel, seed);
        const { targets } = permutationGraph(items, seed);
        const signed = signatures(items, keyDim, seed);
        return blocksOf(items, heads).map((block) => {
          const parts = new Decomposition(rows, dModel, targets, signed, keyDim, block);
          const scores = parts.scores(items);
          return Array.from({ length: items * items }, (_, pair) =>
            [...Object.values(parts.of(Math.floor(pair / items), pair % items)), scores[pair]]);
        });
        """,
        {"items": items, "dModel": d_model, "heads": heads, "keyDim": key_dim, "seed": seed},
    )
    signed = Signatures(seed=seed).draw(items, key_dim)
    with pytest.warns(PreconditionWarning):
        built = construct(graph, table, "compressive", heads=heads, key_dim=key_dim, seed=seed)
    scores = built.scores(table.double(), table.double())
    for k, (head, theirs) in enumerate(zip(split_sources(graph, heads), found, strict=True)):
        ours = decompose(table, head.sources, head.targets, signed)
        parts = torch.stack([ours.signal, ours.n1, ours.n2, ours.n3], -1).reshape(-1, 4)
        given = torch.tensor(theirs, dtype=torch.float64)
        assert torch.allclose(given[:, :4], parts, atol=1e-5)
        assert torch.allclose(given[:, :4].sum(1), scores[k].double().flatten(), atol=1e-4)
        assert torch.allclose(given[:, 4], scores[k].double().flatten(), atol=1e-4)
