"""Run specs, the stopping rules, and the choice of an engine."""

from __future__ import annotations

import json
import platform
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.training.engines import selection
from headcount.training.engines.base import Check, State, lockstep
from headcount.training.engines.native import library as native_library
from headcount.training.engines.native.engine import Level, NativeEngine
from headcount.training.spec import RunSpec
from headcount.training.train import train

# --- specs ----------------------------------------------------------------------------------------


@st.composite
def any_spec(draw) -> RunSpec:
    items = draw(st.integers(2, 10**6))
    variant = draw(st.sampled_from(["max", "softmax", "value", "sum"]))
    share = st.floats(0.001, 0.999)
    return RunSpec(
        items=items,
        d_model=draw(st.integers(1, 4096)),
        heads=draw(st.integers(1, 512)),
        key_dim=draw(st.integers(1, 512)),
        seed=draw(st.integers(0, 2**63 - 1)),
        degree=draw(st.integers(1, min(items - 1, 9))),
        variant=variant,
        graph=draw(st.sampled_from(["regular", "random", "skewed"])),
        table=draw(st.sampled_from(["gaussian", "binary"])),
        length=draw(st.integers(2 if variant == "value" else 1, min(items, 64))),
        rate=draw(share),
        learning_rate=draw(st.floats(1e-9, 1e9)),
        sharpness=draw(st.floats(1e-9, 1e9)),
        steps=draw(st.integers(0, 10**9)),
        target=draw(share),
    )


@settings(deadline=None, max_examples=60)
@given(any_spec())
def test_a_spec_survives_its_json(spec):
    again = RunSpec.from_json(spec.to_json())
    assert again == spec
    assert (again.hash, again.stream, again.to_json()) == (spec.hash, spec.stream, spec.to_json())
    shuffled = dict(sorted(json.loads(spec.to_json()).items(), reverse=True))
    assert RunSpec.from_mapping(shuffled).hash == spec.hash


def test_the_hash_is_the_same_on_every_machine(unchecked):
    spec = RunSpec(64, 16, 4, 5, seed=3)
    assert spec.hash == "9794792750c2de402747cde5bf32ec47"
    assert replace(spec, draws=1).hash == "1accbfd0be783d8253c23a26be2972d4"  # of release 0.1.0
    same = RunSpec(np.int64(64), 16.0, 4, np.int32(5), seed=3, rate=np.float64(0.5))  # type: ignore
    assert same.hash == spec.hash
    assert replace(spec, target=0.99).hash != spec.hash
    # Fields that release 0.1.0 lacked are named only at other values than its own.
    for field, usual in (("graph", "regular"), ("table", "gaussian")):
        assert replace(spec, **{field: usual}).hash == spec.hash
        assert field not in spec.to_json()
    assert replace(spec, graph="random").hash == "40516147d484b43873203bc2317a3913"
    assert replace(spec, table="binary").hash != replace(spec, graph="random").hash
    # The same draws, stopped by another rule.
    assert replace(spec, target=0.99, steps=7).stream == spec.stream


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"items": 0}, "items 0"),
        ({"d_model": 0}, "d_model 0"),
        ({"heads": -1}, "heads -1"),
        ({"key_dim": 2.5}, "key_dim must be a whole number"),
        ({"key_dim": "4"}, "key_dim must be a number"),
        ({"heads": True}, "heads must be a number"),
        ({"seed": -1}, "seed -1"),
        ({"degree": 16}, "degree 16 does not fit; choose 1…15"),
        ({"length": 17}, "length 17 does not fit; choose 1…16"),
        ({"items": 100, "length": 65}, "length 65 does not fit; choose 1…64"),
        ({"rate": 1.0}, "rate 1.0"),
        ({"learning_rate": float("nan")}, "learning_rate nan"),
        ({"sharpness": float("inf")}, "sharpness inf"),
        ({"target": 1.0}, "target 1.0"),
        ({"variant": "mean"}, "variant 'mean' is unknown"),
        ({"graph": "grid"}, "graph 'grid' is unknown; use regular, random, skewed"),
        ({"table": "ternary"}, "table 'ternary' is unknown; use gaussian, binary"),
        ({"validation": 0}, "validation 0"),
    ],
)
def test_an_impossible_spec_is_refused(unchecked, changes, says):
    with pytest.raises(InputError, match=says):
        RunSpec(**({"items": 16, "d_model": 4, "heads": 2, "key_dim": 2} | changes))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"items": 16, "d_model": 4, "heads": 2, "key_dims": 2}', "did you mean 'key_dim'"),
        ('{"items": 16, "d_model": 4}', "a run needs heads, key_dim"),
        ("[1]", "one JSON object"),
        ("{", "not JSON"),
    ],
)
def test_a_wrong_description_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        RunSpec.from_json(text)


