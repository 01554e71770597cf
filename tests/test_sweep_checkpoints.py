"""Checkpoints: runs and sweeps that were stopped go on from them, bit for bit."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from headcount import RunSpec, train
from headcount.store.store import Store
from headcount.sweeps import runner
from headcount.sweeps.plans import GridPlan
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.sweeps.writer import SweepWriter
from headcount.training.engines.base import State
from headcount.training.result import RunResult
from headcount.training.train import UnderWay
from tests.sweep_runs import SPECS, CountingEngine, plain, table


@pytest.mark.parametrize(
    ("engine", "variant"),
    [*product(["torch", "native"], ["max", "softmax", "value"]), ("triton", "max")],
)
def test_a_resumed_run_ends_bit_for_bit_like_an_undisturbed_one(engine, variant):
    common = {
        "variant": variant,
        "learning_rate": 0.1,
        "target": 0.5,
        "patience": 2,
        "validation": 40,
        "test": 60,
    }
    common |= {"steps": 190, "check_every": 20}
    if engine == "triton":
        pytest.importorskip("triton", reason="needs the package triton")
        common |= {
            "steps": 7,
            "check_every": 2,
            "validation": 4,
            "test": 4,
        }  # its interpreter is slow
    specs = [
        RunSpec(16, 8, 2, 1 + seed % 3, seed, **common)
        for seed in range(5 if engine != "triton" else 2)
    ]
    expected = train(specs, engine, progress=False)
    assert len({result.steps for result in expected}) > 1 or engine == "triton"

    class Enough(Exception):
        pass

    found: dict[RunSpec, RunResult] = {}
    left: dict[RunSpec, UnderWay] = {}

    def one_block(steps, under_way):
        left.update({run.spec: replace(run, state=copied(run.state)) for run in under_way()})
        raise Enough

    while todo := [spec for spec in specs if spec not in found]:
        with suppress(Enough):
            train(
                todo, engine, progress=False, resume=left.values(), on_block=one_block,
                on_result=lambda result: found.update({result.spec: result}),
            )  # fmt: skip
    for result in expected:
        assert plain(found[result.spec]) == plain(result)


def copied(state: State) -> State:
    """A copy that the engine cannot write to."""
    return State(
        state.weights.clone(),
        state.first.clone(),
        state.second.clone(),
        state.threshold.clone(),
        state.taken,
    )


@pytest.mark.parametrize("fails", [1, 3, 7])
def test_a_sweep_goes_on_from_its_checkpoints(tmp_path, monkeypatch, fails):
    monkeypatch.setattr(runner, "CHECKPOINT", 0.0)
    specs = [replace(spec, steps=100) for spec in SPECS if spec.heads == 2]
    with Store(tmp_path / "one.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(GridPlan(specs), store, LocalExecutor(CountingEngine(fails=fails)), "some")
        assert len(store) == 3 * (fails // 5)
        engine = CountingEngine()
        run_sweep(GridPlan(specs), store, LocalExecutor(engine), "some")
        assert sorted(set(engine.begun_at.values())) == sorted(
            {20 * (fails % 5), 0} if fails < 5 else {20 * (fails % 5)}
        )
        assert len(store.checkpoints) == 0
    with Store(tmp_path / "two.sqlite") as store:
        run_sweep(GridPlan(specs), store, LocalExecutor(CountingEngine()), "some")
    assert table(tmp_path / "one.sqlite") == table(tmp_path / "two.sqlite")


def test_a_job_that_is_preempted_leaves_checkpoints_early(tmp_path, monkeypatch):
    """The first after two seconds of work, then less and less often."""
    clock, saved = [0.0], list[float]()
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    spec = RunSpec(16, 8, 2, 2, 0, steps=500, check_every=5, validation=4, test=4)

    def tick(self, steps):
        clock[0] += 1.0
        return counted(self, steps)

    def save(self, runs, engine, device):
        saved.append(clock[0])
        assert [run.spec for run in runs] == [spec]

    counted = SweepWriter.count_steps
    monkeypatch.setattr(SweepWriter, "count_steps", tick)
    monkeypatch.setattr(SweepWriter, "save_checkpoints", save)
    run_sweep(GridPlan([spec]), tmp_path / "s.sqlite", LocalExecutor(CountingEngine()), "some")
    assert saved == [2.0, 6.0, 14.0, 30.0, 60.0, 90.0]
