"""Verification on contexts, which softmax needs: its scores depend on the context (Eqs. 5–6)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from headcount.attention.exact import ErrorBound, PairDecider
from headcount.attention.key_query import KeyQuery
from headcount.attention.recovery import Extreme, Recovery, summarise
from headcount.attention.rescaling import rescaled, scaled_back, scaled_back_bound
from headcount.attention.tiles import Projections
from headcount.errors import InputError
from headcount.problem.contexts import labels
from headcount.problem.graph import Graph
from headcount.shapes import Bool, Float, Int

_CHUNK = 2**22  # numbers held at once while contexts are scored
_FLAT = 300  # logits off by more than this say nothing, and exp(2·error) would overflow soon


def checked_contexts(
    contexts: Int[Tensor, "count length"], graph: Graph
) -> Int[Tensor, "count length"]:
    """The contexts as int64, refused unless each row holds distinct items of the graph."""
    odd = contexts.is_floating_point() or contexts.is_complex() or contexts.dtype == torch.bool
    if contexts.ndim != 2 or odd or 0 in contexts.shape:
        raise InputError(
            f"contexts of shape {tuple(contexts.shape)} must be rows of item ids, at least one"
        )
    contexts = contexts.long()  # ids of more than 63 bits become negative, and are refused below
    ordered = contexts.sort(dim=1).values
    outside = (ordered[:, 0] < 0) | (ordered[:, -1] >= graph.items)
    if outside.any():
        place = int(outside.nonzero()[0])
        raise InputError(f"context {place} holds an id outside 0…{graph.items - 1}; correct it")
    repeated = ordered[:, 1:] == ordered[:, :-1]
    if repeated.any():
        place, column = repeated.nonzero()[0].tolist()
        named = "" if graph.names is None else f" ({graph.name(int(ordered[place, column]))})"
        raise InputError(f"context {place} holds the same item twice{named}; correct it")
    return contexts


def verify_contexts(
    weights: KeyQuery,
    graph: Graph,
    table: Tensor,
    contexts: Int[Tensor, "count length"],
    sampled: bool,
) -> Recovery:
    """Check every ordered pair of every given context."""
    truth = labels(graph, contexts)
    exponent = 0
    if weights.aggregation == "softmax":
        scores = _context_scores(weights, table, contexts)
        error = _softmax_error(weights, table.double(), contexts.shape[1])
        # Exponentials cannot be decided exactly: a score closer to τ than its error bound counts
        # as wrong.
        wrong = ~torch.where(
            truth, scores > weights.threshold + error, scores <= weights.threshold - error
        )
    else:
        scores, error, wrong, exponent = _decided(weights, table, contexts, truth)
    failed = int(wrong.flatten(1).any(1).sum())
    return summarise(
        weights,
        scope="sampled contexts" if sampled else "given contexts",
        pairs=truth.numel(),
        hits=int((truth & ~wrong).sum()),
        false_positives=int((wrong & ~truth).sum()),
        false_negatives=int((wrong & truth).sum()),
        lowest_edge=_extreme(scores, truth, contexts, exponent, lowest=True),
        highest_non_edge=_extreme(scores, ~truth, contexts, exponent, lowest=False),
        score_error=scaled_back_bound(error, exponent),
        checked_in="float64",
        contexts=len(contexts),
        context_length=contexts.shape[1],
        failed_contexts=failed,
        failure_rate_below=_clopper_pearson_upper(failed, len(contexts)) if sampled else None,
    )


def _decided(
    weights: KeyQuery,
    table: Tensor,
    contexts: Int[Tensor, "count length"],
    truth: Bool[Tensor, "count length length"],
) -> tuple[Float[Tensor, "count length length"], float, Bool[Tensor, "count length length"], int]:
    """Max and sum: scores, the bound on their error, wrong decisions, the exponent.

    Scores and bound are those of the rescaled problem, 2^−exponent times the original ones.
    """
    weights, table, exponent = rescaled(weights, table)
    decider = PairDecider.of(weights, table)
    pairs = tuple(
        part.expand_as(truth).flatten() for part in (contexts[:, :, None], contexts[:, None, :])
    )
    scores = decider.parts.at(*pairs)
    wrong = decider.predicted(scores, *pairs).view_as(truth) ^ truth
    return scores.view_as(truth), decider.bound.float64, wrong, exponent


def _context_scores(
    weights: KeyQuery, table: Tensor, contexts: Int[Tensor, "count length"]
) -> Float[Tensor, "count length length"]:
    """Σ_k softmax of every pair in every context in float64."""
    length = contexts.shape[1]
    widest = max(weights.heads * max(length, weights.key_dim), weights.d_model)
    chunk = max(1, _CHUNK // (length * widest))
    rows, double = table.double(), weights.to(dtype=torch.float64)
    parts = []
    for some in contexts.split(chunk):
        logits = double.scores(rows[some], rows[some])
        if not logits.isfinite().all():
            raise InputError("the scores overflow float64; scale the weights or the table down")
        parts.append(double.aggregate(logits))
    return torch.cat(parts)


def _softmax_error(weights: KeyQuery, rows: Float[Tensor, "items d_model"], length: int) -> float:
    """Bound the float64 error of Σ_k softmax(S⁽ᵏ⁾/√d_k).

    Logits off by at most e move each probability by a factor within exp(±2e); the exponential, the
    sum of ℓ terms and the sum over h heads add a few units in the last place each. Probabilities
    sum to at most h.
    """
    plain = replace(weights, aggregation="max")
    parts = Projections.of(plain, rows)
    logit_error = ErrorBound.of_scores(plain, rows, parts).float64 + 2.0**-51 * max(
        float(q.norm(dim=1).max() * k.norm(dim=1).max())
        for q, k in zip(parts.queries, parts.keys, strict=True)
    )
    if not np.isfinite(logit_error) or logit_error > _FLAT:
        return math.inf  # every score counts as open
    return weights.heads * (
        float(np.expm1(2 * logit_error)) + (length + weights.heads + 16) * 2.0**-52
    )


def _extreme(
    scores: Tensor, among: Tensor, contexts: Tensor, exponent: int, lowest: bool
) -> Extreme | None:
    if not among.any():
        return None
    masked = scores.masked_fill(~among, torch.inf if lowest else -torch.inf)
    flat = int(masked.argmin() if lowest else masked.argmax())
    context, p, q = (int(part) for part in np.unravel_index(flat, scores.shape))
    return Extreme(
        scaled_back(float(scores[context, p, q]), exponent),
        int(contexts[context, p]),
        int(contexts[context, q]),
    )


def _clopper_pearson_upper(failures: int, trials: int, confidence: float = 0.95) -> float:
    """The one-sided upper bound on a failure probability (exact binomial)."""
    from scipy.stats import beta

    if failures == trials:
        return 1.0
    return float(beta.ppf(confidence, failures + 1, trials - failures))
