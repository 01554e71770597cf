"""Runs of the transformer block in a folder: what is finished, what is under way, and how it was made.

runs.jsonl     finished runs, a line each, synced one by one
runs.parquet   the same as a table
states/        stacks of runs under way
manifest.json  for every time that it was worked on: command, commit, machine, versions, durations
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from headcount.block.evaluate import ANSWERS
from headcount.block.spec import BlockResult, BlockSpec
from headcount.block.state import StackState
from headcount.errors import InputError
from headcount.files import replacing
from headcount.progress import notice

_OF_SPEC = (
    *(
        "hash",
        "table",
        "table_hash",
        "items",
        "length",
        "d_model",
        "heads",
        "key_dim",
        "budget",
        "seed",
        "scale",
        "control",
    ),
    *("steps", "batch", "learning_rate"),
)
_OF_RESULT = ("best_validation", "best_step", "test", "final_test", "barred_test")
BLOCK_COLUMNS = (
    *_OF_SPEC,
    *_OF_RESULT,
    *(f"answer_{name}" for name in ANSWERS),
    *(
        "target_best",
        "target_mean",
        "own_best",
        "own_mean",
        "loss",
        "diverged",
        "seconds",
        "history",
    ),
)


@dataclass(frozen=True)
class BlockFolder:
    """A folder with the files above; any of them may still be missing."""

    path: Path

    def results(self) -> list[BlockResult]:
        """The finished runs, in the order in which they ended; a line cut short by a crash is passed over.

        Of two results for one spec the first is kept.
        """
        file = self.path / "runs.jsonl"
        if not file.is_file():
            return []
        lines = file.read_text(encoding="utf-8").split("\n")
        try:
            found = [BlockResult.from_json(line) for line in lines[:-1]]
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{file}: holds a line that is no run ({error}); remove it and start again"
            ) from None
        return list({result.spec: result for result in reversed(found)}.values())[::-1]

    def add(self, results: Sequence[BlockResult]) -> None:
        """Keep these runs, and drop the states that hold nothing else."""
        file = self.path / "runs.jsonl"
        whole = file.read_bytes() if file.is_file() else b""
        with file.open("r+b" if whole else "wb") as out:
            out.truncate(whole.rfind(b"\n") + 1)
            out.seek(0, os.SEEK_END)
            out.write("".join(result.to_json() + "\n" for result in results).encode())
            out.flush()
            os.fsync(out.fileno())
        known = {result.spec for result in self.results()}
        for path, specs in self._states():
            if specs <= known:
                path.unlink()

    def keep(self, state: StackState) -> None:
        """Keep a stack under way."""
        folder = self.path / "states"
        folder.mkdir(exist_ok=True)
        name = hashlib.blake2b(
            "".join(spec.hash for spec in state.specs).encode(), digest_size=16
        ).hexdigest()
        state.save(folder / f"{name}.safetensors")

    def under_way(self, wanted: Iterable[BlockSpec]) -> list[StackState]:
        """Stacks to go on with: all of their runs are wanted, and no run stands in two of them."""
        left, found = set(wanted), []
        for path, specs in self._states():
            if specs <= left:
                found.append(StackState.load(path))
                left -= specs
        return found

    def write_table(self) -> None:
        """Write the finished runs as a table."""
        with replacing(self.path / "runs.parquet") as temporary:
            block_frame(self.results()).to_parquet(temporary, index=False, compression="zstd")

    def frame(self) -> pd.DataFrame:
        """The table of finished runs; empty where there is none."""
        file = self.path / "runs.parquet"
        if not file.is_file():
            return block_frame(self.results())
        try:
            return pd.read_parquet(file).loc[:, list(BLOCK_COLUMNS)]
        except (ValueError, KeyError, OSError) as error:
            raise InputError(
                f"{file}: cannot be read ({error}); remove it and run the command again"
            ) from None

    def made(self) -> list[dict[str, Any]]:
        """Every time that the folder was worked on; none for a new one."""
        file = self.path / "manifest.json"
        try:
            return json.loads(file.read_text(encoding="utf-8"))["made"] if file.is_file() else []
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{file}: is no manifest ({error}); remove it and run the command again"
            ) from None

    def write_made(self, entries: Sequence[dict[str, Any]]) -> None:
        """Keep them."""
        with replacing(self.path / "manifest.json") as temporary:
            text = json.dumps({"made": list(entries)}, indent=2, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")

    def provenance(self) -> dict[str, Any]:
        """How most of it was made, and how much there is of it."""
        made = self.made()
        if not made:
            return {}
        main = max(made, key=lambda entry: entry["trained"])
        kept = {
            name: main[name]
            for name in ("command", "commit", "date", "machine", "device", "versions")
        }
        return kept | {
            "runs": len(self.frame()),
            "seconds": sum(entry["seconds"] for entry in made),
        }

    def _states(self) -> list[tuple[Path, set[BlockSpec]]]:
        """Whole states with their runs, largest first; one that cannot be read is passed over, with a notice."""
        found = []
        for path in (self.path / "states").glob("[!.]*.safetensors"):  # a dot: being written
            try:
                found.append((path, set(StackState.runs_in(path))))
            except InputError as error:
                notice(str(error))
        return sorted(found, key=lambda entry: (-len(entry[1]), entry[0]))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from working here; the system lets go when this one ends, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"{self.path}: another process trains there; wait for it, or name another"
                ) from None
            yield

    def is_filled(self) -> bool:
        """Whether there is a run of its own."""
        return (self.path / "runs.jsonl").is_file() or (self.path / "runs.parquet").is_file()


def block_frame(results: Iterable[BlockResult]) -> pd.DataFrame:
    """A row per run with the columns `BLOCK_COLUMNS`."""
    return pd.DataFrame([_row(result) for result in results], columns=list(BLOCK_COLUMNS))


def _row(result: BlockResult) -> dict[str, Any]:
    seen = result.attention
    return (
        {name: getattr(result.spec, name) for name in _OF_SPEC}
        | {
            name: value
            for name, value in asdict(result).items()
            if name in (*_OF_RESULT, "loss", "seconds")
        }
        | {f"answer_{name}": result.answers[name] for name in ANSWERS}
        | {"target_best": seen.best_target, "target_mean": fmean(seen.target)}
        | {"own_best": seen.best_own, "own_mean": fmean(seen.own)}
        | {"diverged": float("nan") if result.diverged is None else result.diverged}
        | {"history": json.dumps([[step, round(value, 5)] for step, value in result.history])}
    )
