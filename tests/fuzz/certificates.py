"""Softmax certificates against every context there is, in 60 digits."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from itertools import combinations

import numpy as np
import torch

from headcount import Graph, InputError, KeyQuery
from headcount.attention.softmax_certificate import softmax_certificate


def case(rng: np.random.Generator) -> None:
    items, heads = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    length = int(rng.integers(1, items + 1))
    size = float(rng.choice([0.3, 1.0, 5.0, 40.0, 700.0]))
    logits = np.round(rng.standard_normal((heads, items, items)) * size * 16) / 16
    scores = _all_scores(logits, length)
    values = sorted(score for pair in scores.values() for score in pair)
    near = float(values[rng.integers(len(values))])
    shift = float(rng.choice([0.0, 1e-16, -1e-16, 1e-9, -1e-9, 1e-2, -1e-2]))
    threshold = near * (1 + shift) if rng.random() < 0.8 else float(rng.random())
    truly = {
        pair: all(score > Decimal(threshold) for score in found) for pair, found in scores.items()
    }
    edges = [pair for pair, above in truly.items() if above != (rng.random() < 0.02)]
    # 16 columns, of which the first are in use: √d_k = 4 is exact, and so are the logits.
    pad = (0, 16 - items)
    queries = torch.nn.functional.pad(torch.eye(items).double().repeat(heads, 1, 1), pad)
    keys = torch.nn.functional.pad(torch.from_numpy(4 * logits.transpose(0, 2, 1)), pad)
    graph = Graph.from_edges(items, edges)
    try:
        weights = KeyQuery(queries, keys, threshold, "softmax")
        found = softmax_certificate(
            weights, graph, torch.eye(items).double(), length, search=int(rng.integers(0, 200))
        )
    except InputError as error:
        if "too much for float64" not in str(error):
            raise
        return
    _compare(found, scores, set(edges), Decimal(threshold))


def _compare(found, scores, edges, threshold) -> None:
    def broken(pair, score) -> bool:
        return (score <= threshold) if pair in edges else (score > threshold)

    wrong = [pair for pair in scores for score in scores[pair] if broken(pair, score)]
    assert found.verdict != "certified" or not wrong, (wrong, found)
    assert found.verdict != "refuted" or wrong, found
    if found.verdict == "certified":
        lowest = [min(scores[pair]) for pair in scores if pair in edges]
        highest = [max(scores[pair]) for pair in scores if pair not in edges]
        margins = [score - threshold for score in lowest] + [threshold - x for x in highest]
        assert not margins or Decimal(found.margin) <= min(margins) + Decimal("1e-15"), found


def _all_scores(logits: np.ndarray, length: int) -> dict[tuple[int, int], list[Decimal]]:
    """A_ij in each context of ℓ items that holds i and j."""
    found: dict[tuple[int, int], list[Decimal]] = {}
    items = logits.shape[1]
    with localcontext(Context(prec=60)):
        powers = [[[Decimal(x).exp() for x in row] for row in head] for head in logits.tolist()]
        for context in combinations(range(items), length):
            for i in context:
                sums = [sum(head[i][t] for t in context) for head in powers]
                for j in context:
                    score = sum(
                        head[i][j] / total for head, total in zip(powers, sums, strict=True)
                    )
                    found.setdefault((i, j), []).append(Decimal(score))
    return found