# --- the stopping rules, on a scripted engine -----------------------------------------------------


class ScriptedEngine:
    """Checks come from a script: spec → the validation metric at each check."""

    name, device = "scripted", "none"

    def __init__(self, script: dict[RunSpec, list[float]]) -> None:
        self.script, self.kept, self.launched = script, [], []

    def group(self, spec: RunSpec) -> str:
        return "all"

    def concurrency(self, specs: list[RunSpec]) -> int:
        return 1

    def capacity(self, spec: RunSpec) -> int:
        return 100

    def fleet(
        self, specs: Sequence[RunSpec], states: Sequence[State] | None = None
    ) -> ScriptedFleet:
        return ScriptedFleet(self, specs)

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        pass


class ScriptedFleet:
    def __init__(self, engine: ScriptedEngine, specs: Sequence[RunSpec]) -> None:
        self.engine, self.specs, self.checks = engine, list(specs), -1

    def launch(self, steps: int) -> None:
        self.checks += 1
        self.engine.launched.append(steps)

    def check(self) -> Check:
        return Check(
            [self.engine.script[spec][self.checks] for spec in self.specs], [None] * len(self.specs)
        )

    def test(self, rows: Sequence[int]) -> list[float]:
        return [self.specs[row].seed / 100 for row in rows]

    def states(self, rows: Sequence[int]) -> list[State]:
        return [State.initial(self.specs[row]) for row in rows]

    def keep(self, rows: Sequence[int]) -> None:
        self.engine.kept.append(list(rows))
        self.specs = [self.specs[row] for row in rows]


def scripted(*scripts: list[float], **fields) -> tuple[ScriptedEngine, list[int]]:
    """The steps that runs with these checks take, ten a block."""
    specs = [
        RunSpec(16, 2, 1, 1, seed=seed, check_every=10, **fields) for seed in range(len(scripts))
    ]
    engine = ScriptedEngine(dict(zip(specs, scripts, strict=True)))
    results = train(specs, engine, progress=False)
    assert [result.spec for result in results] == specs
    assert [result.value for result in results] == [seed / 100 for seed in range(len(scripts))]
    for result, script in zip(results, scripts, strict=True):
        assert [value for _, value in result.history] == script[: len(result.history)]
        assert result.history[-1][0] == result.steps
    return engine, [result.steps for result in results]


def test_fleets_are_under_way_together_as_far_as_their_shares_allow():
    specs = [RunSpec(16, 4, 1, 2, seed, steps=5, check_every=5) for seed in range(8)]
    rounds = list[list[int]]()

    class Shares(ScriptedEngine):
        """A fleet for every run; the first four take half of the engine, the others a quarter."""

        def group(self, spec: RunSpec) -> str:
            return str(spec.seed)

        def concurrency(self, specs: list[RunSpec]) -> int:
            return 2 if specs[0].seed < 4 else 4

        def fleet(
            self, specs: Sequence[RunSpec], states: Sequence[State] | None = None
        ) -> ScriptedFleet:
            return Watched(self, specs)

    class Watched(ScriptedFleet):
        def launch(self, steps: int) -> None:
            super().launch(steps)
            if not rounds or rounds[-1][-1] < 0:
                rounds.append([])
            rounds[-1].append(self.specs[0].seed)

        def check(self) -> Check:
            rounds[-1].append(-1)
            return super().check()

    train(specs, Shares({spec: [0.5] for spec in specs}), progress=False)
    together = [[seed for seed in one if seed >= 0] for one in rounds]
    assert together == [[0, 1], [2, 3], [4, 5, 6, 7]]


