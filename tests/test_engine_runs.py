"""A run on every engine: alone or in company, diverging, interrupted, and over many seeds."""

from __future__ import annotations

import _thread
import math
import signal
import statistics
import time
from functools import cache

import pytest
import torch
from scipy import stats

from headcount.training.engines.native.engine import NativeEngine
from headcount.training.engines.torch import TorchEngine
from headcount.training.spec import RunSpec
from headcount.training.train import train
from tests.made_engines import ENGINES, bits, made, small_run
from tests.processes import forked


def test_a_result_depends_neither_on_order_nor_on_company(engine):
    several = [
        small_run(engine, seed=n % 2, variant=name)
        for n, name in enumerate(("max", "max", "softmax", "value", "sum", "logsumexp"))
    ]
    several += [
        small_run(engine, heads=5, seed=7),
        small_run(engine, d_model=9),
        small_run(engine, learning_rate=1e-2),
    ]
    together = bits(train(several, engine, progress=False, weights=True))
    assert together == bits(train(several[::-1], engine, progress=False, weights=True))[::-1]
    assert together == [
        bits(train([spec], engine, progress=False, weights=True))[0] for spec in several
    ]
    assert len({str(result) for result in together}) == len(several)


def test_threads_do_not_show():
    several = [small_run(made("native-plain"), seed=seed, heads=1 + seed % 4) for seed in range(8)]
    one, three = (
        train(several, NativeEngine(threads=n), progress=False, weights=True) for n in (1, 3)
    )
    assert bits(one) == bits(three)


@pytest.mark.filterwarnings(
    "ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning"
)  # interpreted kernels
def test_a_run_that_diverges_says_when_and_leaves_its_neighbours_alone(engine):
    calm = [small_run(engine, seed=1), small_run(engine, seed=2)]
    wild = small_run(engine, learning_rate=1e25)
    found = train([calm[0], wild, calm[1]], engine, progress=False)
    expected = train([wild], TorchEngine("cpu"), progress=False)[0]
    # Where scores overflow, a sum of products is ±inf with fused multiply-adds and NaN without:
    # one step apart.
    assert found[1].diverged in (2, 3)
    assert expected.diverged in (2, 3)
    assert math.isnan(found[1].value)
    assert found[1].steps == wild.check_every
    assert bits([found[0], found[2]]) == bits(train(calm, engine, progress=False))


@pytest.mark.filterwarnings(
    "ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning"
)  # interpreted kernels
def test_a_run_that_diverges_in_its_last_step_is_reported_too(engine):
    calm, wild = small_run(engine, steps=2), small_run(engine, steps=2, learning_rate=1e25)
    found = train([wild, calm], engine, progress=False, weights=True)
    assert found[0].diverged == 2
    assert math.isnan(found[0].value)
    assert found[0].weights is None
    assert found[1].weights is not None


def test_a_fleet_goes_on_with_the_runs_it_keeps(engine):
    several = [small_run(engine, seed=seed) for seed in range(3)]
    fleet, alone = engine.fleet(several), engine.fleet([several[2]])
    for one in (fleet, alone):
        one.launch(4)
    fleet.keep([0, 2])
    fleet.contexts(3)  # leaves no trace
    for one in (fleet, alone):
        one.launch(3)
    assert fleet.specs == [several[0], several[2]]
    assert fleet.check().values[1] == alone.check().values[0]
    assert torch.equal(fleet.states([1])[0].weights, alone.states([0])[0].weights)
    assert fleet.test([1]) == alone.test([0])


# --- interrupts -----------------------------------------------------------------------------------


def interrupted() -> None:
    short = [RunSpec(32, 8, 2, 2, seed=seed, steps=10, check_every=10) for seed in range(2)]
    long = [RunSpec(64, 64, 16, 16, seed=seed, steps=10**8, check_every=10**6) for seed in range(3)]
    engine = NativeEngine(threads=2)
    done = train(short + long, engine, progress=False, on_result=lambda result: print("done"))
    print(len(done), all(result.spec in short for result in done))


def test_an_interrupt_returns_the_finished_runs_at_once():
    made("native-plain")
    with forked(interrupted) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["done\n"] * 2
        time.sleep(0.2)  # now in the long runs
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.end() == (0, "2 True\n", "")
        assert time.monotonic() - began < 20  # a block would take a minute


def often_interrupted() -> None:
    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    threads = _thread._count()
    fleet = NativeEngine(threads=2).fleet([RunSpec(64, 32, 8, 8, seed=seed) for seed in range(4)])
    fleet.launch(1)
    for n in range(60):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + n * 0.00002)
            fleet.launch(4000)
            print("not interrupted")
        except KeyboardInterrupt:
            pass
    time.sleep(0.1)
    assert _thread._count() == threads, "a worker is left"
    used = time.process_time()
    time.sleep(0.05)
    print(time.process_time() - used < 0.03)


def test_an_interrupt_at_any_moment_leaves_no_worker_behind():
    made("native-plain")
    with forked(often_interrupted) as process:
        assert process.end() == (0, "True\n", "")


# --- the distribution of results ------------------------------------------------------------------


@cache
def values_of(name: str, *shape: int) -> tuple[float, ...]:
    seeds = [RunSpec(*shape, seed=seed) for seed in range(10)]
    return tuple(result.value for result in train(seeds, made(name), progress=False))


def interval(values: tuple[float, ...]) -> tuple[float, float]:
    """The 95 % t-interval of the mean, at least 0.001 either way."""
    half = max(1e-3, stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return statistics.mean(values) - half, statistics.mean(values) + half


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(64, 16, 4, 5), (64, 16, 1, 20), (128, 64, 1, 7)])
@pytest.mark.parametrize("name", [name for name in ENGINES if name != "torch"])
def test_mean_f1_over_seeds_is_the_references(name, shape):
    if name == "triton" and made(name).device != "cuda":
        pytest.skip("interpreted kernels would take days; on a CUDA device this runs")
    (low, high), (lowest, highest) = (
        interval(values_of(name, *shape)),
        interval(values_of("torch", *shape)),
    )
    assert low <= highest
    assert lowest <= high
