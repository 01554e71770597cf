"""Readers against generated files: a table, a graph, weights or a sentence, and nothing else."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file

from headcount import InputError, KeyQuery, load_embeddings, load_weights, read_names, token_table
from headcount.problem.edge_list import read_graph
from headcount.problem.tables import read_table
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.file import read_sweep
from headcount.sweeps.manifest import Manifest
from headcount.theory.model_config import read_config
from tests.fuzz.stores import corrupted

_WORDS = (
    *(b"nan", b"inf", b"-0", b"1e999", b"9007199254740993", b"9" * 5000, b"\x00", b"\xff\xfe"),
    *(b"\xef\xbb\xbf", b"\r", b"\n\n", b",,,,", b"\t", b'"', b"'", b"[" * 3000, b"{", b"}", b"\\"),
    *(b"\x1b[2J", b"true", b"-9223372036854775809", b"18446744073709551616", "٣".encode()),
)


def case(rng: np.random.Generator) -> None:
    names = list(_whole_files())
    name = names[rng.integers(len(names))]
    data = _whole_files()[name]
    for _ in range(int(rng.integers(1, 4))):
        data = _changed(rng, data)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / name
        path.write_bytes(data)
        read(path)


def read(path: Path) -> None:
    """Read a file by every reader of its kind; only an `InputError` may come out."""
    for reader in readers_of(path):
        try:
            found = reader(path)
        except InputError:
            continue
        if isinstance(found, tuple) and isinstance(found[0], torch.Tensor):
            assert found[0].isfinite().all()
            assert found[0].dtype in (torch.float32, torch.float64)
        if isinstance(found, KeyQuery):
            assert found.queries.isfinite().all()


def readers_of(path: Path) -> list[Callable[[Path], Any]]:
    """What reads a file of this name."""
    if path.name.startswith("weights"):
        return [load_weights]
    if path.name.startswith("graph"):
        return [read_graph, lambda path: read_graph(path, items=3)]
    if path.name.startswith("manifest"):
        return [lambda path: Manifest(path).read()]
    if path.name.startswith("config"):
        return [read_config]
    if path.name.startswith("block"):
        return [read_block_plan]
    if path.suffix == ".toml":
        return [read_sweep]
    if path.suffix == ".txt":
        return [read_names]
    if path.name.startswith("tokens"):
        return [token_table]
    return [read_table, load_embeddings, token_table]


def _changed(rng: np.random.Generator, data: bytes) -> bytes:
    draw, place = rng.random(), int(rng.integers(len(data) + 1))
    if draw < 0.5 and data:
        return corrupted(rng, data)
    if draw < 0.8:
        return data[:place] + _WORDS[rng.integers(len(_WORDS))] + data[place:]
    end = place + int(rng.integers(1, 40))
    if draw < 0.9:
        return data[:place] + data[end:]
    return data[:end] + data[place:]


@cache
def _whole_files() -> dict[str, bytes]:
    """A small valid file of every kind."""
    rows = np.array([[1.5, -2.0], [0.1, 3.0], [4.0, 0.0]])
    frame = pd.DataFrame({"name": ["hot", "cold", "warm"], "a": rows[:, 0], "b": rows[:, 1]})
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        np.save(here / "table.npy", rows)
        np.save(here / "integers.npy", rows.astype(np.int64))
        np.savez(here / "table.npz", embeddings=rows, names=np.array(["hot", "cold", "warm"]))
        np.savez_compressed(here / "packed.npz", embeddings=rows)
        names = {"names": json.dumps(["hot", "cold", "warm"])}
        save_file({"embeddings": torch.tensor(rows)}, here / "table.safetensors", names)
        frame.to_csv(here / "table.csv", index=False)
        frame.drop(columns="name").to_csv(here / "table.tsv", index=False, sep="\t")
        frame.to_parquet(here / "table.parquet")
        pd.DataFrame({"v": list(rows)}).to_parquet(here / "lists.parquet")
        torch.save(torch.tensor(rows), here / "table.pt")
        torch.save({"embeddings": torch.tensor(rows), "step": 3}, here / "dictionary.pt")
        ones = torch.ones(2, 2, 1)
        KeyQuery(ones, ones, 0.5, notes={"context_length": "8"}).save(here / "weights.safetensors")
        (here / "graph.csv").write_text("source,target\n0,1\n1,2\n2,0\n")
        (here / "graph.tsv").write_text("source\ttarget\tweight\nhot\tcold\t1\ncold\thot\t2\n")
        (here / "names.txt").write_text("hot\ncold\nwarm\n")
        grid = "items = 16\nd_model = 8\nheads = [1, 2]\nbudget = [4, 8]\nseeds = 3\nsteps = 40\n"
        (here / "sweep.toml").write_text(f'name = "s"\n[[grid]]\n{grid}[[search]]\n{grid}')
        plan = 'table = "gaussian"\nitems = 20\nd_model = 8\n[[grid]]\nheads = 1\nbudgets = [4]\n'
        (here / "block.toml").write_text(plan)
        entry = {"command": "a", "trained": 1, "seconds": {"runs": 1.0}, "versions": {"a": "1"}}
        (here / "manifest.json").write_text(json.dumps({"preset": "quick", "made": [entry]}))
        sizes = {"hidden_size": 64, "num_attention_heads": 8, "vocab_size": 100}
        (here / "config.json").write_text(json.dumps(sizes))
        return {path.name: path.read_bytes() for path in sorted(here.iterdir())}
