"""Run the preregistration on a GPU: python preregistrations/shared-keys/measure.py OUT --seconds N

Writes OUT/shared-keys.parquet every few seconds, one row per finished run. What matters most is run
first. After N seconds no further block of steps begins, and what has finished is written.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import headcount as hc
from headcount.training.result import RunResult

POINTS = ((64, 16), (128, 32), (256, 32), (512, 64), (1024, 128))
SEEDS = range(700, 710)
SPLITS = ((8, 8), (8, 1), (8, 2), (8, 4), (4, 4), (4, 2), (4, 1), (16, 16), (16, 4), (16, 1))
# Widths with keys of their own at which 20,000 steps (softmax: 80,000) sufficed before, by heads.
OWN = {
    (64, 16): {4: 5, 8: 3, 16: 2.5},
    (128, 32): {4: 5, 8: 4, 16: 3},
    (256, 32): {4: 12, 8: 7, 16: 5},
    (512, 64): {4: 14, 8: 8, 16: 6},
    (1024, 128): {4: 11, 8: 7, 16: 5},
}
OWN_SOFTMAX = {(64, 16): {8: 5, 16: 3}, (128, 32): {8: 5, 16: 3}, (256, 32): {8: 15, 16: 7}}
OWN_REGULAR = {4: 16, 8: 8, 16: 5}
OWN_ANTONYMS = {4: 14, 8: 9}
LESS_FOR_LONGER = 0.85
AT_ONCE = 6  # jobs side by side: one alone does not fill the GPU
WRITE_EVERY = 10.0  # seconds


@dataclass(frozen=True)
class Job:
    """Runs of one part that are trained together."""

    part: str
    specs: tuple[hc.RunSpec, ...]


def widths(expected: float, most: int) -> list[int]:
    """Half to twice the expected width, in steps of 2^(1/6)."""
    factors = [2 ** (step / 6) for step in range(-6, 7)]
    return sorted({min(most, max(1, round(expected * factor))) for factor in factors})


def shared(own: float, heads: int, kv_heads: int) -> float:
    """The expected width of a split: the sum of columns is that with keys of their own."""
    return own * 2 * heads / (heads + kv_heads)


def channels(splits: Any, own: Any, d_model: int, factor: float = 1.0) -> Iterator[dict[str, Any]]:
    for heads, kv_heads in splits:
        for width in widths(factor * shared(own[heads], heads, kv_heads), d_model):
            keys = 0 if kv_heads == heads else kv_heads
            for seed in SEEDS:
                yield {"heads": heads, "kv_heads": keys, "key_dim": width, "seed": seed}


def jobs() -> list[Job]:
    """All runs, in the order of the preregistration."""
    return [
        *(_main(point) for point in POINTS),
        *(_softmax(point) for point in OWN_SOFTMAX),
        _regular(),
        *(_narrow(point) for point in POINTS),
        _antonyms(),
        *(_main(point, "longer") for point in POINTS[:4]),
    ]


def _job(part: str, point: tuple[int, int], found: Iterator[dict[str, Any]], **fields: Any) -> Job:
    specs = [hc.RunSpec(*point, **{**channel, **fields}) for channel in found]
    return Job(part, tuple(dict.fromkeys(specs)))


def _main(point: tuple[int, int], part: str = "main") -> Job:
    if part == "main":
        return _job(part, point, channels(SPLITS, OWN[point], point[1]))
    fewer = channels(SPLITS, OWN[point], point[1], LESS_FOR_LONGER)
    return _job(part, point, fewer, steps=200_000, check_every=1000)


def _softmax(point: tuple[int, int]) -> Job:
    splits = [(heads, keys) for heads in (8, 16) for keys in (heads, heads // 2, 4, 2, 1)]
    splits = [split for split in dict.fromkeys(splits) if split != (16, 8)]
    found = channels(splits, OWN_SOFTMAX[point], point[1])
    return _job("softmax", point, found, variant="softmax")


def _regular() -> Job:
    splits = ((4, 4), (4, 1), (8, 8), (8, 4), (8, 2), (8, 1), (16, 16), (16, 1))
    return _job("regular", (128, 32), channels(splits, OWN_REGULAR, 32), degree=4)


def _narrow(point: tuple[int, int]) -> Job:
    found = (
        {"heads": heads, "kv_heads": 1, "key_dim": width, "seed": seed}
        for heads in (32, 64)
        for width in range(2, 15)
        for seed in SEEDS
    )
    return _job("narrow", point, found, steps=100_000, check_every=1000)


def _antonyms() -> Job:
    graph, table = hc.relations("antonyms", table="minilm")
    splits = ((4, 4), (4, 2), (4, 1), (8, 8), (8, 2), (8, 1))
    found = channels(splits, OWN_ANTONYMS, table.shape[1])
    specs = [
        hc.RunSpec.on(graph, table, steps=50_000, check_every=1000, **channel) for channel in found
    ]
    return Job("antonyms", tuple(specs))


def row(part: str, result: RunResult) -> dict[str, Any]:
    """What is kept of a run: `reached` is the first check from which validation F1 stays at 0.99.

    It is 0 where there is none.
    """
    spec, reached = result.spec, 0
    for step, value in reversed(result.history):
        if value < 0.99:
            break
        reached = step
    sizes = ("items", "d_model", "degree", "variant", "heads", "key_dim", "seed")
    return {
        "part": part,
        **{name: getattr(spec, name) for name in sizes},
        "kv_heads": spec.kv_heads or spec.heads,
        "limit": spec.steps,
        "steps": result.steps,
        "reached": reached,
        "value": result.value,
        "diverged": result.diverged or 0,
        "engine": result.engine,
        "seconds": result.seconds,
    }


class Notebook:
    """Rows of finished runs, written while training goes on."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows, self._lock = path, list[dict[str, Any]](), threading.Lock()
        self._written = time.monotonic()

    def add(self, part: str, result: RunResult) -> None:
        with self._lock:
            self._rows.append(row(part, result))
            if time.monotonic() - self._written > WRITE_EVERY:
                self._write()

    def write(self) -> None:
        with self._lock:
            self._write()

    def _write(self) -> None:
        frame = pd.DataFrame(self._rows)
        frame = frame.astype({"value": "float32", "seconds": "float32"})
        partial = self._path.with_suffix(".part")
        frame.to_parquet(partial, compression="zstd", index=False)
        partial.replace(self._path)
        self._written = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--parts", nargs="*", help="only these parts")
    chosen = parser.parse_args()
    from headcount.training.engines.triton.engine import TritonEngine

    began = time.monotonic()
    wanted = [job for job in jobs() if not chosen.parts or job.part in chosen.parts]
    print(sum(len(job.specs) for job in wanted), "runs in", len(wanted), "jobs", flush=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    notebook = Notebook(chosen.out / "shared-keys.parquet")

    def is_late() -> bool:
        return time.monotonic() - began > chosen.seconds

    def prepare(part: str) -> None:
        if not is_late():
            TritonEngine().prepare(
                [spec for job in wanted if job.part == part for spec in job.specs]
            )
            print(f"{part}: kernels ready, {time.monotonic() - began:.0f} s", flush=True)

    def stop_late(steps: int, under_way: object) -> None:
        if is_late():
            raise KeyboardInterrupt  # `train` ends there and keeps what has finished

    def run(job: Job) -> None:
        prepared[job.part].result()
        if is_late():
            print(f"{job.part}: no time left", flush=True)
            return
        found = hc.train(
            job.specs,
            engine=TritonEngine(),
            progress=False,
            on_result=lambda result: notebook.add(job.part, result),
            on_block=stop_late,
        )
        where = job.specs[0].items, job.specs[0].d_model
        done = f"{len(found)} of {len(job.specs)} runs, {time.monotonic() - began:.0f} s"
        print(f"{job.part} {where}: {done}", flush=True)

    # Kernels of a part are compiled, on all cores, while the part before it trains.
    with ThreadPoolExecutor(1) as compiler, ThreadPoolExecutor(AT_ONCE) as pool:
        parts = dict.fromkeys(job.part for job in wanted)
        prepared = {part: compiler.submit(prepare, part) for part in parts}
        list(pool.map(run, wanted))
    notebook.write()


if __name__ == "__main__":
    main()
