"""Training of blocks: stacks, states, kernels and speed."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from headcount.bench.block import block_speed
from headcount.block.evaluate import evaluate
from headcount.block.spec import BlockResult
from headcount.block.stack import group
from headcount.block.state import StackState
from headcount.block.train import train_blocks
from headcount.errors import InputError
from headcount.problem.token_tables import TokenTable
from tests.small_blocks import made, small, table_of

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

    always = patch("headcount.block.train._FIRST_STATE", 0.0)
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
    pace = {"steps": 500, "check_every": 125, "validation": 300, "test": 300}
    spec = small(**sizes, **pace, learning_rate=2e-2)
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
        {"d_model": 36, "heads": 36, "batch": 2},  # more channels than one program takes
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
