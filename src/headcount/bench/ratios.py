"""Ratios between our engines and their peers, from rows that were timed in the same rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_PER_CORE = 0.95  # of what one core does alone, when all work
Row = dict[str, Any]


class Target(NamedTuple):
    """A ratio: our engine's row on a device against another row, and the value to reach, if any."""

    title: str
    ours: str
    device: str
    other: str  # "matmul": our share of the machine's rate
    goal: float | None


TARGETS = {
    "native_vs_eager": Target(
        "Native engine against eager PyTorch, one core", "native", "cpu", "eager", 60.0
    ),
    # What a compiler is worth.
    "native_vs_torch": Target(
        "Native engine against the torch engine, one core", "native", "cpu", "torch", None
    ),
    "native_vs_jax": Target("Native engine against JAX, one core", "native", "cpu", "jax", 3.0),
    "native_share_of_sgemm": Target(
        "Native engine, rate against torch's own products", "native", "cpu", "matmul", 0.5
    ),
    "torch_vs_eager": Target(
        "Torch engine against eager PyTorch, one core", "torch", "cpu", "eager", 4.0
    ),
    "triton_vs_eager": Target(
        "Triton engine against eager PyTorch", "triton", "cuda", "eager", 20_000.0
    ),
    "triton_vs_jax": Target("Triton engine against JAX", "triton", "cuda", "jax", 3.0),
    "triton_share_of_sgemm": Target(
        "Triton engine, rate against torch's own products", "triton", "cuda", "matmul", None
    ),
}
SCALING = "native_scaling"
TITLES = {name: target.title for name, target in TARGETS.items()} | {
    SCALING: "Native engine, all cores against one"
}


def ratios(rows: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    """The ratios of one case's rows, each with its target; None where a side is missing."""
    found = {
        name: {"value": _ratio(rows, target), "target": target.goal}
        for name, target in TARGETS.items()
    }
    scaling: dict[str, float | None] = {"value": None, "target": None, "per_core": None}
    if both := _one_and_all_cores(rows, "native"):
        one, many = both
        faster = one["us_per_run_step"] / many["us_per_run_step"]
        scaling["value"], scaling["per_core"] = faster, faster / many["threads"]
        scaling["target"] = _PER_CORE * many["threads"]
    scaling["products"] = None
    if both := _one_and_all_cores(rows, "matmul"):
        # What the machine gives: its cores share caches, memory and power, or are busy.
        scaling["products"] = both[1]["gflops"] / both[0]["gflops"]
    return {**found, SCALING: scaling}


def ratio_rounds(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The ratios of every round; those with a missing side are left out."""
    found: dict[str, list[float]] = {}
    for name, target in TARGETS.items():
        if not (sides := _sides(rows, target)):
            continue
        pairs = list(zip(sides[0]["rounds"], sides[1]["rounds"], strict=True))
        if target.other == "matmul":
            work = sides[0]["gflops"] * sides[0]["us_per_run_step"]
            found[name] = [work / us / rate for us, rate in pairs]
        else:
            found[name] = [theirs / ours for ours, theirs in pairs]
    if both := _one_and_all_cores(rows, "native"):
        pairs = zip(both[0]["rounds"], both[1]["rounds"], strict=True)
        found[SCALING] = [one / many for one, many in pairs]
    return found


def _ratio(rows: Sequence[Row], target: Target) -> float | None:
    if not (sides := _sides(rows, target)):
        return None
    ours, other = sides
    if target.other == "matmul":
        return ours["gflops"] / other["gflops"]
    return other["us_per_run_step"] / ours["us_per_run_step"]


def _sides(rows: Sequence[Row], target: Target) -> tuple[Row, Row] | None:
    ours, other = (_best(rows, name, target.device) for name in (target.ours, target.other))
    return (ours, other) if ours and other else None


def _one_and_all_cores(rows: Sequence[Row], name: str) -> tuple[Row, Row] | None:
    one, many = (_best(rows, name, "cpu", all_threads) for all_threads in (False, True))
    return (one, many) if one and many else None


def _best(rows: Sequence[Row], name: str, device: str, all_threads: bool = False) -> Row | None:
    """The fastest row of an engine, on one thread unless asked otherwise."""
    fitting = [
        row
        for row in rows
        if (row["engine"], row["device"]) == (name, device)
        and row["missing"] is None
        and ((row["threads"] or 1) > 1) == all_threads
    ]
    return max(fitting, key=lambda row: row["gflops"], default=None)
