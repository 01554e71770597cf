"""`verify` against rational arithmetic: no verdict, count or margin may differ."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch

from headcount import Graph, InputError, KeyQuery, verify

_KINDS = ("integers", "floats", "coarse", "large", "small", "mixed")


def case(rng: np.random.Generator) -> None:
    items, d_model = (int(rng.integers(1, most)) for most in (7, 5))
    heads, key_dim = (int(rng.integers(1, 4)) for _ in range(2))
    table = _numbers(rng, (items, d_model))
    queries, keys = (_numbers(rng, (heads, d_model, key_dim)) for _ in range(2))
    aggregation = "max" if rng.random() < 0.6 else "sum"
    scores = _scores(table, queries, keys, aggregation)
    threshold = _threshold(rng, scores)
    edges = [(i, j) for i in range(items) for j in range(items) if rng.random() < 0.4]
    if rng.random() < 0.5:  # most weights are wrong at most pairs: take the graph they recognise
        edges = [pair for pair, score in scores.items() if score > Fraction(threshold)]
    graph = Graph.from_edges(items, edges)
    precision = ("auto", "float32", "float64")[rng.integers(3)]
    contexts = None
    if rng.random() < 0.3:
        length = int(rng.integers(1, items + 1))
        contexts = np.stack([rng.permutation(items)[:length] for _ in range(3)])
    try:
        weights = KeyQuery(queries, keys, threshold, aggregation)
        found = verify(weights, graph, table, precision=precision, contexts=contexts)
    except InputError as error:
        if "float64" not in str(error):
            raise
        return
    pairs = list(scores)
    if contexts is not None:
        pairs = [(int(i), int(j)) for row in contexts for i in row for j in row]
    _compare(found, pairs, scores, set(edges), Fraction(threshold))


def _compare(found, pairs, scores, edges, threshold) -> None:
    positive = [pair for pair in pairs if scores[pair] > threshold]
    wrong = sum(pair not in edges for pair in positive)
    missed = sum(pair in edges and scores[pair] <= threshold for pair in pairs)
    assert (found.false_positives, found.false_negatives) == (wrong, missed)
    assert found.exact == (not wrong and not missed)
    distances = [
        scores[pair] - threshold if pair in edges else threshold - scores[pair] for pair in pairs
    ]
    assert abs(Fraction(found.margin) - min(distances)) <= Fraction(found.score_error)


def _scores(table, queries, keys, aggregation) -> dict[tuple[int, int], Fraction]:
    rows = [[Fraction(x) for x in row] for row in table.tolist()]
    found = {}
    for head in range(len(queries)):
        query, key = (
            [[sum(map(_times, row, column)) for column in zip(*part, strict=True)] for row in rows]
            for part in (queries[head].tolist(), keys[head].tolist())
        )
        for i, left in enumerate(query):
            for j, right in enumerate(key):
                score = sum(map(_times, left, right))
                if (i, j) in found:
                    before = found[i, j]
                    score = max(before, score) if aggregation == "max" else before + score
                found[i, j] = score
    return found


def _times(a: Fraction, b: float | Fraction) -> Fraction:
    return a * Fraction(b)


def _threshold(rng, scores) -> float:
    """Often a score itself, or the next number: where rounding would decide."""
    chosen = list(scores.values())[rng.integers(len(scores))]
    try:
        near = float(chosen)
    except OverflowError:
        return 0.0
    draw = rng.random()
    if draw < 0.6 and np.isfinite(near):
        return float(np.nextafter(near, (-np.inf, np.inf, near)[rng.integers(3)]))
    return float(rng.normal()) if draw < 0.9 else 0.0


def _numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    match _KINDS[rng.integers(len(_KINDS))]:
        case "integers":
            values = rng.integers(-3, 4, shape).astype(float)
        case "floats":
            values = rng.standard_normal(shape)
        case "coarse":
            values = np.round(rng.standard_normal(shape) * 4) / 4
        case "large":
            values = rng.standard_normal(shape) * 2.0 ** rng.integers(0, 400)
        case "small":
            values = rng.standard_normal(shape) * 2.0 ** -rng.integers(0, 400)
        case _:
            values = rng.standard_normal(shape) * 2.0 ** rng.integers(-60, 60, shape)
    values = torch.from_numpy(np.nextafter(values, np.inf) if rng.random() < 0.2 else values)
    single = values.float()
    return single if rng.random() < 0.4 and single.isfinite().all() else values
