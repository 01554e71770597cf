"""The folder of a reproduction: its runs, bounds and report, and how they were made.

runs.sqlite    the store, from which an interrupted reproduction continues
runs.parquet   the finished runs, one row each
ceilings.csv   lower bounds and constructions at the same sizes
block/         runs of Section 7.3, if they were asked for; otherwise the shipped ones are shown
manifest.json  preset, seeds, and one entry per command: command, commit, machine, versions, seconds
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.files import load_frame, made_folder, replacing, save_frame
from headcount.reproduction.evidence import KEY, Evidence, gather
from headcount.reproduction.presets import preset
from headcount.store.store import Store
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.manifest import Manifest, ManifestEntry, provenance

_COLUMNS = [
    *KEY,
    "budget",
    "steps",
    "value",
    "diverged",
    "threshold",
    "engine",
    "device",
    "seconds",
]
_TYPES = dict.fromkeys((*KEY[1:], "budget", "steps"), "int32") | {
    "seconds": "float32",
    "threshold": "float32",
}
_SHIPPED_BLOCK = Path(__file__).with_name("measured") / "block"
_COUNTS = ("preset", "runs", "run_steps")  # in the manifest, beside its entries
_WHOLE_NUMBERS = ["heads", "key_dim", "budget"]


@dataclass(frozen=True)
class ResultsFolder:
    """A folder with the files above; any of them may still be missing."""

    path: Path

    @classmethod
    def opened(cls, path: str | os.PathLike[str], preset: str) -> ResultsFolder:
        """Make the folder if need be; one that holds another preset is refused."""
        folder = cls(writable(path))
        folder._require(preset)
        return folder

    @classmethod
    def existing(cls, path: str | os.PathLike[str], preset: str) -> ResultsFolder | None:
        """The folder as it is, None if there is none; one that holds another preset is refused."""
        folder = cls(Path(path))
        if not folder.path.is_dir():
            return None
        folder._require(preset)
        return folder

    def _require(self, preset: str) -> None:
        if self.history() and (before := self.manifest()["preset"]) != preset:
            raise InputError(
                f"{self.path}: holds a reproduction with --preset {before}; "
                "name another folder with --out"
            )

    @property
    def store(self) -> Path:
        """The file of the store."""
        return self.path / "runs.sqlite"

    @property
    def block(self) -> BlockFolder:
        """The runs of Section 7.3."""
        return BlockFolder(self.path / "block")

    def has_runs(self) -> bool:
        """Whether finished runs have been written."""
        return (self.path / "runs.parquet").exists()

    def runs(self) -> pd.DataFrame:
        """The finished runs."""
        return self._read("runs.parquet", lambda path: load_frame(path).loc[:, _COLUMNS])

    def write_runs(self, store: Store) -> int:
        """Copy the runs from the store and give their number."""
        frame = store.frame().loc[:, _COLUMNS].astype(_TYPES)
        save_frame(frame, self.path / "runs.parquet")
        return len(frame)

    def bounds(self) -> pd.DataFrame | None:
        """Lower bounds and constructions; None if they have not been computed."""
        if not (self.path / "ceilings.csv").exists():
            return None
        return self._read("ceilings.csv", pd.read_csv).astype(
            dict.fromkeys(_WHOLE_NUMBERS, "Int64")
        )

    def write_bounds(self, table: pd.DataFrame) -> None:
        """Write lower bounds and constructions."""
        with replacing(self.path / "ceilings.csv") as temporary:
            table.to_csv(temporary, index=False)

    def manifest(self) -> dict[str, Any]:
        """How the results were made."""
        return Manifest(self._existing("manifest.json")).read(*_COUNTS)

    def history(self) -> list[dict[str, Any]]:
        """The manifest's entries, one per command; empty for a new folder."""
        return self.manifest()["made"] if (self.path / "manifest.json").exists() else []

    @contextmanager
    def recorded(self, preset: str, entry: ManifestEntry) -> Iterator[Callable[[], None]]:
        """Add the entry to the manifest, at the start and however the work ends.

        It is there from the start so that the next command knows the preset of a run that was
        killed. The returned function updates the manifest in between.
        """
        place: int | None = None

        def write() -> None:
            nonlocal place
            runs = self.runs() if self.has_runs() else pd.DataFrame({"seed": [], "steps": []})
            steps, seeds = sum(runs["steps"].tolist()), sorted(map(int, set(runs["seed"])))
            counts = {"preset": preset, "runs": len(runs), "run_steps": steps, "seeds": seeds}
            manifest = Manifest(self.path / "manifest.json")
            place = manifest.put(entry.as_dict(), place, **counts)

        write()
        try:
            yield write
            entry.complete = True
        finally:
            write()

    def evidence(self) -> Evidence:
        """Evaluate what the folder holds."""
        manifest = self.manifest()
        made = {name: manifest[name] for name in _COUNTS} | provenance(manifest["made"])
        found = gather(self.runs(), preset(manifest["preset"]), self.bounds(), made)
        shipped = not self.block.is_filled()
        block = BlockFolder(_SHIPPED_BLOCK) if shipped else self.block
        return replace(
            found,
            block=block.frame(),
            block_provenance=block.provenance(),
            block_is_shipped=shipped,
        )

    def part_of(self, other: ResultsFolder) -> Evidence:
        """Evaluate those runs of `other` that this folder holds too, as a part of its own preset.

        The same specs trained elsewhere: what follows from them differs by the machine alone.
        """
        same = other.runs().merge(self.runs()[KEY], on=KEY, validate="one_to_one")
        return gather(same, preset(self.manifest()["preset"]))

    def _existing(self, name: str) -> Path:
        path = self.path / name
        if self.path.is_file():
            raise InputError(
                f"{self.path}: is a file, not a folder that headcount reproduce filled; for the "
                f"results of a sweep use: headcount results chart {self.path} --out chart.png"
            )
        if not path.is_file():
            raise InputError(
                f"{path}: does not exist; fill the folder with: "
                f"headcount reproduce --out {self.path}"
            )
        return path

    def _read(self, name: str, read: Any) -> Any:
        path = self._existing(name)
        try:
            return read(path)
        except (ValueError, KeyError, OSError) as error:
            raise InputError(
                f"{path}: cannot be read ({error}); remove it and run headcount reproduce again"
            ) from None


def writable(path: str | os.PathLike[str]) -> Path:
    """Make a folder if need be; one that cannot be written to is refused."""
    folder = made_folder(path)
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: cannot be written to; name another folder with --out")
    return folder
