"""The runner over the store, and what a sweep costs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from headcount import RunSpec, train
from headcount.analysis.thresholds import thresholds
from headcount.errors import InputError
from headcount.interrupts import Stop
from headcount.store.store import Store
from headcount.sweeps import writer
from headcount.sweeps.cost import Throughput, estimate, work
from headcount.sweeps.plans import CombinedPlan, GridPlan
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.sweeps.summary import summarise_runs
from headcount.sweeps.writer import SweepWriter
from headcount.training.engines.base import lineage
from headcount.training.engines.selection import choose_engine
from headcount.training.result import RunResult
from tests.sweep_runs import GRID, SPECS, CountingEngine, plain

# --- the plan -------------------------------------------------------------------------------------


class Halving:
    """A plan with memory: asks for half the key dimension until there is one."""

    def __init__(self, key_dim: int, seed: int) -> None:
        self.spec, self.seen = (
            RunSpec(16, 8, 1, 2 * key_dim, seed, steps=20, check_every=20),
            list[RunResult](),
        )

    def next_batch(self) -> list[RunSpec]:
        if self.spec.key_dim == 1:
            return []
        self.spec = replace(self.spec, key_dim=self.spec.key_dim // 2)
        return [self.spec]

    def observe(self, results: Iterable[RunResult]) -> None:
        found = list(results)
        assert [result.spec for result in found] == [self.spec]
        self.seen += found


def test_plans_go_together_and_each_sees_its_own_results(tmp_path):
    plans, grid = [Halving(4, 1), Halving(2, 2)], SPECS[:2]
    engine = CountingEngine()
    with Store(tmp_path / "some.sqlite") as store:
        progress = run_sweep(
            CombinedPlan([*plans, GridPlan(grid)]), store, LocalExecutor(engine), "some"
        )
        assert [[result.spec.key_dim for result in plan.seen] for plan in plans] == [
            [4, 2, 1],
            [2, 1],
        ]
        assert {spec for plan in plans for spec in (result.spec for result in plan.seen)} | {
            *grid
        } == {*engine.trained}
        (sweep,) = store.sweeps
    assert (progress.runs, progress.done, progress.trained, progress.known) == (7, 7, 7, 0)
    assert (sweep.state, sweep.total_runs, sweep.done_runs, sweep.total_steps) == (
        "finished",
        7,
        7,
        5 * 20 + 2 * 40,
    )


# --- the runner -----------------------------------------------------------------------------------


def test_what_the_store_has_is_never_run_again(tmp_path):
    engine = CountingEngine()
    with Store(tmp_path / "some.sqlite") as store:
        run_sweep(GridPlan(SPECS[:5]), store, LocalExecutor(engine), "some")
        assert sorted(engine.trained, key=SPECS.index) == SPECS[:5]
        engine.trained.clear()
        progress = run_sweep(GridPlan(SPECS), store, LocalExecutor(engine), "some")
        assert sorted(engine.trained, key=SPECS.index) == SPECS[5:]
        assert (progress.known, progress.trained) == (5, 7)
        engine.trained.clear()
        progress = run_sweep(GridPlan(SPECS), store, LocalExecutor(engine), "some")
        assert (engine.trained, progress.known, progress.trained) == ([], 12, 0)
        results = {result.spec: result for result in store.results()}
    for expected in train(SPECS, "torch", progress=False):
        assert plain(results[expected.spec]) == plain(expected)


def test_what_another_sweep_has_finished_in_the_meantime_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(Throughput, "runs_in", lambda throughput, specs, seconds: 1)
    others = train(SPECS[4:], "torch", progress=False)
    with Store(tmp_path / "some.sqlite") as store:
        engine = CountingEngine(before=lambda: store.add(others))
        progress = run_sweep(GridPlan(SPECS), store, LocalExecutor(engine), "some")
    assert engine.trained == SPECS[:1] + SPECS[1:4]
    assert (progress.runs, progress.done, progress.trained) == (12, 12, 4)


def test_a_second_sweep_begins_elsewhere(tmp_path):
    with (
        Store(tmp_path / "some.sqlite") as store,
        SweepWriter(store, "one") as one,
        SweepWriter(store, "two") as two,
    ):
        assert one.begin_batch(SPECS) == SPECS
        turned = two.begin_batch(SPECS)
        assert turned != SPECS
        assert sorted(turned, key=SPECS.index) == SPECS


def test_an_interrupt_keeps_what_is_finished_and_says_so(tmp_path):
    with Store(tmp_path / "some.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(GridPlan(SPECS), store, LocalExecutor(CountingEngine(fails=5)), "some")
        assert len(store) == 6  # two blocks a configuration of three seeds
        assert [sweep.state for sweep in store.sweeps] == ["interrupted"]


def test_a_wish_to_stop_keeps_the_state_of_every_run(tmp_path):
    stop = Stop()
    engine = CountingEngine(before=lambda: setattr(stop, "asked", True))
    with Store(tmp_path / "some.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(GridPlan(SPECS), store, LocalExecutor(engine), "some", stop=stop)
        left = [store.checkpoints.load(spec, "torch", lineage(engine)) for spec in engine.trained]
        assert [run.state.taken for run in left if run] == [20] * 3  # the block was ended
        assert len(store) == 0
        with pytest.raises(KeyboardInterrupt):
            run_sweep(GridPlan(SPECS), store, LocalExecutor(engine), "some", stop=stop)
        assert engine.blocks == 1


def test_a_store_that_cannot_be_written_ends_the_sweep_with_its_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BEAT", 0.01)

    def full(*anything):
        raise InputError("the disk is full")

    with Store(tmp_path / "some.sqlite") as store:
        monkeypatch.setattr(store, "add", full)
        with pytest.raises(InputError, match="the disk is full"):
            run_sweep(
                GridPlan(SPECS),
                store,
                LocalExecutor(CountingEngine(before=lambda: time.sleep(0.05))),
                "some",
            )


# --- what it will cost, and what it came to -------------------------------------------------------


def test_the_estimate_follows_the_work():
    engine = choose_engine("torch")
    small = estimate(SPECS, engine)
    large = estimate([replace(spec, steps=4000, check_every=20) for spec in SPECS], engine)
    assert small.measured >= 1
    assert 20 < large.seconds / small.seconds < 500  # a hundred times the steps
    assert large.took < 3
    assert estimate([], engine).seconds == 0


def test_work_grows_with_every_size():
    spec = RunSpec(64, 16, 4, 5, variant="softmax")
    for name in ("items", "d_model", "heads", "key_dim", "length", "steps", "test"):
        assert work(replace(spec, **{name: 2 * getattr(spec, name)})) > work(spec)


def test_pieces_fill_the_time_at_the_pace_that_was_seen():
    specs = [RunSpec(64, 16, 4, 5, seed) for seed in range(100)]
    pace = Throughput(10 * work(specs[0]))
    assert (pace.runs_in(specs, 2.0), pace.runs_in(specs, 1e-9), pace.runs_in(specs, 1e9)) == (
        20,
        1,
        100,
    )
    for _ in range(20):
        pace.learn(30 * work(specs[0]), 1.0)
    assert pace.runs_in(specs, 1.0) in (30, 31)


def test_protocols_of_one_point_are_told_apart(tmp_path):
    specs = [replace(spec, learning_rate=rate) for spec in SPECS for rate in (1e-3, 1e-2)]
    with Store(tmp_path / "some.sqlite") as store:
        store.add(train(specs, "torch", progress=False))
        found = summarise_runs(specs, store.frame())
        assert found.curves.empty
        assert found.thresholds["learning_rate"].tolist() == [1e-3, 1e-2]
        frame = store.frame(hash=[spec.hash for spec in specs if spec.learning_rate == 1e-2])
        assert (
            found.thresholds.drop(columns="learning_rate")
            .iloc[1:]
            .reset_index(drop=True)
            .equals(thresholds(frame))
        )


def test_a_file_that_is_no_store_is_left_alone(written, command, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = command("sweep", written(GRID), "--store", "notes.txt")
    assert (code, err.count("\n")) == (2, 1)
    assert (tmp_path / "notes.txt").read_text() == "mine"