def test_a_run_stops_after_five_checks_in_a_row_above_the_target():
    good, bad = 0.996, 0.995  # 0.995 itself is not above
    engine, steps = scripted(
        [good] * 12,
        [bad] + [good] * 11,
        [good, good, good, good, bad] + [good] * 7,  # a broken streak starts anew
        [bad] * 12,
        steps=117,
    )
    assert steps == [50, 60, 100, 117]
    assert engine.kept == [[1, 2, 3], [1, 2], [1]]  # rows of what was left
    assert engine.launched == [10] * 11 + [7]  # the limit is no multiple of the interval


def test_patience_and_target_are_the_specs():
    scripts = [0.6] * 9, [0.4, 0.6, 0.6] + [0.0] * 6
    _, steps = scripted(*scripts, steps=90, patience=2, target=0.5)
    assert steps == [20, 30]


def test_value_retrieval_stops_when_five_checks_bring_no_new_best():
    falling = [1 / n for n in range(1, 13)]
    engine, steps = scripted(
        falling,
        [0.5, 0.4, 0.5, 0.4, 0.4, 0.6, 0.4, 0.1, *[0.1] * 4],  # the best stands at the second check
        [0.5] * 12,
        variant="value",
        steps=120,
    )
    assert steps == [120, 70, 60]
    assert engine.kept == [[0, 1], [0]]


def test_a_fleet_moves_in_lockstep():
    states = [replace(State.initial(RunSpec(16, 2, 1, 1)), taken=taken) for taken in (3, 5)]
    with pytest.raises(InputError, match=r"same number of steps; these have \[3, 5\]"):
        lockstep(states)


# --- which engine ---------------------------------------------------------------------------------


@pytest.fixture
def no_library(monkeypatch):
    """A machine without a GPU on which the native engine was not built."""
    monkeypatch.setattr(native_library, "LIBRARY", Path("missing.so"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    caches = (
        *(native_library.library, native_library.levels),
        *(selection._load, selection._fastest),
    )
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


def test_a_missing_engine_says_how_to_get_it(no_library, unchecked):
    with pytest.raises(InputError, match=r"install a C\+\+ compiler"):
        selection.choose_engine("native")
    with pytest.raises(InputError, match="engine 'natve' is unknown"):
        selection.choose_engine("natve")  # type: ignore


def test_auto_takes_the_next_engine_and_says_so_once(no_library):
    with pytest.warns(selection.SlowerEngine, match="Falling back to a slower engine"):
        assert selection.choose_engine("auto").name == "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert selection.choose_engine().name == "torch"


def test_a_level_that_is_not_there_is_refused():
    try:
        there = native_library.levels()
    except InputError as missing:
        pytest.skip(str(missing))
    for level in get_args(Level):  # no machine has both neon and avx2
        if level in there:
            assert NativeEngine(level=level).level_name == level
        else:
            with pytest.raises(InputError, match=f"does not run level '{level}'.* use plain"):
                NativeEngine(level=level)
    assert NativeEngine().level_name == there[-1]


def test_levels_are_those_that_the_processor_has():
    """As Linux lists what the processor has and the system saves."""
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.exists():
        pytest.skip("not Linux on x86-64")
    try:
        there = native_library.levels()
    except InputError as missing:
        pytest.skip(str(missing))
    (flags, *_) = re.findall(r"^flags\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)
    avx2 = {"avx2", "fma"} <= set(flags.split())
    avx512 = avx2 and {"avx512f", "avx512dq", "avx512vl", "avx512bw"} <= set(flags.split())
    assert there == ("plain", "baseline", "avx2", "avx512")[: 2 + avx2 + avx512]
