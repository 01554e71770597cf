"""What the tests of sweeps share: files, an engine that counts, sweeps that are killed or race."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from headcount import RunResult, RunSpec
from headcount.cli import main
from headcount.problem.edge_list import write_graph
from headcount.problem.makers import skewed_graph
from headcount.store.store import Store
from headcount.sweeps import runner, writer
from headcount.training.engines.base import State
from headcount.training.engines.torch import TorchEngine, TorchFleet
from tests.store_writers import bits, fork

RUNS = """
engine = "native"
[grid]
items = 32
d_model = 8
heads = [1, 2]
key_dim = [2, 4, 8]
seeds = 8
steps = 6000
validation = 64
test = 64
"""
GRID = """[grid]
items = 16
d_model = 8
heads = [1, 2]
key_dim = [1, 2]
seeds = 3
steps = 40
check_every = 20
"""
SPECS = [
    RunSpec(16, 8, heads, key_dim, seed, steps=40, check_every=20)
    for heads, key_dim, seed in product((1, 2), (1, 2), range(3))
]
# On a graph and a table of files.
OWN = """engine = "native"
[grid]
graph = "data/g.csv"
table = "data/t.npy"
heads = [1, 2]
key_dim = [2, 4]
seeds = 4
steps = 6000
"""


def write_own_sweep(folder: Path) -> Path:
    """OWN as the sweep file own.toml, and the files that it names."""
    (folder / "data").mkdir()
    write_graph(skewed_graph(40, 60, seed=5), folder / "data" / "g.csv")
    np.save(folder / "data" / "t.npy", np.random.default_rng(1).standard_normal((44, 8)))
    path = folder / "own.toml"
    path.write_text(OWN)
    return path


def changed(**lines: str) -> str:
    """GRID with some lines changed; an empty one is left out."""
    kept = dict(line.split(" = ", 1) for line in GRID.splitlines()[1:]) | lines
    return "[grid]\n" + "".join(f"{name} = {value}\n" for name, value in kept.items() if value)


def command(*words: str) -> None:
    """`headcount sweep`, with everything that happens by the clock happening often."""
    writer.BEAT, runner.CHECKPOINT, runner._PIECE = 0.03, 0.05, 0.2
    sys.argv = ["headcount", "sweep", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise


class CountingEngine(TorchEngine):
    """Torch that records what it trains; after `fails` blocks it ends as by Ctrl-C."""

    def __init__(self, fails: int = 10**9, before: Callable[[], object] = lambda: None) -> None:
        super().__init__("cpu")
        self.trained: list[RunSpec] = []
        self.begun_at: dict[RunSpec, int] = {}
        self.blocks, self.fails, self.before = 0, fails, before

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> TorchFleet:
        self.trained += specs
        self.begun_at |= {spec: states[n].taken if states else 0 for n, spec in enumerate(specs)}
        fleet = super().fleet(specs, states)
        launch = fleet.launch

        def counted(steps: int) -> None:
            self.before()
            if self.blocks == self.fails:
                raise KeyboardInterrupt
            self.blocks += 1
            launch(steps)

        fleet.launch = counted
        return fleet


def plain(result: RunResult) -> object:
    """All of a result but its seconds, with every bit."""
    found = {
        name: value
        for name, value in vars(result).items()
        if name not in ("spec", "weights", "seconds")
    }
    return bits(
        found
        | {"spec": result.spec.to_json(), "history": [list(check) for check in result.history]}
    )


def table(path: Path | str) -> list[object]:
    """All that a store knows of its runs, but times."""
    with Store(path, read_only=True) as store:
        return [plain(result) for result in store.results()]


def killed(file: str, rounds: int) -> None:
    """Run the sweep undisturbed, then kill another repeatedly, after random parts of that time.

    Says how many runs and checkpoints each life has left behind, and which signal ended it.
    """

    def life(*words: str) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        command(file, *words)

    began = time.monotonic()
    os.waitpid(fork(lambda: life("--store", str(Path(file).with_name("undisturbed.sqlite")))), 0)
    whole = time.monotonic() - began
    for number in range(rounds):
        child = fork(life)
        time.sleep(whole * random.Random(number).uniform(0.05, 0.3))
        os.kill(child, signal.SIGKILL)
        signalled = os.waitpid(child, 0)[1] & 0x7F
        with Store(Path(file).with_suffix(".sqlite")) as store:
            print(len(store), len(store.checkpoints), signalled)
    life()


def racing(file: str) -> None:
    """Two sweeps on one store, begun together."""
    children = [fork(lambda: command(file, "--json")) for _ in range(2)]
    sys.exit(max(os.waitpid(child, 0)[1] for child in children) and 1)


def on_one_core(work: Callable[..., None], *arguments: Any) -> None:
    """No machine is then too fast to be interrupted."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    work(*arguments)
