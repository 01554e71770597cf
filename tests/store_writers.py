"""What the tests of the store share: results, and writers that are killed or that race."""

from __future__ import annotations

import math
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from headcount.errors import InputError
from headcount.store.checkpoints import Checkpoint
from headcount.store.store import Store
from headcount.training.engines.base import State
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec


def spec_of(number: int) -> RunSpec:
    return RunSpec(items=16, d_model=4, heads=1 + number % 3, key_dim=1 + number % 5, seed=number)


def result_of(number: int) -> RunResult:
    history = tuple((500 * check, number / 7 + check) for check in range(1, 30))
    return RunResult(
        spec_of(number), number / 3, 20_000, -number / 9, history, None, "torch", "cpu", 0.1
    )


def bits(value: object) -> object:
    """Floats as their bits, so that −0.0 is not 0.0 and every NaN is equal to itself."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    if isinstance(value, dict):
        return {name: bits(item) for name, item in value.items()}
    return [bits(item) for item in value] if isinstance(value, list) else value


def same(one: RunResult | None, other: RunResult) -> bool:
    return one is not None and bits(_plain(one)) == bits(_plain(other))


def _plain(result: RunResult) -> dict[str, object]:
    values = {
        item.name: getattr(result, item.name) for item in fields(result) if item.name != "weights"
    }
    return values | {"history": [list(check) for check in result.history]}


def write(path: Path, first: int, last: int, said: int) -> None:
    """Store runs one by one, each after a checkpoint, and say each number once it is committed."""
    with Store(path) as store:
        for number in range(first, last):
            spec = spec_of(number)
            begun = Checkpoint(spec, State.initial(spec), [(500, 0.5)], "torch", "cpu")
            store.checkpoints.save([begun])
            store.add([result_of(number)])
            os.write(said, f"{number}\n".encode())


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def killed(path: Path, rounds: int) -> None:
    """Rounds of a writer that is killed after a random time.

    The first five are killed while they make the store, the others once they have stored ten runs,
    however slow the machine is.
    """
    for number in range(rounds):
        child = fork(lambda first=1000 * number: write(path, first, first + 1000, 1))
        wanted = _count(path) + 10 if number >= 5 else 0
        while _count(path) < wanted:
            time.sleep(0.01)
        time.sleep(random.Random(number).uniform(0, 0.02 if number < 5 else 0.1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _count(path: Path) -> int:
    try:
        with Store(path, read_only=True) as store:
            return len(store)
    except InputError:  # not made yet
        return 0


def racing(path: Path, writers: int, runs: int) -> None:
    """Writers that share half of their runs with the next, in a store that is not there yet."""
    children = [
        fork(lambda k=k: write(path, k * runs // 2, k * runs // 2 + runs, 1))
        for k in range(writers)
    ]
    sys.exit(max(os.waitpid(child, 0)[1] for child in children) and 1)
