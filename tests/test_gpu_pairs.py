"""The kernels over all pairs on a CUDA device; elsewhere test_pair_kernels.py interprets them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headcount.attention.sieve import Sieve
from headcount.attention.tiles import Projections
from headcount.attention.verification import verify
from headcount.compiler.compile import compile
from headcount.compiler.fused_pass import FusedPass
from headcount.compiler.layout import Layout
from headcount.compiler.tiled_pass import TiledPass
from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import permutation_graph, random_graph

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_device(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).cuda()


def test_violations_are_those_of_plain_torch_and_the_same_every_time():
    for items, heads, width in ((3000, 5, 23), (2049, 2, 64), (1500, 3, 100)):
        graph = random_graph(items, 3 * items, seed=1)
        table = gaussian_embeddings(items, 8, seed=1)
        problem = WhitenedProblem.of(graph, table, 1.0, torch.device("cuda"))
        layout = Layout((width,) * heads)
        queries, keys = on_device(2, heads, items, width) / width**0.25
        added = -0.6 + 0.1 * on_device(items, seed=1)
        pull = on_device(heads, graph.edges, seed=2).abs()
        plain = TiledPass(problem, layout).violations(queries, keys, added, pull)
        one, two = (
            FusedPass(problem, layout).violations(queries, keys, added, pull) for _ in range(2)
        )
        assert abs(float(one.loss / plain.loss) - 1) < 1e-3
        for name in ("query_slopes", "key_slopes", "peaks"):
            expected, found = getattr(plain, name), getattr(one, name)
            assert float((found - expected).abs().max() / expected.abs().max()) < 2e-3, name
            assert torch.equal(found, getattr(two, name)), name


def test_tensor_cores_stay_within_the_bound():
    """Rows' highest scores in half precision against float64, for vectors that cancel and grow."""
    for seed, width in enumerate((16, 64, 200)):
        queries, keys = on_device(2, 1, 4000, width, seed=seed).double()
        sizes = torch.logspace(-2, 2, width, dtype=torch.float64, device="cuda")
        queries, keys = queries * sizes, keys / sizes.flip(0)
        sieve = Sieve.of(Projections(list(queries), list(keys)), permutation_graph(4000, seed=1))
        peaks, _, _ = sieve.sift(torch.full((4000,), torch.inf, device="cuda"), listed=False)
        scores = (queries @ keys.mT)[0]
        graph = permutation_graph(4000, seed=1)
        scores[
            torch.from_numpy(graph.sources.copy()), torch.from_numpy(graph.targets.copy())
        ] = -torch.inf
        error = float((peaks.double() - scores.amax(1)).abs().max())
        assert 0 < error <= sieve.error


def test_weights_compiled_on_the_device_are_exact_on_the_cpu():
    graph, table = permutation_graph(8000, seed=4), gaussian_embeddings(8000, 512, seed=4)
    found = compile(graph, table, budget=120, seed=4, device="cuda")
    sieved = verify(found.weights, graph, table, device="cuda")
    plain = verify(found.weights, graph, table, device="cpu", precision="float64")
    assert sieved.checked_in == "half precision, open pairs in float64"
    assert sieved.exact
    assert plain.exact
    assert abs(sieved.margin - plain.margin) < 1e-9
    worse = replace(found.weights, queries=found.weights.queries * 1.1)
    counts = [
        (check.false_positives, check.false_negatives)
        for check in (verify(worse, graph, table, device=device) for device in ("cuda", "cpu"))
    ]
    assert counts[0] == counts[1] != (0, 0)
