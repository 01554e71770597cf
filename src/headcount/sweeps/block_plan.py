"""Files that say which runs of the transformer block to make: Section 7.3 and what goes beyond it.

The file names a token table, the task's size, and grids of runs; what a grid leaves out has the
default of BlockSpec.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from headcount.block.spec import BlockSpec
from headcount.errors import InputError
from headcount.problem.token_tables import TokenTable, token_table
from headcount.sweeps.cluster_address import TlsFiles, tls_files
from headcount.sweeps.grid import head_splits
from headcount.sweeps.toml_table import TomlTable, field_types, read_toml, tables

_WIDTH = 768  # of a Gaussian table where the file names none: GPT-2's
MOST_BLOCK_RUNS = 100_000
_FOLDER = Path(__file__).with_name("block_presets")
_FILES = sorted((path.stem for path in _FOLDER.glob("*.toml")), reverse=True)
BLOCK_PRESETS = tuple(_FILES)  # quick first
_KINDS = field_types(BlockSpec)
_OTHERWISE = ("items", "d_model", "table", "table_hash", "heads", "kv_heads", "key_dim", "seed")
_PROTOCOL = tuple(name for name in _KINDS if name not in _OTHERWISE)


@dataclass(frozen=True)
class BlockPlan:
    """A token table and the runs to make on it."""

    name: str
    table: TokenTable
    specs: tuple[BlockSpec, ...]
    tls: TlsFiles | None = None  # certificates of a tls:// scheduler


def read_block_plan(source: str | os.PathLike[str], table: str | None = None) -> BlockPlan:
    """Read a preset or a file; `table` takes the place of the table that it names.

    >>> plan = read_block_plan("quick")
    >>> plan.table.name, {spec.items for spec in plan.specs}
    ('smollm2-top512', {512})
    """
    path = _FOLDER / f"{source}.toml" if str(source) in BLOCK_PRESETS else Path(source)
    if not path.is_file():
        raise InputError(
            f"{source}: is neither a file nor one of {', '.join(BLOCK_PRESETS)}; name one of them"
        )
    top = TomlTable(str(path), read_toml(path), ("table", "d_model", "items", "cluster", "grid"))
    named = table or top.one("table", str)
    if named is None:
        raise top.wrong(
            'names no table; write table = "smollm2", "gpt2" or a file, or give --table'
        )
    items = top.one("items", int)
    width = top.one("d_model", int, _WIDTH if named == "gaussian" else None)
    if table is None:
        rows = top.located(lambda: token_table(named, items, width))
    else:  # the file did not name it, and is not where the error is
        rows = token_table(table, items, width)
    if "grid" not in top:
        raise top.wrong("has no [[grid]]; add one with heads and budgets")
    specs = list[BlockSpec]()
    for place, values in tables(top, "grid"):
        specs += _specs(place, values, rows, MOST_BLOCK_RUNS - len(specs))
    return BlockPlan(path.stem, rows, tuple(dict.fromkeys(specs)), tls_files(top, path.parent))


def _specs(place: str, values: Any, rows: TokenTable, most: int) -> Iterator[BlockSpec]:
    grid = TomlTable(place, values, ("heads", "kv_heads", "budgets", "seeds", *_PROTOCOL))
    axes = [grid.several(name, _KINDS[name]) for name in _PROTOCOL if name in grid]
    names = [name for name in _PROTOCOL if name in grid]
    budgets, splits = grid.required("budgets", int), head_splits(grid, grid.required("heads", int))
    count = len(budgets) * len(splits) * len(grid.seeds()) * prod(map(len, axes))
    if count > most:  # before any of them is made
        raise grid.wrong(
            f"{count:,} runs are too many; a file takes up to {MOST_BLOCK_RUNS:,} in all"
        )
    for budget, (heads, kv_heads) in product(budgets, splits):
        if budget % heads:
            raise grid.wrong(
                f"{heads} heads do not share a budget of {budget} evenly; choose multiples"
            )
        for seed, *chosen in product(grid.seeds(), *axes):
            settings = dict(zip(names, chosen, strict=True))
            settings |= {"items": rows.items, "d_model": rows.d_model}
            settings |= {"heads": heads, "kv_heads": kv_heads, "key_dim": budget // heads}
            settings |= {"seed": seed}
            settings |= {"table": rows.name, "table_hash": rows.hash}
            yield grid.located(partial(BlockSpec.from_mapping, settings))
