"""The manifest of a results folder: one entry for each command that worked on it."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from headcount.errors import InputError
from headcount.files import lock, replacing
from headcount.provenance import commit, machine, package_version, versions

TRAINING = "runs"  # the stage of an entry whose seconds count as training
_OPTIONAL_PACKAGES = ("triton", "altair")
_KEPT = ("date", "command", "commit", "machine", "device", "engine", "versions")


@dataclass
class ManifestEntry:
    """How one command filled a folder; filled in while it runs."""

    command: str
    device: str  # that it computes on
    engine: str | None = None  # None for runs of the transformer block
    only: tuple[str, ...] = ()  # the figures asked for; empty for all
    trained: int = 0
    complete: bool = False
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Record how long a stage takes; `as_dict` includes the time of one that still runs."""
        self._running[stage] = time.monotonic()
        try:
            yield
        finally:
            self.seconds = self._seconds()
            del self._running[stage]

    def as_dict(self) -> dict[str, Any]:
        """The entry as it is written to the file."""
        installed = {name: package_version(name) for name in _OPTIONAL_PACKAGES}
        return {
            "command": self.command,
            "commit": commit(),
            "date": self.began.strftime("%Y-%m-%d %H:%M UTC"),
            "only": list(self.only),
            "complete": self.complete,
            "trained": self.trained,
            "seconds": self._seconds(),
            **({"engine": self.engine} if self.engine else {}),
            "device": self.device,
            "machine": machine(),
            "versions": versions() | {name: found for name, found in installed.items() if found},
        }

    def __post_init__(self) -> None:
        self._running: dict[str, float] = {}  # when each stage under way began

    def _seconds(self) -> dict[str, float]:
        now = time.monotonic()
        running = {stage: round(now - began, 1) for stage, began in self._running.items()}
        return self.seconds | running


@dataclass(frozen=True)
class Manifest:
    """The file manifest.json of a folder, which may still be missing."""

    path: Path

    def read(self, *keys: str) -> dict[str, Any]:
        """The whole file; refused unless it has entries and these keys, of the right types."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if not isinstance(found, dict) or not {"made", *keys} <= set(found):
                raise ValueError("it is not a manifest, or not one of this kind of folder")
            if not isinstance(found["made"], list) or not found["made"]:
                raise ValueError("it has no entries")
            for number, entry in enumerate(found["made"], 1):
                if not _is_entry(entry):
                    raise ValueError(f"entry {number} is not one that headcount writes")
            if not isinstance(found.get("preset", ""), str):
                raise ValueError("its preset is not a text")
            if not all(isinstance(found.get(name, 0), int) for name in ("runs", "run_steps")):
                raise ValueError("its counts are not numbers")
        except (ValueError, OSError, RecursionError) as error:
            raise InputError(
                f"{self.path}: cannot be read ({error}); remove it and run the command again"
            ) from None
        return found

    def history(self) -> list[dict[str, Any]]:
        """The entries, one per command; empty for a new folder."""
        return self.read()["made"] if self.path.exists() else []

    def put(self, entry: Mapping[str, Any], place: int | None = None, **counts: Any) -> int:
        """Write an entry after all others, or again at its place, and give the place.

        Other commands may work on the same folder: their entries stay.
        """
        with _locked(self.path.parent):
            entries = self.history()
            place = len(entries) if place is None else place
            entries[place : place + 1] = [dict(entry)]
            self.write(entries, **counts)
        return place

    def write(self, entries: Sequence[Mapping[str, Any]], **counts: Any) -> None:
        """Write the entries, and beside them what the folder holds."""
        with replacing(self.path) as temporary:
            text = json.dumps({**counts, "made": list(entries)}, indent=2, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing here meanwhile, where the file system can."""
    if os.name == "nt":  # where a folder cannot be opened
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            lock(handle)
        yield
    finally:
        os.close(handle)  # releases the lock


def _is_entry(entry: Any) -> bool:
    """Whether an entry has what `provenance` and the report read, as they expect it."""
    if not isinstance(entry, dict) or not isinstance(entry.get("trained"), int):
        return False
    seconds = entry.get("seconds")
    times = list(seconds.values()) if isinstance(seconds, dict) else [seconds]
    versions = entry.get("versions", {})
    return (
        all(isinstance(time, int | float) and math.isfinite(time) for time in times)
        and isinstance(versions, dict)
        and all(isinstance(entry.get(name), str | None) for name in _KEPT if name != "versions")
    )


def provenance(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where, when and how most of the runs were made, and the seconds that all of them took.

    >>> entries = [{"command": "a", "trained": 1, "seconds": {"runs": 2.0, "report": 9.0}},
    ...            {"command": "b", "trained": 3, "seconds": 4.0}]
    >>> provenance(entries)
    {'seconds': 6.0, 'command': 'b'}
    """
    main = max(entries, key=lambda entry: entry["trained"])
    seconds = sum(_training_seconds(entry) for entry in entries)
    return {"seconds": seconds} | {name: main[name] for name in _KEPT if name in main}


def _training_seconds(entry: Mapping[str, Any]) -> float:
    """The seconds of training; a folder of block runs had one number up to release 0.1.0."""
    seconds = entry["seconds"]
    return seconds.get(TRAINING, 0.0) if isinstance(seconds, Mapping) else seconds


def device_name(device: str) -> str:
    """What is computed on, in words: for "cuda" the name of the GPU."""
    return torch.cuda.get_device_name() if device == "cuda" else device
