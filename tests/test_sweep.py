"""The runner over the store, and `headcount sweep`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from headcount import RunSpec, train
from headcount.analysis.thresholds import thresholds
from headcount.errors import InputError
from headcount.interrupts import Stop
from headcount.paper import data as paper
from headcount.store.frames import plain_rows
from headcount.store.store import Store
from headcount.sweeps import runner, writer
from headcount.sweeps.cost import Throughput, estimate, work
from headcount.sweeps.file import read_sweep
from headcount.sweeps.plans import CombinedPlan, GridPlan
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.sweeps.summary import summarise_runs
from headcount.sweeps.writer import SweepWriter
from headcount.training.engines.base import State, lineage
from headcount.training.engines.selection import choose_engine
from headcount.training.engines.torch import TorchEngine, TorchFleet
from headcount.training.result import RunResult
from headcount.training.train import UnderWay
from tests.sweep_runs import GRID, RUNS, SPECS, changed, plain, table


class CountingEngine(TorchEngine):
    """Torch that records what it trains; after `fails` blocks it ends as by Ctrl-C."""

    def __init__(self, fails: int = 10**9, before: Callable[[], object] = lambda: None) -> None:
        super().__init__("cpu")
        self.trained: list[RunSpec] = []
        self.begun_at: dict[RunSpec, int] = {}
        self.blocks, self.fails, self.before = 0, fails, before

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> TorchFleet:
        self.trained += specs
        self.begun_at |= {spec: states[n].taken if states else 0 for n, spec in enumerate(specs)}
        fleet = super().fleet(specs, states)
        launch = fleet.launch

        def counted(steps: int) -> None:
            self.before()
            if self.blocks == self.fails:
                raise KeyboardInterrupt
            self.blocks += 1
            launch(steps)

        fleet.launch = counted
        return fleet


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


# --- checkpoints ----------------------------------------------------------------------------------


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


# --- kills, interrupts, races: real processes -----------------------------------------------------


def script(*words: object, **options) -> subprocess.Popen[str]:
    """tests/sweep_runs.py as a process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.sweep_runs", *map(str, words)],
        cwd=Path(__file__).parents[1], env=environment, text=True, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, list[tuple[int, int]]]:
    """A folder with the stores of an undisturbed sweep and of one that is killed ten times.

    Beside it the runs and checkpoints after each kill.
    """
    path = tmp_path_factory.mktemp("killed") / "runs.toml"
    path.write_text(RUNS)
    process = script("killed", path, 10, stdout=subprocess.PIPE)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    return path.parent, [(int(line.split()[0]), int(line.split()[1])) for line in lines]


@pytest.fixture
def undisturbed(killed) -> list[object]:
    """The table of RUNS."""
    return table(killed[0] / "undisturbed.sqlite")


def test_ten_kills_change_nothing(killed, undisturbed):
    folder, lives = killed
    assert len(lives) == 10
    assert [runs for runs, _ in lives] == sorted(
        runs for runs, _ in lives
    )  # nothing finished is lost
    assert lives[0][0] < len(undisturbed)  # kills came before the end
    assert len(undisturbed) == len(read_sweep(folder / "runs.toml").runs)
    assert table(folder / "runs.sqlite") == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_says_how_to_go_on(tmp_path, undisturbed, number):
    path = tmp_path / "runs.toml"
    path.write_text(RUNS)
    process = script("plain", path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    store, deadline = path.with_suffix(".sqlite"), time.monotonic() + 120
    while time.monotonic() < deadline:  # until it is at work
        time.sleep(0.05)
        if store.exists():
            with Store(store, read_only=True) as opened:
                if any(sweep.steps_taken for sweep in opened.sweeps):
                    break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("interrupted: ")
    assert err.endswith(
        f"of {len(undisturbed)} runs are stored in {store}; the same command continues from there\n"
    )
    with Store(store, read_only=True) as opened:
        assert next(iter(opened.sweeps)).state == "interrupted"
        assert len(opened) < len(undisturbed)
        assert len(opened.checkpoints) > 0


def test_two_sweeps_on_one_store(tmp_path, undisturbed):
    path = tmp_path / "runs.toml"
    path.write_text(RUNS)
    process = script("racing", path, stdout=subprocess.PIPE)
    out = process.communicate()[0]
    assert process.returncode == 0
    assert table(path.with_suffix(".sqlite")) == undisturbed
    both = [json.loads(line) for line in out.splitlines()]
    assert len(both) == 2
    assert all(one["known"] + one["trained"] <= len(undisturbed) for one in both)
    assert both[0]["thresholds"] == both[1]["thresholds"]


# --- searches -------------------------------------------------------------------------------------

SEARCH = (
    "[search]\nitems = 16\nd_model = 8\nheads = [1, 2]\nkey_dim = [1, 2, 3, 4, 6, 8]\nlevel = 0.6\n"
)
SEARCH += "seeds = 3\nsteps = 200\ncheck_every = 50\nlearning_rate = 0.03\n"


def test_a_search_gives_what_its_whole_grid_gives(written, command):
    code, out, _ = command("sweep", written(SEARCH), "--engine", "native", "--json")
    (found,) = json.loads(out)["searches"]
    grid = read_sweep(written(SEARCH.replace("level = 0.6\n", "").replace("search", "grid"))).runs
    with Store(written("").with_name("whole.sqlite")) as store:
        store.add(train(grid, "native", progress=False))
        (expected,) = plain_rows(thresholds(store.frame(), level=0.6))
    assert code == 0
    assert expected["central"] is not None
    assert {name: found[name] for name in expected} == expected
    assert found["settled"]
    assert found["runs"] < found["grid_runs"] == len(grid) == 36


def test_a_search_goes_on_where_it_was(written, command):
    path = written(SEARCH)
    first = json.loads(command("sweep", path, "--engine", "native", "--json")[1])
    with Store(path.with_suffix(".sqlite")) as store:
        half = list(store.results())[::2]
    with Store(path.with_name("half.sqlite")) as store:
        store.add(half)
    again = json.loads(
        command("sweep", path, "--engine", "native", "--store", "half.sqlite", "--json")[1]
    )
    assert (first["known"], again["known"], again["trained"]) == (
        0,
        len(half),
        first["trained"] - len(half),
    )
    assert again["searches"] == first["searches"]
    assert table(path.with_suffix(".sqlite")) == table(path.with_name("half.sqlite"))


def test_a_search_takes_its_budgets_from_the_law_and_a_dry_run_gives_both_ends(written, command):
    path = written("[search]\npoints = [[64, 16]]\nheads = [1, 4]\nseeds = 5\n")
    (part,) = read_sweep(path).searches
    assert {spec.budget for spec in part.runs if spec.heads == 4} == {*paper.budgets_for(64, 16, 4)}
    found = json.loads(command("sweep", path, "--dry-run", "--engine", "native", "--json")[1])
    assert found["to_run"] == found["runs"] == len(part.runs)
    assert 0 < found["least"]["to_run"] < found["to_run"]
    assert found["least"]["seconds"] < found["seconds"]
    assert "search" in command("sweep", path, "--dry-run", "--engine", "native")[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SEARCH.replace("0.6", "1.0"), r"\[search\]: level 1.0 is not between 0 and 1"),
        (SEARCH.replace("level", "levl"), "'levl' is not a key here; did you mean 'level'"),
        (SEARCH + "variant = 'value'\n", r"\[search\]: variant value is judged by squared error"),
        (SEARCH.replace("search", "grid"), r"\[grid\]: 'level' is not a key here"),
    ],
)
def test_a_wrong_search_is_refused(written, text, says):
    with pytest.raises(InputError, match=says):
        read_sweep(written(text))


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


