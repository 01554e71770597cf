"""A sweep of long runs: every thread of the engine trains one, and takes the next when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount import RunSpec, train
from headcount.interrupts import Stop
from headcount.store.store import Store
from headcount.sweeps import runner
from headcount.sweeps.cluster_queue import RunQueue, Worker
from headcount.sweeps.cost import Throughput
from headcount.sweeps.plans import GridPlan
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.sweeps.writer import SweepWriter
from headcount.training.adamw import BETAS
from headcount.training.engines.base import State, adam_scales, lineage
from headcount.training.engines.native.engine import NativeEngine, NativeFleet
from headcount.training.train import UnderWay
from tests.sweep_runs import plain

pytestmark = pytest.mark.filterwarnings("error")

LONG = [RunSpec(16, 8, 2, 2, seed, steps=2000, check_every=100) for seed in range(7)]


class ThreeThreads(NativeEngine):
    """Tells `before` of every block of a run that has a thread of its own."""

    def __init__(self, before: Callable[[RunSpec, int], object] = lambda spec, taken: None) -> None:
        super().__init__(threads=3)
        self.before, self.halted, self.outer = before, False, self

    def single(self) -> ThreeThreads:
        engine, single = ThreeThreads(self.before), super().single()
        engine.threads, engine._stop, engine.outer = 1, single._stop, self
        return engine

    def halt(self) -> None:
        self.outer.halted = True
        super().halt()

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> NativeFleet:
        fleet = super().fleet(specs, states)
        launch = fleet.launch

        def told(steps: int) -> None:
            self.before(specs[0], fleet.taken)
            launch(steps)

        fleet.launch = told
        return fleet


@pytest.fixture
def all_long(monkeypatch) -> None:
    """A machine so slow that every run is a long one."""
    monkeypatch.setattr(Throughput, "of", lambda name, threads=1: Throughput(1.0))
    monkeypatch.setattr(Throughput, "learn", lambda throughput, done, seconds: None)


def test_long_runs_are_trained_on_every_thread_at_once(tmp_path, all_long):
    """Each of the first three waits for the other two, and the rest follow as these end."""
    together, begun = threading.Barrier(3), list[RunSpec]()

    def before(spec: RunSpec, taken: int) -> None:
        if not taken:
            begun.append(spec)
            if spec in LONG[:3]:
                together.wait(timeout=30)

    with Store(tmp_path / "some.sqlite") as store:
        progress = run_sweep(GridPlan(LONG), store, LocalExecutor(ThreeThreads(before)), "some")
        found = {result.spec: plain(result) for result in store.results()}
    assert sorted(begun, key=LONG.index) == LONG
    assert (progress.done, progress.trained, progress.taken) == (7, 7, 7 * 2000)
    assert found == {
        result.spec: plain(result) for result in train(LONG, NativeEngine(1), progress=False)
    }


def test_long_runs_of_all_shapes_are_handed_out_together_and_short_ones_in_pieces():
    executor = LocalExecutor(ThreeThreads())
    long = [RunSpec(256, 32, 8, 8, seed, steps=10**8) for seed in range(5)]
    other = replace(long[0], steps=10**8 + 1)
    short = [RunSpec(16, 8, 1, 1, seed, steps=100) for seed in range(200)]
    mixed = [long[0], other, *short, *long[1:]]
    assert executor._next_piece(mixed, 60.0) == [long[0], other, *long[1:]]
    assert executor._next_piece([*short, other], 60.0) == short
    assert executor._next_piece(short, 60.0) == short
    some = [RunSpec(64, 16, 4, 5, seed) for seed in range(900)]
    assert 0 < len(executor._next_piece(some, 0.0)) < len(executor._next_piece(some, 60.0)) / 2


def test_one_thread_has_no_need_of_this():
    executor = LocalExecutor(NativeEngine(threads=1))
    long = [RunSpec(256, 32, 8, 8, seed, steps=10**8) for seed in range(5)]
    assert executor._next_piece(long, 60.0) == long[:1]


def test_a_wish_to_stop_keeps_the_state_of_every_run_under_way(tmp_path, all_long):
    stop, together = Stop(), threading.Barrier(3)

    def before(spec: RunSpec, taken: int) -> None:
        if not taken:
            together.wait(timeout=30)
            stop.asked = True

    engine = ThreeThreads(before)
    with Store(tmp_path / "some.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(GridPlan(LONG), store, LocalExecutor(engine), "some", stop=stop)
        left = [store.checkpoints.load(spec, "native", lineage(engine)) for spec in LONG]
        assert [run.state.taken for run in left if run] == [100] * 3
        assert [sweep.state for sweep in store.sweeps] == ["interrupted"]
        run_sweep(GridPlan(LONG), store, LocalExecutor(NativeEngine(threads=2)), "some")
        found = {result.spec: plain(result) for result in store.results()}
    assert not engine.halted  # what was under way came to the end of its block
    expected = train(LONG, NativeEngine(1), progress=False)
    assert found == {result.spec: plain(result) for result in expected}


def test_one_runs_error_ends_the_sweep_and_the_others_are_saved(tmp_path, all_long):
    together = threading.Barrier(3)

    def before(spec: RunSpec, taken: int) -> None:
        if not taken:
            together.wait(timeout=30)
        if spec == LONG[1] and taken == 500:
            raise MemoryError("too large")

    endless = [replace(spec, steps=10**7) for spec in LONG]
    endless[1] = LONG[1]
    engine = ThreeThreads(before)
    with Store(tmp_path / "some.sqlite") as store:
        with pytest.raises(MemoryError, match="too large"):
            run_sweep(GridPlan(endless), store, LocalExecutor(engine), "some")
        left = [store.checkpoints.load(spec, "native", lineage(engine)) for spec in endless]
    assert [bool(run) for run in left] == [True, False, True, *[False] * 4]


def test_an_interrupt_ends_runs_in_the_middle_of_a_block(tmp_path, all_long, monkeypatch):
    begun = threading.Event()
    endless = [RunSpec(256, 256, 8, 32, n, steps=10**8, check_every=10**6) for n in range(4)]

    def interrupted(*anything) -> None:
        begun.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "wait", interrupted)
    engine = ThreeThreads(lambda spec, taken: begun.set())
    with Store(tmp_path / "some.sqlite") as store:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run_sweep(GridPlan(endless), store, LocalExecutor(engine), "some")
        assert len(store) == 0
    assert engine.halted
    assert time.monotonic() - start < 60  # a block takes minutes


def test_a_worker_with_several_threads_gets_a_run_for_each(tmp_path):
    long = [RunSpec(256, 32, 8, 8, seed, steps=10**8) for seed in range(9)]
    with Store(tmp_path / "some.sqlite") as store, SweepWriter(store, "some") as writer:
        queue = RunQueue(long, "native", writer)
        kind = ("native", "cpu")
        workers = [
            Worker(kind=kind, threads=n, throughput=Throughput.of("native", n)) for n in (4, 1)
        ]
        shards = [queue.next_shard(each, [kind] * 2) for each in workers * 2]
        sizes = [len(shard.specs) for shard in shards if shard]
    assert sizes == [4, 1, 2, 1]  # the last two workers share what is left


# --- what every block costs -----------------------------------------------------------------------


@given(
    st.floats(1e-12, 1e3), st.integers(0, 60_000) | st.integers(39_000, 41_000), st.integers(1, 600)
)
def test_adams_scales_are_their_formula_to_the_bit(learning_rate, taken, steps):
    n = np.arange(taken + 1, taken + steps + 1)
    plainly = np.stack(
        [learning_rate / (1 - BETAS[0] ** n), 1 / np.sqrt(1 - BETAS[1] ** n)], axis=1
    )
    assert (adam_scales(learning_rate, taken, steps) == plainly.astype(np.float32)).all()


@given(
    st.sampled_from(["max", "value"]),
    st.integers(1, 4),
    st.lists(st.sampled_from([0.1, 0.2, 0.9, 0.95, 1.0]), max_size=30),
)
def test_the_stopping_rule_is_that_of_the_whole_history(variant, patience, values):
    """Asked after every value, as in training, and of a run that is resumed in the middle."""
    spec = RunSpec(16, 8, 2, 2, 0, variant=variant, patience=patience, target=0.9)
    run = UnderWay(spec)
    for n, value in enumerate(values, 1):
        run.history.append((n, value))
        last, before = values[max(0, n - patience) : n], values[: max(0, n - patience)]
        expected = n >= patience and (
            min(last) > 0.9 if variant == "max" else bool(before) and min(last) >= min(before)
        )
        assert run.stops() is expected
        assert UnderWay(spec, list(run.history)).stops() is expected


def test_a_call_on_pythons_own_thread_leaves_its_arithmetic_alone():
    """The kernels take numbers below 10⁻³⁸ for zero; the thread that called them does not."""
    fleet = NativeEngine().single().fleet(LONG[:1])
    fleet.launch(10)
    assert np.float32(2.0**-126) * np.float32(0.5) > 0
