"""The block of Section 7.3: its task, the stacked trainer against the plain module, its kernels."""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn import functional

from headcount.bench.block import block_speed
from headcount.block.evaluate import evaluate
from headcount.block.model import Block
from headcount.block.ops import BlockOps
from headcount.block.spec import BlockResult, BlockSpec
from headcount.block.stack import BlockStack, group
from headcount.block.state import StackState
from headcount.block.train import train_blocks
from headcount.block.weights import plain_block
from headcount.errors import InputError
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import permutation_graph
from headcount.problem.retrieval import RetrievalSampler, encode, queries
from headcount.problem.token_tables import TokenTable

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


# --- specs and results ----------------------------------------------------------------------------


def small(**changes) -> BlockSpec:
    sizes = {"items": 24, "d_model": 12, "heads": 2, "key_dim": 3, "length": 3, "batch": 16}
    pace = {"steps": 6, "check_every": 2, "validation": 40, "test": 40, "learning_rate": 3e-3}
    return BlockSpec(**(sizes | pace | changes))


def table_of(spec: BlockSpec) -> tuple[Tensor, Tensor]:
    rows = gaussian_embeddings(spec.items + 1, spec.d_model, seed=5) * 3
    return rows[:-1], rows[-1]


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


def made(specs: list[BlockSpec], ops: BlockOps | None = None) -> BlockStack:
    table, null = table_of(specs[0])
    return BlockStack(StackState.initial(specs), torch.cat([table, null[None]]), "cpu", ops)


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


# --- training -------------------------------------------------------------------------------------


def bits(result: BlockResult) -> dict:
    return replace(result, seconds=0.0).__dict__


def train(specs, **options) -> list[BlockResult]:
    return train_blocks(specs, *table_of(specs[0]), device="cpu", progress=False, **options)


@pytest.fixture
def stacks(monkeypatch):
    """Stacks on the CPU, as there are on a GPU."""
    monkeypatch.setattr("headcount.block.train.capacity", lambda spec, device: 64)


def test_on_the_cpu_a_run_is_the_same_in_any_company():
    specs = [small(seed=seed, key_dim=2 + seed) for seed in range(3)]
    together = train(specs)
    for spec, expected in zip(specs, together, strict=True):
        (alone,) = train([spec])
        assert replace(alone, seconds=0.0) == replace(expected, seconds=0.0)


def test_what_fails_in_one_stack_ends_the_others():
    specs = [small(seed=seed, steps=100_000, check_every=10) for seed in range(6)]
    began, asked = time.monotonic(), iter(range(1000))

    def refuse(results: list[BlockResult]) -> None:
        raise OSError("disk full")

    def full(state: StackState) -> None:
        if next(asked) == 0:
            raise OSError("disk full")

    always = patch("headcount.block.train._STATE_EVERY", 0.0)
    with always, pytest.raises(OSError, match="disk full"):
        train(specs, on_check=full)
    with pytest.raises(OSError, match="disk full"):
        train([small(steps=5), *specs], on_results=refuse)
    assert time.monotonic() - began < 60  # six runs of 100,000 steps take minutes