# --- the command ----------------------------------------------------------------------------------


def test_a_dry_run_counts_and_estimates_and_touches_nothing(written, command):
    path = written(f'engine = "torch"\n{GRID}')
    code, out, err = command("sweep", path, "--dry-run", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["runs"], found["known"], found["to_run"], found["run_steps"]) == (12, 0, 12, 480)
    assert 0 < found["seconds"] < 60
    assert list(path.parent.iterdir()) == [path]
    with Store(path.with_suffix(".sqlite")) as store:
        store.add(train(SPECS[:5], "torch", progress=False))
    found = json.loads(command("sweep", path, "--dry-run", "--json")[1])
    assert (found["runs"], found["known"], found["to_run"], found["run_steps"]) == (12, 5, 7, 280)
    lines = command("sweep", path, "--dry-run")[1].splitlines()
    assert lines[0] == "some"
    assert "12: 5 known, 7 to run" in lines[1]
    assert lines[2].split(maxsplit=1)[1] == "280 at most"
    assert "estimate" in lines[-1]


def test_the_command_gives_the_thresholds_of_its_runs(written, command):
    path = written(f"name = 'first'\n{GRID}")
    code, out, err = command("sweep", path, "--engine", "torch", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["name"], found["runs"], found["known"], found["trained"]) == ("first", 12, 0, 12)
    with Store(path.with_name("first.sqlite"), read_only=True) as store:
        assert {sweep.name for sweep in store.sweeps} == {"first"}
    (told,) = found["thresholds"]
    assert {name: told[name] for name in ("items", "d_model", "variant")} == {
        "items": 16,
        "d_model": 8,
        "variant": "max",
    }
    assert told["central"] is None
    found = json.loads(command("sweep", path, "--engine", "torch", "--json")[1])
    assert (found["known"], found["trained"], found["thresholds"]) == (12, 0, [told])
    lines = command("sweep", path, "--engine", "torch")[1].splitlines()
    assert lines[0].startswith("first: 12 runs, 0 trained in 0 s, 12 known before; all in ")
    assert lines[1].split() == [
        "variant",
        "r",
        "m",
        "d_model",
        "D_K*",
        "interval",
        "h*",
        "interval",
        "d_k",
        "mean",
        "F1",
    ]


def test_value_retrieval_and_single_budgets_get_curves(written, command):
    path = written(changed(variant='["value", "max"]', heads="2", key_dim="2"))
    found = json.loads(
        command("sweep", path, "--store", "x.sqlite", "--engine", "torch", "--json")[1]
    )
    assert found["thresholds"] == []
    assert [
        (row["variant"], row["heads"], row["budget"], row["runs"]) for row in found["curves"]
    ] == [
        ("max", 2, 4, 3),
        ("value", 2, 4, 3),
    ]
    lines = command("sweep", path, "--store", "x.sqlite", "--engine", "torch")[1].splitlines()
    assert lines[1].split()[:6] == ["variant", "r", "m", "d_model", "h", "D_K"]


def test_a_file_that_is_no_store_is_left_alone(written, command, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = command("sweep", written(GRID), "--store", "notes.txt")
    assert (code, err.count("\n")) == (2, 1)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_job_that_is_preempted_leaves_checkpoints_early(tmp_path, monkeypatch):
    """The first after two seconds of work, then less and less often."""
    clock, saved = [0.0], list[float]()
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    spec = RunSpec(16, 8, 2, 2, 0, steps=2000, check_every=20)

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
