"""The reference engine: the paper's formulas, and bits that depend on nothing but the run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from headcount.problem.contexts import ContextSampler, labels
from headcount.training.engines.base import State
from headcount.training.engines.torch import TorchEngine
from headcount.training.spec import RunSpec
from headcount.training.task import Task, task_of
from headcount.training.train import train
from tests.made_engines import bits, specs


def written_loss(
    spec: RunSpec, task: Task, context: Tensor, weights: Tensor, threshold: Tensor
) -> Tensor:
    """The loss of one context as the paper prints it, for autograd."""
    rows, key_of = task.rows[context], [k * spec.key_heads // spec.heads for k in range(spec.heads)]
    queries, keys = weights[: spec.heads], weights[spec.heads :][key_of]
    scores = (rows @ queries) @ (rows @ keys).mT
    if spec.variant == "softmax":  # Section 7.1
        joined = (scores / math.sqrt(spec.key_dim)).softmax(-1).sum(0)
    elif spec.variant == "logsumexp":
        joined = spec.temperature * (scores / spec.temperature).logsumexp(0)
    else:
        joined = scores.sum(0) if spec.variant == "sum" else scores.max(0).values
    positive = labels(task.graph, context[None])[0]
    if (
        spec.variant == "value"
    ):  # Eqs. (3)-(4): the message's squared error, where there is a target
        valid = positive.any(-1)
        found = [[q for q, y in enumerate(row) if y] for row in positive.tolist()]
        messages = task.messages[context]
        retrieved, wanted = joined @ messages, torch.stack([messages[q].sum(0) for q in found])
        return (retrieved - wanted)[valid].square().sum() / valid.sum().clamp(min=1)
    count = positive.sum()
    weight = torch.tensor(spec.length - 1.0)  # A.1
    if spec.degree > 1 or spec.graph != "regular":  # Eq. (30)
        weight = (spec.length**2 - count) / count if count else torch.tensor(0.0)
    logits = spec.sharpness * (joined - threshold)
    return functional.binary_cross_entropy_with_logits(logits, positive.float(), pos_weight=weight)


@pytest.mark.parametrize("kv_heads", [0, 1, 2])
@pytest.mark.parametrize(("graph", "table"), [("regular", "gaussian"), ("skewed", "binary")])
@pytest.mark.parametrize(
    ("variant", "degree"),
    [
        *(("max", 1), ("max", 3), ("softmax", 1), ("softmax", 2)),
        *(("value", 1), ("value", 3), ("sum", 1), ("sum", 2), ("logsumexp", 1), ("logsumexp", 2)),
    ],
)
def test_the_reference_is_autograd_and_adamw(variant, degree, graph, table, kv_heads):
    protocol = {"learning_rate": 1e-2, "validation": 2, "test": 2, "graph": graph, "table": table}
    heads = 6 if kv_heads else 3
    spec = RunSpec(24, 6, heads, 5, 1, degree, variant, kv_heads=kv_heads, **protocol)
    if variant == "logsumexp":
        spec = replace(spec, temperature=0.3 * degree)
    task, start = task_of(spec), State.initial(spec)
    weights, threshold = start.weights.clone().requires_grad_(), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.AdamW([weights, threshold], lr=spec.learning_rate, weight_decay=0)
    for context in ContextSampler(task.graph, spec.length, spec.rate).draw(
        12, seed=spec.seed, stream=spec.stream
    ):
        optimizer.zero_grad()
        written_loss(spec, task, context, weights, threshold).backward()
        optimizer.step()
    fleet = TorchEngine("cpu").fleet([spec])
    fleet.launch(12)
    (state,) = fleet.states([0])
    assert state.taken == 12
    torch.testing.assert_close(state.weights, weights.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(state.threshold[0], threshold.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "spec", [RunSpec(64, 1, 1, 20, length=20), RunSpec(64, 64, 2, 1, length=20)]
)
def test_the_references_bits_do_not_depend_on_how_many_runs_there_are(spec):
    several = [replace(spec, seed=seed, steps=15, validation=2, test=2) for seed in range(40)]
    engine = TorchEngine("cpu")
    together = bits(train(several, engine, progress=False, weights=True))
    for some in (several[:1], several[3:20]):
        alone = bits(train(some, engine, progress=False, weights=True))
        assert alone == [together[several.index(one)] for one in some]


@pytest.mark.parametrize("variant", ["max", "value"])
@pytest.mark.parametrize(
    ("length", "d_model", "key_dim"),
    [(7, 6, 3), (16, 6, 3), (33, 6, 3), (33, 6, 7), (16, 5, 3), (5, 21, 3)],
)
def test_the_references_bits_do_not_depend_on_a_runs_place(length, d_model, key_dim, variant):
    """7² and 33² are not multiples of what a CPU computes at once: a tensor's end is special.

    Odd sizes also align the matrices of a batched product differently.
    """
    protocol = {"steps": 20, "check_every": 20, "validation": 2, "test": 2}
    spec = RunSpec(40, d_model, 3, key_dim, length=length, variant=variant, **protocol)
    several = [replace(spec, seed=seed) for seed in range(9)]
    fleet = TorchEngine("cpu").fleet(several)
    fleet.launch(20)
    for row in (0, 3, 8):
        alone = TorchEngine("cpu").fleet([several[row]])
        alone.launch(20)
        assert torch.equal(fleet.states([row])[0].weights, alone.states([0])[0].weights)
        assert fleet.test([row]) == alone.test([0])


@settings(deadline=None, max_examples=20, derandomize=True)
@given(spec=specs(), contexts=st.sampled_from([1, 40]))
def test_a_check_of_pairs_is_the_check_of_contexts(spec, contexts):
    """Many contexts are judged by a table of all pairs, few by their own scores."""
    from headcount.training.engines import torch as module

    fleet = TorchEngine("cpu").fleet([replace(spec, validation=contexts)])
    fleet.launch(30)
    drawn = [task_of(replace(spec, validation=contexts)).validation]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MANY", 0)
        by_context = fleet._evaluate([0], drawn)
        patch.setattr(module, "_MANY", 10**9)
        by_pair = fleet._evaluate([0], drawn)
    assert by_pair == pytest.approx(by_context, rel=1e-5, abs=1e-6, nan_ok=True)