def test_results_come_in_order_and_a_run_alone_is_the_run_in_a_stack(stacks):
    specs = [
        small(seed=seed, key_dim=2 + seed, learning_rate=1e-3 * (1 + seed)) for seed in range(3)
    ]
    specs += [
        small(heads=1, key_dim=4, control="two-values"),
        small(control="barred"),
        small(heads=3),
        small(kv_heads=1),
    ]
    together = train([*specs, specs[0]])
    assert [result.spec for result in together] == [*specs, specs[0]]
    states: list[StackState] = []
    for spec, expected in zip(specs, together, strict=False):
        (alone,) = train([spec], on_check=lambda state: states.append(state.copied("cpu")))
        assert alone.history == expected.history
        assert alone.loss == pytest.approx(expected.loss, rel=1e-5)
        assert alone.attention.target == pytest.approx(expected.attention.target, abs=1e-5)
        assert BlockResult.from_json(alone.to_json()) == alone
    stacked: list[StackState] = []
    train(specs[:3], on_check=lambda state: stacked.append(state.copied("cpu")))
    for run, alone in enumerate(states[:3]):
        for ours, theirs in zip(
            alone.block(0).parameters(), stacked[-1].block(run).parameters(), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_the_test_is_taken_at_the_best_check(stacks):
    specs = [small(seed=seed, steps=40, learning_rate=0.03) for seed in range(4)]
    last: list[StackState] = []
    results = train(specs, on_check=lambda state: last.append(state.copied("cpu")))
    stack = made(specs)
    again = evaluate(stack, last[-1].best, "validation", specs[0].validation).accuracy
    test = evaluate(stack, last[-1].best, "test", specs[0].test).accuracy
    for run, result in enumerate(results):
        best = max(accuracy for _, accuracy in result.history)
        assert result.best_validation == best == pytest.approx(float(again[run]))
        assert result.best_step == next(
            step for step, accuracy in result.history if accuracy == best
        )
        assert result.test == pytest.approx(float(test[run]))
    assert len({result.best_step for result in results}) > 1


@pytest.mark.parametrize(("stops", "kv_heads"), [(1, 0), (3, 1), (4, 0)])
def test_a_stopped_stack_goes_on_bit_for_bit(tmp_path, monkeypatch, stops, kv_heads, stacks):
    pace = {"steps": 9, "check_every": 4, "kv_heads": kv_heads}
    specs = [small(seed=seed, key_dim=2 + seed, **pace) for seed in range(3)]
    uninterrupted = train(specs)
    saved: list[StackState] = []
    asked = iter(range(1000))
    monkeypatch.setattr("headcount.block.train.time.monotonic", lambda: float(next(asked)))

    def keep(state: StackState) -> None:
        saved.append(state.copied("cpu"))

    assert train(specs, time_limit=2.0 * stops + 2, on_check=keep) == []
    monkeypatch.undo()
    assert 0 < saved[-1].taken < 9
    saved[-1].save(tmp_path / "state.safetensors")
    resumed = train(specs, resume=[StackState.load(tmp_path / "state.safetensors")])
    assert [bits(result) for result in resumed] == [bits(result) for result in uninterrupted]


def test_an_interrupt_stops_between_steps_and_hands_the_state_out():
    spec, states = small(steps=10**6, check_every=10), []
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    assert train([spec], on_check=states.append) == []
    assert 0 < states[-1].taken < 10**6
    assert len(states[-1].history) == states[-1].taken // 10


def test_a_run_that_diverges_says_when_and_leaves_its_neighbours_alone():
    calm, wild = small(seed=1), small(learning_rate=1e30)
    found = train([calm, wild])
    assert found[1].diverged == 2
    assert found[0].diverged is None
    assert math.isfinite(found[0].loss)
    assert found[0].loss == pytest.approx(train([calm])[0].loss, rel=1e-5)


def test_it_learns_the_task():
    """Wide enough and few items: both steps of the pointer are learned within seconds."""
    sizes = {"items": 12, "d_model": 24, "heads": 2, "key_dim": 12, "length": 2, "batch": 64}
    pace = {"steps": 1000, "check_every": 250, "validation": 300, "test": 300}
    spec = small(**sizes, **pace, learning_rate=1e-2)
    (result,) = train([spec])
    assert result.best_validation > 0.95
    assert result.test > 0.95
    assert result.answers["correct"] == result.final_test
    assert result.attention.best_target > 0.8


def test_groups_share_what_a_stack_must_share():
    alike = small(seed=3, key_dim=1, learning_rate=1.0, weight_decay=0.0, control="barred")
    assert group(alike) == group(small())
    changes = ({"heads": 1}, {"scale": 2.0}, {"table_hash": "x"}, {"batch": 8}, {"steps": 7})
    changes += ({"kv_heads": 1},)
    for changed in changes:
        assert group(small(**changed)) != group(small())


def test_tables_and_states_that_do_not_fit_are_refused():
    table, null = table_of(small())
    with pytest.raises(InputError, match="does not fit 24 items"):
        train_blocks([small()], table[:20], null, device="cpu")
    with pytest.raises(InputError, match="not asked for"):
        train([small()], resume=[StackState.initial([small(seed=9)])])
    with pytest.raises(InputError, match="device 'tpu' is unknown"):
        train_blocks([small()], table, null, device="tpu")
    with pytest.raises(InputError, match="has no NULL"):
        train_blocks([small()], table, device="cpu")
    with pytest.raises(InputError, match="described on the table 'other'"):
        train_blocks([small(table="other", table_hash="x")], TokenTable("one", table, null))


def test_a_token_table_is_its_rows_and_null():
    table, null = table_of(small())
    by_rows = train([small()])
    by_table = train_blocks([small()], TokenTable("one", table, null), device="cpu", progress=False)
    assert [bits(result) for result in by_table] == [bits(result) for result in by_rows]


# --- kernels and speed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"d_model": 20, "heads": 10, "length": 7, "batch": 3},
        {"d_model": 20, "heads": 10, "kv_heads": 5, "length": 7, "batch": 3},
        {"kv_heads": 1},
        {"heads": 1, "control": "two-values", "d_model": 5},
    ],
)
def test_kernels_follow_the_reference(changes):
    pytest.importorskip("triton")
    from headcount.block.triton_ops import TritonOps

    controls = ("none", "barred")
    specs = [
        small(**({"batch": 4, "control": control} | changes), seed=n)
        for n, control in enumerate(controls)
    ]
    specs[1] = replace(specs[1], key_dim=5)
    reference, stack = made(specs), made(specs, TritonOps())
    for one in (reference, stack):
        one.advance(3)
    torch.testing.assert_close(stack.loss, reference.loss, rtol=1e-5, atol=1e-5)
    for name, weight in reference.state.weights.items():
        torch.testing.assert_close(stack.state.weights[name], weight, rtol=0, atol=1e-5)
        first, second = reference.state.first[name], reference.state.second[name]
        torch.testing.assert_close(
            stack.state.first[name], first, rtol=0, atol=1e-5 * float(first.abs().max())
        )
        torch.testing.assert_close(
            stack.state.second[name], second, rtol=0, atol=1e-5 * float(second.abs().max())
        )


def test_speed_is_measured_against_the_plain_block_and_bare_products():
    sizes = {"items": 30, "d_model": 16, "heads": 2, "key_dim": 4, "length": 3, "batch": 8}
    found = block_speed("cpu", **sizes, runs=2, steps=2, repeats=2)
    assert found.runs == 2
    assert found.stack_us > 0
    assert found.speedup == pytest.approx(found.eager_us / found.stack_us)
    assert 0 < found.share < 1
