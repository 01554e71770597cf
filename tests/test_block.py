"""The block's task, its specs and results, and the stack against the plain module."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn import functional

from headcount.block.evaluate import evaluate
from headcount.block.model import Block
from headcount.block.spec import BlockSpec
from headcount.block.stack import BlockStack
from headcount.block.weights import plain_block
from headcount.errors import InputError
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import permutation_graph
from headcount.problem.retrieval import RetrievalSampler, encode, queries
from tests.small_blocks import made, small

# --- the task -------------------------------------------------------------------------------------


def literal_example(
    permutation: list[int], length: int, chance: random.Random
) -> tuple[int, int, int, list]:
    """The paper's paragraph, sentence by sentence: (q, s, y, pairs)."""
    items = range(len(permutation))
    while True:  # each example samples a query q and finds its successor s = π(q), rejecting s = q
        q = chance.choice(items)
        s = permutation[q]
        if s != q:
            break
    others = chance.sample([item for item in items if item not in (s, q)], 2 * length - 1)  # S
    grouped = [*others, s]
    chance.shuffle(grouped)
    # ℓ disjoint pairs: the matching M
    pairs = [(grouped[2 * i], grouped[2 * i + 1]) for i in range(length)]
    partner = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    return q, s, partner[s], pairs


def drawn_examples(permutation: list[int], length: int, count: int, stream: str) -> list[tuple]:
    """The valid ones of our generator, in the same form."""
    contexts = RetrievalSampler(len(permutation), length).draw(count, stream=stream)
    q, valid = queries(torch.tensor(permutation).argsort()[None], contexts)
    return [
        (asked, row[0], row[1], list(zip(row[0::2], row[1::2], strict=True)))
        for asked, row, fits in zip(
            q[0].tolist(), contexts.tolist(), valid[0].tolist(), strict=True
        )
        if fits
    ]


@given(seed=st.integers(0, 10**6), length=st.integers(1, 7), extra=st.integers(1, 40))
@settings(deadline=None, max_examples=30)
def test_every_example_is_one_of_the_papers(seed, length, extra):
    permutation = permutation_graph(2 * length + extra, seed).targets.tolist()
    for q, s, y, pairs in drawn_examples(permutation, length, 50, str(seed)):
        items = [item for pair in pairs for item in pair]
        assert s == permutation[q] != q
        assert len(set(items)) == 2 * length
        assert q not in items
        assert (s, y) in pairs


def test_examples_have_the_papers_distribution():
    """Six items, two pairs: every possible example is counted, and a χ² test compares the two."""
    permutation, chance, count = [2, 1, 0, 4, 5, 3], random.Random(0), 24_000  # 1 is a fixed point

    def kind(example: tuple) -> tuple:
        q, s, y, pairs = example
        return q, s, y, frozenset(next(pair for pair in pairs if s not in pair))

    ours = drawn_examples(permutation, 2, 60_000, "train")[:count]
    ours, paper = (
        Counter(map(kind, some))
        for some in (ours, [literal_example(permutation, 2, chance) for _ in ours])
    )
    kinds = sorted(set(ours) | set(paper), key=str)
    assert len(kinds) == 5 * 4 * 3  # q is no fixed point; y and then two of the three others
    assert stats.chisquare([ours[one] for one in kinds]).pvalue > 1e-3
    assert (
        stats.chi2_contingency([[ours[one] for one in kinds], [paper[one] for one in kinds]]).pvalue
        > 1e-3
    )


def test_streams_are_pure_and_apart():
    sampler = RetrievalSampler(50, 3)
    long = sampler.draw(20, stream="train")
    assert torch.equal(long[7:12], sampler.draw(5, stream="train", start=7))
    assert not torch.equal(long, sampler.draw(20, stream="test"))
    with pytest.raises(InputError, match="choose a length of 1…24"):
        RetrievalSampler(50, 25)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 5}, "do not divide"),
        ({"length": 12}, "choose 1…11"),
        ({"control": "two-values"}, "control for one head"),
        ({"scale": 0}, "not a positive number"),
        ({"kv_heads": -1}, "kv_heads -1 does not divide 2 heads; choose one of 1, 2"),
        ({"kv_heads": 3}, "kv_heads 3 does not divide 2 heads"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads 3 does not divide 4 heads"),
    ],
)
def test_a_spec_that_cannot_be_says_so(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes)


