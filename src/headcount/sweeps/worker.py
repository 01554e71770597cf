"""What a dask worker does: train a shard of runs for a limited time."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from torch import Tensor

from headcount.block.spec import BlockResult, BlockSpec
from headcount.block.state import StackState
from headcount.block.train import choose_device, train_blocks
from headcount.errors import InputError
from headcount.problem.contents import register_bytes, unregistered
from headcount.provenance import versions
from headcount.training.engines.base import Engine, lineage
from headcount.training.engines.selection import EngineName, choose_engine
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec
from headcount.training.train import UnderWay, train

# Engine and lineage: states are resumed where they began, as the last bits may differ elsewhere.
Kind = tuple[str, str]


@dataclass
class Report:
    """What a shard of runs came to."""

    results: list[RunResult] = field(default_factory=list)
    left: list[UnderWay] = field(default_factory=list)  # with their states
    steps: int = 0
    seconds: float = 0.0
    lacks: set[str] = field(default_factory=set)  # graphs and tables to be sent; nothing was run


@dataclass
class BlockReport:
    """What a shard of block runs came to; runs that are in neither list were not begun."""

    results: list[BlockResult] = field(default_factory=list)
    states: list[StackState] = field(default_factory=list)
    steps: int = 0


def dask_setup(worker: object) -> None:
    """Leave Ctrl-C, which a terminal sends to all its processes, to the driver; dask calls this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _TimeIsUp(Exception):
    """The time of a shard is over."""


def describe_worker(engine: EngineName) -> tuple[Kind, str]:
    """What this worker trains with, and its version of headcount."""
    chosen = _engine(engine)
    return (chosen.name, lineage(chosen)), versions()["headcount"]


_warm = set[Hashable]()  # groups of specs whose kernels this worker has


def _warm_up(engine: Engine, specs: Sequence[RunSpec]) -> None:
    """Compile what these runs need and no shard before them needed."""
    fresh = [spec for spec in specs if engine.group(spec) not in _warm]
    if fresh:
        engine.prepare(fresh)
        _warm.update(engine.group(spec) for spec in fresh)


def run_shard(
    runs: Sequence[UnderWay],
    engine: EngineName,
    seconds: float,
    contents: Mapping[str, bytes] | None = None,
) -> Report:
    """Train runs from where they are, until they end or the time is up.

    `contents` are graphs and tables of one's own that this worker said it lacks; it keeps them.
    """
    for key, data in (contents or {}).items():
        register_bytes(key, data)
    if lacks := unregistered(key for run in runs for key in run.spec.contents):
        return Report(left=list(runs), lacks=lacks)
    _warm_up(_engine(engine), [run.spec for run in runs])
    report, began = Report(), time.monotonic()  # the shard's time is that of training

    def on_block(steps: int, under_way: Callable[[], list[UnderWay]]) -> None:
        report.steps += steps
        if time.monotonic() - began > seconds:
            report.left = under_way()
            raise _TimeIsUp

    with suppress(_TimeIsUp):
        train(
            [run.spec for run in runs],
            _engine(engine),
            progress=False,
            on_result=report.results.append,
            on_block=on_block,
            resume=[run for run in runs if run.state],
        )
    begun = {result.spec for result in report.results} | {run.spec for run in report.left}
    report.left += [run for run in runs if run.spec not in begun]
    report.seconds = time.monotonic() - began
    return report


@cache
def _engine(name: EngineName) -> Engine:
    """The engine of this worker, on the threads that were given to it."""
    from distributed import get_worker

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a faster engine is missing
        chosen = choose_engine(name)
    if chosen.name == "native":
        from headcount.training.engines.native.engine import NativeEngine

        return NativeEngine(threads=get_worker().state.nthreads)
    return chosen


_tables: dict[str, tuple[Tensor, Tensor]] = {}  # by hash: rows and NULL, sent once to each worker


def receive_table(key: str, rows: Tensor, null: Tensor, device: str) -> tuple[Kind, str]:
    """Keep a token table for the shards to come, and describe this worker."""
    _tables[key] = rows, null
    return ("block", choose_device(device)), versions()["headcount"]


def run_block_shard(
    specs: Sequence[BlockSpec],
    states: Sequence[StackState],
    table: str,
    device: str,
    seconds: float,
) -> BlockReport:
    """Train block runs, some of them from their states, until they end or the time is up."""
    if table not in _tables:  # the process was restarted behind the same address
        raise InputError("the worker has lost the token table; start the command again")
    report, last = BlockReport(), dict[tuple[BlockSpec, ...], StackState]()
    taken = {tuple(state.specs): state.taken for state in states}

    def on_check(state: StackState) -> None:
        stack = tuple(state.specs)
        report.steps += (state.taken - taken.get(stack, 0)) * len(stack)
        taken[stack] = state.taken
        last[stack] = state.copied("cpu")  # what is handed out is the stack's own memory

    report.results = train_blocks(
        specs,
        *_tables[table],
        device=device,
        progress=False,
        on_check=on_check,
        resume=states,
        time_limit=seconds,
    )
    finished = {result.spec for result in report.results}
    report.states = [state for stack, state in last.items() if not finished.issuperset(stack)]
    return report
