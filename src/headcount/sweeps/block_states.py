"""Stacks of block runs that are not finished, as files that notice damage."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headcount.block.spec import BlockSpec
from headcount.block.state import StackState
from headcount.errors import InputError
from headcount.progress import notice


@dataclass(frozen=True)
class StateFolder:
    """States as files named STACK-CHECKSUM.safetensors; those of release 0.1.0 have no checksum.

    The checksum is part of the name because a file and its checksum must change together: a kill
    between two writes would otherwise leave a good state that looks damaged.
    """

    path: Path

    def save(self, state: StackState) -> None:
        """Write a state; older ones of the same stack are removed once it is complete."""
        self.path.mkdir(exist_ok=True)
        stack = _stack_name(state.specs)
        temporary = self.path / f".{stack}.safetensors"  # a leading dot: not complete yet
        state.save(temporary)
        final = self.path / f"{stack}-{_checksum(temporary)}.safetensors"
        os.replace(temporary, final)
        for older in self.path.glob(f"{stack}*.safetensors"):
            if older != final:
                older.unlink()

    def stacks(self, wanted: Iterable[BlockSpec]) -> list[list[BlockSpec]]:
        """The runs of the states that `load` would return if none is damaged."""
        left, found = set(wanted), list[list[BlockSpec]]()
        for _, specs in self._files():
            if specs <= left:
                found.append(list(specs))
                left -= specs
        return found

    def load(self, wanted: Iterable[BlockSpec]) -> list[StackState]:
        """The states to resume: all of their runs are wanted, and no run is in two of them."""
        left, found = set(wanted), list[StackState]()
        for path, specs in self._files():
            if specs <= left and (state := _loaded(path)):
                found.append(state)
                left -= specs
        return found

    def drop(self, finished: Iterable[BlockSpec]) -> None:
        """Remove the states whose runs are all finished."""
        known = set(finished)
        for path, specs in self._files():
            if specs <= known:
                path.unlink()

    def _files(self) -> list[tuple[Path, set[BlockSpec]]]:
        """Complete states with their runs, largest first; unreadable files are skipped."""
        found = []
        for path in self.path.glob("[!.]*.safetensors"):
            try:
                found.append((path, set(StackState.runs_in(path))))
            except InputError as error:
                notice(str(error))
        return sorted(found, key=lambda entry: (-len(entry[1]), entry[0]))


def _loaded(path: Path) -> StackState | None:
    """The state in a file; None, with a notice, if it is damaged: its runs then begin again."""
    _, _, checksum = path.stem.partition("-")
    if checksum and checksum != _checksum(path):
        notice(f"{path}: has changed since it was written; its runs begin again")
        return None
    try:
        return StackState.load(path)
    except InputError as error:
        notice(str(error))
        return None


def _stack_name(specs: Sequence[BlockSpec]) -> str:
    hashes = "".join(spec.hash for spec in specs)
    return hashlib.blake2b(hashes.encode(), digest_size=16).hexdigest()


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
    return digest.hexdigest()
