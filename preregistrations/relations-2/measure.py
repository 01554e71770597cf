"""Train and compile what runs.toml lists on one GPU, and write runs.parquet and compiled.parquet.

Usage: python preregistrations/relations-2/measure.py --out FOLDER --seconds 420
The option --plan more.toml takes another list of runs.

problems.py has written the files before. What is finished is written every 20 seconds. A run that
the time limit ends is written too, with the checks that it has had.
"""

from __future__ import annotations

import argparse
import threading
import time
import tomllib
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from problems import problem

import headcount as hc
from headcount.training.engines.triton.engine import TritonEngine
from headcount.training.engines.triton.shape import Shape
from headcount.training.train import UnderWay

_COMPILE_SECONDS = {"hypernyms": 40.0, "synonyms": 60.0}  # of one search; 20 otherwise
Named = dict[hc.RunSpec, tuple[str, str]]  # relation and problem of a run


def specs(plan: dict[str, Any]) -> Named:
    """Every run of the plan in its order."""
    named: Named = {}
    for group in plan["runs"]:
        for name in group["problems"]:
            graph, table = problem(group["relation"], name)
            drawn = isinstance(table, int)
            first = hc.RunSpec.on(
                graph,
                "gaussian" if drawn else table,
                **({"d_model": table} if drawn else {}),
                heads=group["heads"],
                key_dim=1,
                steps=group["steps"],
                check_every=group["check_every"],
            )
            for budget in group["budgets"]:
                for seed in range(group["seeds"]):
                    spec = replace(first, key_dim=budget // group["heads"], seed=seed)
                    named[spec] = group["relation"], name
    return named


class Results:
    """Rows of runs and of compiled weights, written as they come."""

    def __init__(self, folder: Path, named: Named) -> None:
        self._folder, self._named, self._lock = folder, named, threading.Lock()
        self._runs: list[dict[str, Any]] = []
        self._compiled: list[dict[str, Any]] = []
        self.missed: set[tuple[str, str]] = set()  # problems where a search has failed
        self.began = time.monotonic()

    def finished(self, result: hc.RunResult) -> None:
        values = [value for _, value in result.history]
        self._add(result.spec, result.steps, values, result.value, result.diverged, "finished")

    def cut_short(self, run: UnderWay) -> None:
        values = [value for _, value in run.history]
        taken = run.history[-1][0] if run.history else 0
        self._add(run.spec, taken, values, float("nan"), None, "time")

    def compiled(self, **row: Any) -> None:
        with self._lock:
            self._compiled.append(row)

    def _add(
        self,
        spec: hc.RunSpec,
        taken: int,
        values: list[float],
        test: float,
        diverged: int | None,
        ended: str,
    ) -> None:
        relation, name = self._named[spec]
        graph, _ = problem(relation, name)
        row = {
            "relation": relation,
            "problem": name,
            "items": spec.items,
            "edges": graph.edges,
            "d_model": spec.d_model,
            "heads": spec.heads,
            "key_dim": spec.key_dim,
            "budget": spec.budget,
            "seed": spec.seed,
            "steps": spec.steps,
            "taken": taken,
            "check_every": spec.check_every,
            "value": test,
            "diverged": diverged,
            "ended": ended,
            "device": torch.cuda.get_device_name(),
            "after_s": round(time.monotonic() - self.began, 1),
            "hash": spec.hash,
            "validation": [round(value, 5) for value in values],
        }
        with self._lock:
            self._runs.append(row)

    def write(self) -> None:
        with self._lock:
            runs, compiled = list(self._runs), list(self._compiled)
        for name, rows in (("runs", runs), ("compiled", compiled)):
            if rows:
                pd.DataFrame(rows).to_parquet(self._folder / f"{name}.parquet", index=False)
        print(f"{time.monotonic() - self.began:.0f} s: {len(runs)} runs, {len(compiled)} compiled",
              flush=True)  # fmt: skip


def start_training(named: Named, results: Results, deadline: float) -> list[threading.Thread]:
    """One thread per size of kernel: the fleets of one `train` wait for each other at each check.

    The longest runs begin first.
    """
    parts: dict[Any, list[hc.RunSpec]] = defaultdict(list)
    for spec in named:
        parts[Shape.of(spec), spec.steps, named[spec][0]].append(spec)

    def work(part: list[hc.RunSpec]) -> None:
        def after_block(_: int, under_way: Callable[[], list[UnderWay]]) -> None:
            if time.monotonic() > deadline:
                for run in under_way():
                    results.cut_short(run)
                raise KeyboardInterrupt

        try:
            hc.train(
                part,
                engine=TritonEngine(),
                progress=False,
                on_result=results.finished,
                on_block=after_block,
            )
        except Exception:  # a failure of one size must not end the others
            traceback.print_exc()

    def length(part: list[hc.RunSpec]) -> int:
        shape = Shape.of(part[0])
        return shape.dm * shape.d * part[0].steps

    ordered = sorted(parts.values(), key=length, reverse=True)
    threads = [threading.Thread(target=work, args=(part,), daemon=True) for part in ordered]
    for thread in threads:
        thread.start()
    return threads


def searches(plan: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Relation, problem and budget of every search of the plan."""
    for group in plan["compiled"]:
        for name in group["problems"]:
            for budget in group["budgets"]:
                yield group["relation"], name, budget


def compile_until(deadline: float, left: Iterator[tuple[str, str, int]], results: Results) -> None:
    """Search for certified weights, one after the other. Too little time leaves the rest.

    Budgets descend: where one was not reached, the smaller ones of that problem are left out.
    """
    while deadline - time.monotonic() > 5 and (search := next(left, None)):
        relation, name, budget = search
        if (relation, name) in results.missed:
            continue
        graph, table = problem(relation, name)
        rows = hc.gaussian_embeddings(graph.items, table) if isinstance(table, int) else table
        began = time.monotonic()
        limit = min(_COMPILE_SECONDS.get(relation, 20.0), deadline - began)
        row: dict[str, Any] = {"certified": False, "widths": "", "margin": float("nan")}
        try:
            found = hc.compile(graph, rows, budget=budget, device="cuda", time_limit=limit)
            row["widths"] = " ".join(str(width) for width in found.weights.widths)
            row |= {"certified": True, "margin": found.certificate.margin, "note": ""}
        except Exception as error:  # not found in time, or out of memory: a result too
            results.missed.add((relation, name))
            row["note"] = f"{type(error).__name__}: {error}"[:300]
        seconds = round(time.monotonic() - began, 1)
        row = {"relation": relation, "problem": name, "budget": budget, **row}
        results.compiled(**row, limit_s=round(limit, 1), seconds=seconds)


def main() -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plan", default="runs.toml")
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--compile-seconds", type=float, default=100, help="before training begins")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    plan = tomllib.loads(Path(__file__).with_name(options.plan).read_text(encoding="utf-8"))
    named, left = specs(plan), searches(plan)
    results = Results(options.out, named)
    # Training fills the GPU, and the small kernels of a search would wait for every one of its
    # blocks. So searches come first, while Triton compiles, and again after training.
    first = threading.Thread(
        target=compile_until, args=(began + options.compile_seconds, left, results), daemon=True
    )
    first.start()
    TritonEngine().prepare(list(named))
    print(f"kernels are ready after {time.monotonic() - began:.0f} s", flush=True)
    first.join()
    results.write()
    # A block of the widest runs takes some ten seconds, so training ends before the limit.
    threads = start_training(named, results, began + options.seconds - 25)
    while any(thread.is_alive() for thread in threads):
        if time.monotonic() > began + options.seconds:
            break
        for thread in threads:
            thread.join(timeout=20 / len(threads))
        results.write()
    compile_until(began + options.seconds - 10, left, results)
    results.write()


if __name__ == "__main__":
    main()
