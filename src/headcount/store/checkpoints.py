"""States of unfinished runs, so that a sweep that was stopped can continue them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from headcount.store.database import Database
from headcount.store.runs import history_json, history_of
from headcount.store.schema import digest
from headcount.training.engines.base import State
from headcount.training.spec import RunSpec

_PARTS = ("weights", "first", "second", "threshold")  # of a State


@dataclass(frozen=True)
class Checkpoint:
    """An unfinished run: all that is needed to continue it."""

    spec: RunSpec
    state: State
    history: Sequence[tuple[int, float]]
    engine: str
    device: str
    seconds: float = 0.0  # so far


class Checkpoints:
    """The checkpoints of a store, one per run at most."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Store these checkpoints in one transaction.

        A finished run gets none, and a state never replaces a later one of the same engine:
        another sweep may be training the same run.
        """
        rows = [_row(checkpoint) for checkpoint in checkpoints]
        with self._database.transaction() as connection:
            for row in rows:
                connection.execute(
                    """INSERT INTO checkpoints
                    (hash, taken, engine, device, seconds, history, state, digest)
                    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
                    WHERE NOT EXISTS (SELECT 1 FROM runs WHERE hash = ?1)
                    ON CONFLICT (hash) DO UPDATE SET taken = excluded.taken,
                    engine = excluded.engine, device = excluded.device, seconds = excluded.seconds,
                    history = excluded.history, state = excluded.state, digest = excluded.digest
                    WHERE excluded.taken >= taken OR excluded.engine != engine
                    OR excluded.device != device""",
                    row,
                )

    def load(
        self, spec: RunSpec, engine: str | None = None, device: str | None = None
    ) -> Checkpoint | None:
        """Where a run was left, or None.

        One of another engine or device is not returned, as the last bits may differ there. A
        damaged one is not either: it only saves time, and the run begins again.
        """
        query = """SELECT taken, engine, device, seconds, history, state, digest
            FROM checkpoints WHERE hash = ?"""
        found = self._database.read(query, [spec.hash])
        if not found:
            return None
        taken, by, on, seconds, history, state, stored = found[0]
        if stored != _digest(spec.hash, taken, by, on, seconds, history, state):
            return None
        if engine not in (None, by) or device not in (None, on):
            return None
        try:
            tensors = load(state)
            # Release 0.1.0 wrote [W_Q, W_K] by head, which are as many numbers.
            shape = (spec.heads + spec.key_heads, spec.d_model, spec.key_dim)
            parts = {name: tensors[name].view(shape) for name in _PARTS[:-1]}
            parts["threshold"] = tensors["threshold"].view(3)
        except (SafetensorError, KeyError, RuntimeError):
            return None
        # The native engine reads and writes these numbers where they are, and asks no more.
        if any(part.dtype != torch.float32 for part in parts.values()):
            return None
        if not 0 <= taken <= spec.steps:
            return None
        whole = State(**parts, taken=taken)
        return Checkpoint(spec, whole, history_of(history), by, on, seconds)

    def __len__(self) -> int:
        return self._database.read("SELECT count(*) FROM checkpoints")[0][0]


def _row(checkpoint: Checkpoint) -> tuple[str, int, str, str, float, str, bytes, str]:
    state = checkpoint.state
    blob = save({name: getattr(state, name).detach().cpu().contiguous() for name in _PARTS})
    row = (
        checkpoint.spec.hash,
        state.taken,
        checkpoint.engine,
        checkpoint.device,
        checkpoint.seconds,
        history_json(checkpoint.history),
        blob,
    )
    return (*row, _digest(*row))


def _digest(*values: object) -> str:
    """The digest of a row, whose last value is the state: damage can make any of them anything."""
    *rest, state = values
    blob = state if isinstance(state, bytes) else repr(state).encode()
    return digest([*rest, hashlib.blake2b(blob).hexdigest()])
