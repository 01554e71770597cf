"""The results store: nothing stored is lost or changed, whoever writes and whatever ends them."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import InputError
from headcount.store import database as database_module
from headcount.store.checkpoints import Checkpoint
from headcount.store.store import Store
from headcount.training.engines.base import State
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec
from tests.processes import forked
from tests.store_writers import bits, killed, racing, result_of, same, spec_of

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def run_results(draw) -> RunResult:
    variant = draw(st.sampled_from(["max", "softmax", "value", "sum"]))
    degree = 1 if variant == "value" else draw(st.integers(1, 3))
    spec = RunSpec(
        items=draw(st.integers(8, 40)),
        d_model=draw(st.integers(1, 9)),
        heads=draw(st.integers(1, 4)),
        key_dim=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 2**63 - 1)),
        degree=degree,
        variant=variant,
        length=4,
        learning_rate=draw(st.floats(1e-9, 1.0)),
    )
    return RunResult(
        spec=spec,
        value=draw(NUMBERS),
        steps=draw(st.integers(0, 10**9)),
        threshold=draw(NUMBERS),
        history=tuple(draw(st.lists(st.tuples(st.integers(0, 10**9), NUMBERS), max_size=4))),
        diverged=draw(st.none() | st.integers(1, 10**9)),
        engine=draw(st.sampled_from(["torch", "native", 'od,d "name"'])),
        device=draw(st.sampled_from(["cpu", "NVIDIA H200", "ℓ\nline"])),
        seconds=draw(st.floats(0, 1e9)),
        versions=draw(st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2)),
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(run_results(), max_size=5))
def test_results_and_exports_keep_every_bit(found):
    wanted = {result.spec.hash: result for result in reversed(found)}
    with tempfile.TemporaryDirectory() as folder:
        with Store(f"{folder}/s.sqlite") as store:
            assert store.add(found) == len(wanted)
        with Store(f"{folder}/s.sqlite") as store:
            assert store.add(found) == 0
            assert len(store) == len(wanted)
            assert store.known([result.spec for result in found] + [spec_of(0)]) == set(wanted)
            for result in wanted.values():
                assert same(store.get(result.spec), result)
            order = [result.spec.hash for result in store.results()]
            assert list(store.frame()["hash"]) == order
            assert (
                store.export(f"{folder}/r.jsonl") == store.export(f"{folder}/r.csv") == len(wanted)
            )
        lines = [json.loads(line) for line in Path(folder, "r.jsonl").read_text().splitlines()]
        with Path(folder, "r.csv").open(newline="") as file:
            cells = list(csv.DictReader(file))
        assert [line["hash"] for line in lines] == [row["hash"] for row in cells] == order
        for line, row in zip(lines, cells, strict=True):
            result = wanted[line["hash"]]
            assert same(_from_json(line), result)
            assert same(_from_csv(row), result)


def _from_json(line: dict) -> RunResult:
    def number(value: float | None) -> float:
        return math.nan if value is None else value

    return RunResult(
        spec=RunSpec.from_mapping(line["spec"]),
        history=tuple((step, number(value)) for step, value in line["history"]),
        **{name: number(line[name]) for name in ("value", "threshold", "seconds")},
        **{name: line[name] for name in ("steps", "diverged", "engine", "device", "versions")},
    )


def _from_csv(row: dict) -> RunResult:
    nested = {name: json.loads(row[name]) for name in ("spec", "history", "versions")}
    numbers = {name: float(row[name]) for name in ("value", "threshold", "seconds")}
    whole = {
        "steps": int(row["steps"]),
        "diverged": int(row["diverged"]) if row["diverged"] else None,
    }
    return _from_json(row | nested | numbers | whole)


def test_the_first_result_of_a_spec_is_kept(path):
    with Store(path) as store:
        assert store.add([result_of(1), replace(result_of(1), value=0.0)]) == 1
        assert store.add([replace(result_of(1), value=0.5), result_of(2)]) == 1
        assert same(store.get(spec_of(1)), result_of(1))
        assert store.get(spec_of(3)) is None


def test_filters_agree_with_plain_python(filled):
    with Store(filled, read_only=True) as store:
        everything = list(store.results())

        def seeds(**filters) -> set[int]:
            assert len(store.frame(**filters)) == len(list(store.results(**filters)))
            return set(store.frame(**filters)["seed"])

        def plain(keep) -> set[int]:
            return {result.spec.seed for result in everything if keep(result.spec)}

        assert seeds(heads=2) == seeds(heads=np.int64(2)) == plain(lambda spec: spec.heads == 2)
        assert seeds(heads=[1, 3], key_dim=np.array([2, 4])) == plain(
            lambda spec: spec.heads in (1, 3) and spec.key_dim in (2, 4)
        )
        assert seeds(budget=range(4, 9)) == plain(lambda spec: 4 <= spec.budget <= 8)
        assert seeds(budget=range(4, 9, 2)) == plain(lambda spec: spec.budget in (4, 6, 8))
        assert seeds(variant="sum") == seeds(items=[]) == set()
        assert seeds(hash=[spec_of(3).hash, spec_of(5).hash]) == {3, 5}
        with pytest.raises(InputError, match="did you mean 'heads'"):
            store.frame(head=2)
        assert str(store.frame(items=0).dtypes.to_dict()) == str(store.frame().dtypes.to_dict())


def test_the_order_in_which_runs_finish_leaves_no_trace(tmp_path):
    tables = []
    for name, numbers in (("a", range(20)), ("b", reversed(range(20)))):
        with Store(tmp_path / name) as store:
            for number in numbers:
                store.add([result_of(number)])
            tables.append(store.frame().drop(columns="finished_at"))
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_threads_share_a_store(path):
    with Store(path) as store:
        threads = [
            threading.Thread(
                target=lambda k=k: [store.add([result_of(n)]) for n in range(k, 60, 3)]
            )
            for k in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(store.frame()["seed"]) == set(range(60))


def _state(spec: RunSpec, taken: int) -> State:
    state = State.initial(spec)
    state.first.normal_()
    state.second[0] = math.inf
    state.threshold[0] = math.nan
    state.taken = taken
    return state


def test_checkpoints_come_back_bit_for_bit_and_go_with_the_result(path):
    spec, history = spec_of(1), [(500, 0.25), (1000, math.nan)]
    state = _state(spec, 1000)
    with Store(path) as store:
        store.checkpoints.save([Checkpoint(spec, state, history, "torch", "cpu", 1.5)])
    with Store(path) as store:
        back = store.checkpoints.load(spec)
        assert back is not None
        assert (back.spec, back.engine, back.device, back.seconds, back.state.taken) == (
            spec,
            "torch",
            "cpu",
            1.5,
            1000,
        )
        assert bits([list(check) for check in back.history]) == bits(
            [list(check) for check in history]
        )
        for name in ("weights", "first", "second", "threshold"):
            mine, theirs = getattr(state, name), getattr(back.state, name)
            assert torch.equal(mine.view(torch.int32), theirs.view(torch.int32))
        assert store.checkpoints.load(spec, "torch", "cpu") is not None
        assert (
            store.checkpoints.load(spec, "native")
            is store.checkpoints.load(spec, "torch", "cuda")
            is store.checkpoints.load(spec_of(2))
            is None
        )
        store.checkpoints.save(
            [Checkpoint(spec, _state(spec, 500), history, "torch", "cpu")]
        )  # a sweep that is behind
        assert store.checkpoints.load(spec).state.taken == 1000
        store.checkpoints.save(
            [
                Checkpoint(spec, _state(spec, taken), history, "torch", "cpu")
                for taken in (1500, 2000)
            ]
        )
        assert store.checkpoints.load(spec).state.taken == 2000
        store.checkpoints.save([Checkpoint(spec, _state(spec, 500), history, "native", "cpu")])
        assert store.checkpoints.load(spec).engine == "native"
        store.add([result_of(1)])
        assert store.checkpoints.load(spec) is None
        store.checkpoints.save(
            [Checkpoint(spec, state, history, "torch", "cpu")]
        )  # another sweep was slower
        assert store.checkpoints.load(spec) is None


@pytest.mark.parametrize("change", ["taken = 501", "state = 'a text'", "engine = x'00'"])
def test_a_changed_checkpoint_is_not_given(path, change):
    with Store(path) as store:
        store.checkpoints.save(
            [Checkpoint(spec_of(1), _state(spec_of(1), 500), [], "torch", "cpu")]
        )
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE checkpoints SET {change}")
    connection.close()
    with Store(path) as store:
        assert store.checkpoints.load(spec_of(1)) is None  # the run begins again


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", torch.zeros(1)),
        ("threshold", torch.zeros(3, dtype=torch.float64)),
        ("weights", torch.zeros(1, 2, 2)),
        ("second", torch.zeros(1)),
        ("taken", -1),
        ("taken", 10**9),
    ],
    ids=["threshold", "dtype", "weights", "moments", "before", "after"],
)
def test_a_checkpoint_that_does_not_fit_its_run_is_not_given(path, name, value):
    """One with a digest of its own: the native engine would write past the end of such tensors."""
    state = _state(spec_of(1), 500)
    setattr(state, name, value)
    with Store(path) as store:
        store.checkpoints.save([Checkpoint(spec_of(1), state, [], "a", "b")])
        assert store.checkpoints.load(spec_of(1)) is None


def _said(work: Callable[..., None], *arguments: Any) -> list[int]:
    """What the writers said they had committed."""
    with forked(work, *arguments) as process:
        code, out, err = process.end()
    assert (code, err) == (0, "")
    return [int(line) for line in out.split()]


def test_kill_9_loses_nothing_that_was_committed(path):
    said = _said(killed, path, 15)
    assert len(said) > 50
    with Store(path) as store:
        stored = {result.spec.seed: result for result in store.results()}
        assert set(said) <= set(stored)
        assert len(stored) <= len(said) + 15  # each may have died between the commit and the word
        for number, result in stored.items():
            assert same(result, result_of(number))
            assert store.checkpoints.load(spec_of(number)) is None


def test_writers_on_one_file_lose_nothing(path):
    said = _said(racing, path, 3, 120)
    assert sorted(said) == sorted(
        number for k in range(3) for number in range(60 * k, 60 * k + 120)
    )
    with Store(path, read_only=True) as store:
        assert sorted(store.frame()["seed"]) == list(range(240))


def test_a_writer_waits_for_another(filled, monkeypatch):
    monkeypatch.setattr(database_module, "_BUSY", 0.01)
    other = sqlite3.connect(filled, isolation_level=None, check_same_thread=False)
    with Store(filled) as store:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.2, lambda: other.execute("COMMIT"))
        timer.start()
        assert store.add([result_of(99)]) == 1
        timer.join()
        monkeypatch.setattr(database_module, "PATIENCE", 0.05)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="another process has kept it"):
            store.add([result_of(100)])
        assert store.get(spec_of(99)) is not None  # reading does not wait
    other.close()


def test_a_store_that_is_removed_while_in_use_is_not_written_on(path):
    with Store(path) as store:
        store.add([result_of(1)])
        path.unlink()
        with pytest.raises(InputError, match="was removed or replaced"):
            store.add([result_of(2)])
