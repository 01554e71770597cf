"""The folder of a reproduction: the runs, the ceilings and a manifest that says how they were made.

runs.sqlite    the store, from which an interrupted reproduction goes on
runs.parquet   the finished runs, a row each
ceilings.csv   lower bounds and constructions at the same points
block/         runs of Section 7.3, where some were asked for; without them those that came with headcount are shown
manifest.json  preset, seeds, and for every time that it was run: command, commit, machine, versions, durations
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.files import replacing
from headcount.reproduction.evidence import KEY, Evidence, gather
from headcount.reproduction.presets import preset
from headcount.store.store import Store
from headcount.sweeps.block_folder import BlockFolder

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
_SMALL = dict.fromkeys((*KEY[1:], "budget", "steps"), "int32") | {
    "seconds": "float32",
    "threshold": "float32",
}
_SHIPPED = Path(__file__).with_name("measured") / "block"
_WHOLE = ["heads", "key_dim", "budget"]


@dataclass(frozen=True)
class ResultsFolder:
    """A folder with the files above; any of them may still be missing."""

    path: Path

    @property
    def store(self) -> Path:
        return self.path / "runs.sqlite"

    @property
    def block(self) -> BlockFolder:
        """The runs of Section 7.3."""
        return BlockFolder(self.path / "block")

    def has_runs(self) -> bool:
        return (self.path / "runs.parquet").exists()

    def runs(self) -> pd.DataFrame:
        """The finished runs."""
        return self._read("runs.parquet", pd.read_parquet)

    def write_runs(self, store: Store) -> int:
        """Take the runs from the store; returns how many."""
        frame = store.frame().loc[:, _COLUMNS].astype(_SMALL)
        with replacing(self.path / "runs.parquet") as temporary:
            frame.to_parquet(temporary, index=False, compression="zstd")
        return len(frame)

    def ceilings(self) -> pd.DataFrame | None:
        """Lower bounds and constructions, None where they have not been computed."""
        if not (self.path / "ceilings.csv").exists():
            return None
        return self._read("ceilings.csv", pd.read_csv).astype(dict.fromkeys(_WHOLE, "Int64"))

    def write_ceilings(self, table: pd.DataFrame) -> None:
        """Keep them."""
        with replacing(self.path / "ceilings.csv") as temporary:
            table.to_csv(temporary, index=False)

    def manifest(self) -> dict[str, Any]:
        """How the results were made."""
        return self._read("manifest.json", _parsed)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Keep it."""
        with replacing(self.path / "manifest.json") as temporary:
            temporary.write_text(
                json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )

    def made(self) -> list[dict[str, Any]]:
        """Every time that the folder was worked on; none for a new one."""
        return self.manifest()["made"] if (self.path / "manifest.json").exists() else []

    def evidence(self) -> Evidence:
        """Judge what is there."""
        manifest = self.manifest()
        found = gather(
            self.runs(), preset(manifest["preset"]), self.ceilings(), _provenance(manifest)
        )
        block = self.block if self.block.is_filled() else BlockFolder(_SHIPPED)
        return replace(found, block=block.frame(), block_provenance=block.provenance())

    def _read(self, name: str, read: Any) -> Any:
        path = self.path / name
        if not path.is_file():
            raise InputError(
                f"{path}: is not there; fill the folder with: headcount reproduce --out {self.path}"
            )
        try:
            return read(path)
        except (ValueError, OSError) as error:
            raise InputError(
                f"{path}: cannot be read ({error}); remove it and run headcount reproduce again"
            ) from None


def _parsed(path: Path) -> dict[str, Any]:
    """The manifest, or a ValueError where it is none."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if (
        not isinstance(found, dict)
        or not {"preset", "runs", "run_steps", "made"} <= set(found)
        or not found["made"]
    ):
        raise ValueError("it is no manifest of a reproduction")
    return found


def _provenance(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest in a few lines: what was run, and where, when and how most of it was made."""
    made = manifest["made"]
    main = max(made, key=lambda entry: entry["trained"])
    of_main = {
        name: main[name]
        for name in ("date", "command", "commit", "machine", "device", "engine", "versions")
    }
    counts = {name: manifest[name] for name in ("preset", "runs", "run_steps")}
    return counts | {"seconds": sum(entry["seconds"].get("runs", 0.0) for entry in made)} | of_main