def test_a_specs_json_is_canonical():
    spec = small(scale=2, table="gpt2")
    assert BlockSpec.from_json(spec.to_json()) == spec
    assert spec.hash == small(scale=2.0, table="gpt2").hash != small(scale=2.0).hash
    with pytest.raises(
        InputError, match="'head' is not a field of a block run; did you mean 'heads'"
    ):
        BlockSpec.from_mapping({"head": 3})


def test_own_keys_are_the_spec_without_them():
    """Hashes of runs that were stored before keys could be shared do not change."""
    assert small(kv_heads=2) == small() == BlockSpec.from_json(small(kv_heads=2).to_json())
    assert "kv_heads" not in small(kv_heads=2).to_json()
    assert small().hash == "02a9124878c5aa896363deaadc712e97"
    shared = small(kv_heads=1)
    assert BlockSpec.from_json(shared.to_json()) == shared != small()
    assert (shared.key_heads, shared.budget, shared.key_budget) == (1, 6, 3)
    assert (small().key_heads, small().key_budget) == (2, 6)


# --- the stack against the plain module -----------------------------------------------------------


@st.composite
def stacks(draw) -> list[BlockSpec]:
    heads = draw(st.sampled_from([1, 2, 3, 4]))
    two = heads == 1 and draw(st.booleans())
    shared = {
        "items": draw(st.integers(15, 40)),
        # LayerNorm of two or three numbers magnifies rounding.
        "d_model": heads * draw(st.integers(6, 12)),
        "heads": heads,
        "kv_heads": draw(st.sampled_from([g for g in range(heads + 1) if not g or heads % g == 0])),
        "length": draw(st.integers(1, 7)),
        "batch": draw(st.integers(1, 9)),
        "scale": draw(st.sampled_from([1.0, 0.3, 5.0])),
    }
    return [
        small(
            **shared,
            key_dim=draw(st.integers(1, 9)),
            seed=draw(st.integers(0, 99)),
            learning_rate=draw(st.sampled_from([1e-3, 1e-2])),
            weight_decay=draw(st.sampled_from([0.0, 0.01, 0.5])),
            control="two-values" if two else draw(st.sampled_from(["none", "barred"])),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]


def plain_logits(
    block: Block, stack: BlockStack, run: int, contexts: Tensor
) -> tuple[Tensor, Tensor]:
    """The plain module's logits, s barred where the spec says so, and which examples are valid."""
    rows = stack.exact_table.exact
    q, valid = (part[run] for part in queries(stack.inverses, contexts))
    logits = block(encode(rows, contexts, q), rows)
    if stack.state.specs[run].control == "barred":
        logits = logits.scatter(1, contexts[:, :1], -torch.inf)
    return logits, valid


def plain_loss(block: Block, stack: BlockStack, run: int, contexts: Tensor) -> Tensor:
    logits, valid = plain_logits(block, stack, run, contexts)
    losses = functional.cross_entropy(logits, contexts[:, 1], reduction="none")
    return losses[valid].sum() / valid.sum().clamp(min=1)


@given(specs=stacks())
@settings(deadline=None, max_examples=40, derandomize=True)
def test_gradients_are_the_plain_modules(specs):
    stack = made(specs)
    contexts = stack.sampler.draw(specs[0].batch, stream="train")
    gradients = stack.gradients(contexts)
    for run, spec in enumerate(specs):
        block = plain_block(spec, stack.state.weights, run)
        loss = plain_loss(block, stack, run, contexts)
        loss.backward()
        torch.testing.assert_close(stack.loss[run], loss.detach(), rtol=1e-5, atol=1e-5)
        # The gradients in the module's layout.
        found = dict(plain_block(spec, gradients, run).named_parameters())
        for name, weight in block.named_parameters():
            assert weight.grad is not None
            size = float(weight.grad.abs().max())
            torch.testing.assert_close(
                found[name].detach(), weight.grad, rtol=1e-4, atol=1e-4 * size + 1e-7
            )
        assert not gradients["queries"][run, :, :, spec.key_dim :].any()  # the padding stays zero
        assert not gradients["keys"][run, :, spec.key_dim :].any()


@given(specs=stacks(), steps=st.integers(1, 4))
@settings(deadline=None, max_examples=20, derandomize=True)  # a gradient near 0 could flip a step
def test_steps_are_torchs_adamw_on_the_plain_module(specs, steps):
    stack = made(specs)
    blocks = [plain_block(spec, stack.state.weights, run) for run, spec in enumerate(specs)]
    assert stack.advance(steps) == steps == stack.state.taken
    for run, (spec, block) in enumerate(zip(specs, blocks, strict=True)):
        optimizer = torch.optim.AdamW(
            block.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay
        )
        for n in range(steps):
            optimizer.zero_grad()
            contexts = stack.sampler.draw(spec.batch, stream="train", start=n * spec.batch)
            plain_loss(block, stack, run, contexts).backward()
            optimizer.step()
        found = dict(plain_block(spec, stack.state.weights, run).named_parameters())
        for name, weight in block.named_parameters():
            close = (found[name] - weight).abs() <= 1e-5
            assert close.float().mean() > 0.98, name


@given(specs=stacks())
@settings(deadline=None, max_examples=20, derandomize=True)
def test_checks_count_what_the_plain_module_answers(specs):
    stack, count = made(specs), 60
    tally = evaluate(stack, stack.state.weights, "test", count)
    contexts = stack.sampler.draw(count, stream="test")
    for run, spec in enumerate(specs):
        block = plain_block(spec, stack.state.weights, run)
        with torch.no_grad():
            logits, valid = plain_logits(block, stack, run, contexts)
            q = queries(stack.inverses, contexts)[0][run]
            pattern = block.pattern(encode(stack.exact_table.exact, contexts, q))[valid]
        s, y, given_answers = contexts[:, 0], contexts[:, 1], logits.argmax(1)
        elsewhere = (contexts[:, 2:] == given_answers[:, None]).any(1)
        kinds = [
            given_answers == y,
            given_answers == s,
            given_answers == q,
            elsewhere,
            given_answers == spec.items,
        ]
        shares = torch.stack(kinds, 1)[valid].double().mean(0)
        torch.testing.assert_close(tally.answers[run, :5], shares)
        torch.testing.assert_close(tally.answers[run].sum(), torch.tensor(1.0, dtype=torch.float64))
        barred = logits.scatter(1, torch.stack([s, q], 1), -torch.inf).argmax(1)
        assert float(tally.barred[run]) == pytest.approx(
            float((barred == y)[valid].double().mean())
        )
        loss = functional.cross_entropy(logits[valid], y[valid])
        assert float(tally.loss[run]) == pytest.approx(float(loss), rel=1e-5)
        seen = tally.attention(run)
        assert seen.target == pytest.approx(pattern[:, :, 0].mean(0).tolist(), abs=1e-5)
        assert seen.null == pytest.approx(pattern[:, :, -2].mean(0).tolist(), abs=1e-5)
        assert seen.own == pytest.approx(pattern[:, :, -1].mean(0).tolist(), abs=1e-5)
        assert seen.best_own == pytest.approx(float(pattern[:, :, -1].amax(1).mean()), abs=1e-5)


def test_head_k_attends_with_key_head_kg_over_h():
    """Against a block with keys of their own that are copies of the shared ones."""
    torch.manual_seed(0)
    heads, key_heads, key_dim = 6, 2, 3
    shared, own = Block(12, heads, key_dim, kv_heads=key_heads), Block(12, heads, key_dim)
    weights = shared.state_dict()
    assert weights["keys.weight"].shape == (key_heads * key_dim, 12)
    rows = weights["keys.weight"].unflatten(0, (key_heads, key_dim))
    copies = torch.cat([rows[k * key_heads // heads] for k in range(heads)])
    own.load_state_dict(weights | {"keys.weight": copies})
    table = gaussian_embeddings(9, 12)
    x = encode(table, torch.tensor([[0, 1, 2, 3], [5, 4, 6, 7]]), torch.tensor([4, 8]))
    torch.testing.assert_close(shared(x, table), own(x, table))
    torch.testing.assert_close(shared.pattern(x), own.pattern(x))
    with pytest.raises(InputError, match="kv_heads 4 does not divide 6 heads"):
        Block(12, heads, key_dim, kv_heads=4)


def test_logits_are_tied_to_the_table():
    block, rows = Block(12, 2, 3), gaussian_embeddings(9, 12)
    x = encode(rows, torch.tensor([[0, 1, 2, 3]]), torch.tensor([4]))
    assert block(x, rows).shape == (1, 9)
    torch.testing.assert_close(block(x, rows[:4]), block(x, rows)[:, :4])
    shuffled = x[:, [1, 0, 2, 3]]  # slots have no positions
    torch.testing.assert_close(block(shuffled, rows), block(x, rows))
