"""Stores, tables of runs and states against corruption: noticed, or without effect."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path

import numpy as np
import torch

from headcount import InputError, RunSpec
from headcount.block.spec import BlockSpec
from headcount.block.state import StackState
from headcount.store.checkpoints import Checkpoint
from headcount.store.store import Store
from headcount.sweeps.block_states import StateFolder
from headcount.training.engines.base import State
from headcount.training.result import RunResult

SPECS = [RunSpec(items=16, d_model=4, heads=2, key_dim=1, seed=seed) for seed in range(4)]
BLOCK = BlockSpec(items=16, d_model=4, heads=1, key_dim=2, length=2, table="t", table_hash="0" * 32)


def case(rng: np.random.Generator) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (_store if rng.random() < 0.8 else _state)(rng, Path(folder))


def _store(rng: np.random.Generator, folder: Path) -> None:
    path = folder / "s.sqlite"
    path.write_bytes(corrupted(rng, _whole_store()))
    try:
        with Store(path, read_only=bool(rng.integers(2))) as store:
            results = {result.spec: result for result in store.results()}
            # Rows may be lost with the file's end; those that are there must be the stored ones.
            assert all(results[spec] == _result(spec) for spec in results)
            assert len(results) == 3
            left = store.checkpoints.load(SPECS[3])
            if left is not None:
                assert torch.equal(left.state.weights, State.initial(SPECS[3]).weights)
                assert left.state.taken == 0
            list(store.sweeps)
    except InputError:
        pass


def _state(rng: np.random.Generator, folder: Path) -> None:
    states = StateFolder(folder / "states")
    states.path.mkdir()
    name, data = _whole_state()
    changed = corrupted(rng, data)
    (states.path / name).write_bytes(changed)
    with redirect_stderr(io.StringIO()):  # where damage is noticed
        loaded = states.load([BLOCK])
    assert not loaded or changed == data


def corrupted(rng: np.random.Generator, data: bytes) -> bytes:
    """A bit flipped, bytes overwritten, a page emptied, two exchanged, or the end cut off."""
    array = np.frombuffer(data, dtype=np.uint8).copy()
    place, draw = int(rng.integers(len(array))), rng.random()
    if draw < 0.6:
        array[place] ^= 1 << int(rng.integers(8))
    elif draw < 0.8:
        some = array[place : place + int(rng.integers(1, 64))]
        some[:] = rng.integers(0, 256, len(some))
    elif draw < 0.9:
        first = place // 4096 * 4096
        array[first : first + 4096] = 0
    else:
        array = array[:place]
    return array.tobytes()


def _result(spec: RunSpec) -> RunResult:
    return RunResult(spec, 0.5 + spec.seed / 10, 20_000, 0.25, ((500, 0.1),), None, "a", "b", 1.0)


@cache
def _whole_store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.sqlite"
        with Store(path) as store:
            store.add([_result(spec) for spec in SPECS[:3]])
            left = Checkpoint(SPECS[3], State.initial(SPECS[3]), [], "torch", "cpu")
            store.checkpoints.save([left])
            store.sweeps.end(store.sweeps.begin("some", 3, 60_000))
        return path.read_bytes()


@cache
def _whole_state() -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        StateFolder(Path(folder)).save(StackState.initial([BLOCK]))
        (path,) = Path(folder).glob("*.safetensors")
        return path.name, path.read_bytes()
