"""A benchmark as `bench all` writes it, with made-up times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headcount.bench.cases import Case
from headcount.bench.suite import all_cases, summarised

_SPEEDS = {"native": 5.0, "torch": 60.0, "eager": 540.0, "jax": 17.0}  # µs at the main shape


def made_rows(case: Case, slower: float = 1.0, rounds: int = 3) -> list[dict[str, Any]]:
    """Rows of one case; `slower` multiplies the times of the native engine."""
    work = case.flops / Case(256, 32, 8, 64).flops
    wobble = [1.0 + 0.01 * number for number in range(rounds)]

    def row(engine: str, threads: int, us: list[float], **more: Any) -> dict[str, Any]:
        middle = sorted(us)[len(us) // 2]
        return {
            "engine": engine,
            "device": "cpu",
            "threads": threads,
            **case._asdict(),
            "runs": 80,
            "us_per_run_step": middle,
            "gflops": case.flops / middle / 1e3,
            "share_evaluation": 0.05,
            "share_drawing": 0.03,
            "rounds": us,
            "missing": None,
            **more,
        }

    times = {
        name: [us * (work**0.7 if name != "eager" else 1.0) * part for part in wobble]
        for name, us in _SPEEDS.items()
    }
    times["native"] = [us * slower for us in times["native"]]
    rows = [row(name, 1, us) for name, us in times.items()]
    rows.append(row("native", 2, [us / 1.8 for us in times["native"]]))
    rates = {"us_per_run_step": None, "gflops": 92.0, "runs": None}
    rows.append(row("matmul", 1, [92.0] * rounds, **rates))
    return rows


def write_benchmark(path: Path, slower: dict[str, float] | None = None, **changed: Any) -> Path:
    """Write the file; `slower` are factors by variant, `changed` other parts of the file."""
    cases = all_cases()
    values = {
        "format": "headcount benchmark 1",
        "machine": "a machine, 2 cores",
        "cores": 2,
        "versions": {"python": "3.11", "jax": "0.10.2"},
        "commit": "abcdef0",
        "date": "2026-11-16T09:00:00+00:00",
        "settings": {"engines": ["native", "torch"], "peers": True, "repeats": 3},
        "planned": [list(case) for case in cases],
        "cases": [
            summarised(case, made_rows(case, (slower or {}).get(case.variant, 1.0)))
            for case in cases
        ],
        **changed,
    }
    path.write_text(json.dumps(values), encoding="utf-8")
    return path
