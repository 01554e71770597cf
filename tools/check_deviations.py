"""Check the items of docs/deviations.md that no command and no test measures.

    python tools/check_deviations.py        # list them
    python tools/check_deviations.py 3 6    # check these

Each check prints the numbers that the item states. Sizes are arguments, so that tests can run the
checks on smaller ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import ceil, log, sqrt

import numpy as np
import torch

import headcount as hc
from headcount.constructions.methods import general_embedding
from headcount.constructions.template import Signatures


def learned_tables(items: int = 256, constant: int = 12, graphs: int = 5) -> Iterator[str]:
    """3: with x_i = (w_i, w_π(i)) one fixed head of width C log m recognises every π."""
    width = ceil(constant * log(items))
    signs = Signatures().draw(items, width)
    zero, same = torch.zeros(width, width), torch.eye(width)
    head = hc.KeyQuery(
        torch.cat([zero, same])[None], torch.cat([same, zero])[None], threshold=width / 2
    )
    for seed in range(graphs):
        graph = hc.permutation_graph(items, seed=seed)
        table = torch.cat([signs, signs[torch.from_numpy(graph.targets.copy())]], dim=1)
        yield f"π of seed {seed}, one head of width {width}: {_answer(head, graph, table)}"


def fixed_points(items: int = 1024, d_model: int = 512, key_dim: int = 2048) -> Iterator[str]:
    """6: the identity with 0 and 1 swapped, by Algorithm 1; then a random π on the same table."""
    swapped = np.arange(items)
    swapped[:2] = 1, 0
    identity = hc.Graph.from_edges(items, list(enumerate(swapped.tolist())))
    for seed in (1, 2, 3):
        table = hc.gaussian_embeddings(items, d_model, seed=seed)
        for name, graph in (("swapped", identity), ("random", hc.permutation_graph(items, seed))):
            weights = hc.construct(graph, table, "compressive", key_dim=key_dim, seed=seed)
            diagonal = ""
            if name == "swapped":
                scores = weights.scores(table[:2], table[:2]).amax(0).diagonal() / key_dim
                diagonal = f"; (0, 0) and (1, 1) score {scores[0]:.2f} and {scores[1]:.2f} d_k"
            yield f"seed {seed}, {name} π: {_answer(weights, graph, table)}{diagonal}"


def bernoulli_signatures(items: int = 2048, key_dim: int = 1024) -> Iterator[str]:
    """11: X = [√(1−a)·I, √a·1] with ρ = 1/(30 ln m): Bernoulli against Rademacher signatures."""
    a = sqrt(1 / (30 * log(items) * items))
    table = torch.cat([sqrt(1 - a) * torch.eye(items), torch.full((items, 1), sqrt(a))], dim=1)
    graph = hc.permutation_graph(items)
    for signatures in (Signatures("bernoulli", 0.05), Signatures("rademacher")):
        weights = general_embedding(graph, table, key_dim, heads=1, signatures=signatures)
        yield f"{signatures.kind}: {_answer(weights, graph, table)}"


def worst_sets(
    items: int = 2048, d_model: int = 256, blocks: tuple[int, ...] = (1, 8, 64, 256)
) -> Iterator[str]:
    """12: ρ of the worst set of B items, over B/d."""
    table = hc.gaussian_embeddings(items, d_model, seed=0)
    for block in blocks:
        ratio = hc.incoherence(table, block).leakage / (block / d_model)
        yield f"B = {block}: ρ is {ratio:.1f} times B/d"


def binary_tables(items: int = 512, d_model: int = 512) -> Iterator[str]:
    """13: no width of Construction III is exact on a random binary table."""
    graph, table = hc.permutation_graph(items), hc.binary_embeddings(items, d_model)
    for inverse in ("transpose", "pinv"):
        try:
            found = hc.construct(graph, table, "general-embedding", inverse=inverse)
            yield f"{inverse}: exact with {found.heads} × {found.key_dim}"
        except hc.NoSolution as answer:
            yield f"{inverse}: {answer}"


def all_contexts(sizes: tuple[int, ...] = (64, 128, 256), key_dim: int = 256) -> Iterator[str]:
    """16: certificates of Algorithm 2's weights, over all contexts of ℓ items."""
    one = [(items, width, 1) for items in sizes for width in (items, 8 * items)]
    several = [(items, items // heads, heads) for items in sizes[:2] for heads in (2, 4)]
    for items, d_model, heads in one + several:
        graph, table = hc.permutation_graph(items), hc.gaussian_embeddings(items, d_model)
        weights = hc.construct(graph, table, "softmax", heads=heads, key_dim=key_dim)
        for length in (items // 4, items // 2, items - 1):
            verdict = hc.softmax_certificate(weights, graph, table, length).verdict
            yield f"({items}, {d_model}), h = {heads}, ℓ = {length}: {verdict}"


def absent_targets(sizes: tuple[int, ...] = (64, 128, 256), draws: int = 3) -> Iterator[str]:
    """17: the ℓ from which one head is certified on one-hot rows; then what more width does."""
    for items in sizes:
        graph, table = hc.permutation_graph(items), hc.one_hot_embeddings(items)
        weights = hc.construct(graph, table, "softmax", heads=1, key_dim=256)
        length = items - 1
        while length > 2 and _certified(weights, graph, table, length - 1):
            length -= 1
        yield f"m = {items}: certified from ℓ = {length} on"
    for seed in range(draws):
        graph, table = hc.permutation_graph(96, seed), hc.gaussian_embeddings(96, 256, seed)
        contexts = hc.ContextSampler(graph, 48)
        for width in (64, 128, 256, 1024):
            options = {"heads": 2, "key_dim": width, "inverse": "pinv", "seed": seed}
            weights = hc.construct(graph, table, "softmax", **options)
            found = hc.verify(weights, graph, table, contexts=contexts, samples=300)
            yield f"seed {seed}, d_k = {width}: {found.failed_contexts} of 300 contexts fail"


def _certified(weights: hc.KeyQuery, graph: hc.Graph, table: torch.Tensor, length: int) -> bool:
    return hc.softmax_certificate(weights, graph, table, length).verdict == "certified"


def _answer(weights: hc.KeyQuery, graph: hc.Graph, table: torch.Tensor) -> str:
    found = hc.verify(weights, graph, table)
    return f"{found.heading}, {found.false_positives} false positives"


CHECKS = {
    "3": learned_tables,
    "6": fixed_points,
    "11": bernoulli_signatures,
    "12": worst_sets,
    "13": binary_tables,
    "16": all_contexts,
    "17": absent_targets,
}

if __name__ == "__main__":
    for name, check in CHECKS.items():
        if name in sys.argv[1:]:
            for line in check():
                print(f"{name}: {line}", flush=True)
        elif len(sys.argv) == 1:
            print(check.__doc__)
