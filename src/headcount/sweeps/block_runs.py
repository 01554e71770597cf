"""Make the runs of a block plan in a folder: what is there is not made again, what was stopped goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch

from headcount.block.spec import BlockResult
from headcount.block.train import choose_device, train_blocks
from headcount.provenance import commit, machine, versions
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_plan import BlockPlan


@dataclass(frozen=True)
class Made:
    """How far it is: runs of the plan that are finished, and those still to do."""

    finished: int
    missing: int


def run_blocks(
    plan: BlockPlan,
    folder: BlockFolder,
    command: str,
    *,
    device: str = "auto",
    progress: bool = True,
    time_limit: float | None = None,
) -> Made:
    """Train what the folder lacks. Finished stacks are kept at once, others about every 20 seconds."""
    with folder.held():
        return _run(plan, folder, command, choose_device(device), progress, time_limit)


def _run(
    plan: BlockPlan,
    folder: BlockFolder,
    command: str,
    on: str,
    progress: bool,
    time_limit: float | None,
) -> Made:
    known = {result.spec for result in folder.results()}
    wanted = [spec for spec in plan.specs if spec not in known]
    before, began, started = folder.made(), time.monotonic(), datetime.now(UTC)
    trained = 0

    def entry() -> dict[str, Any]:
        return {
            "command": command,
            "commit": commit(),
            "date": started.strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine(),
            "device": torch.cuda.get_device_name() if on == "cuda" else on,
            "versions": versions(),
            "trained": trained,
            "seconds": round(time.monotonic() - began, 1),
        }

    def write() -> None:
        folder.write_table()
        if trained:
            folder.write_made([*before, entry()])

    def finished(results: list[BlockResult]) -> None:
        nonlocal trained
        folder.add(results)
        trained += len(results)
        write()

    if wanted:
        try:
            train_blocks(
                wanted,
                plan.table.embeddings,
                plan.table.null,
                device=on,
                progress=progress,
                on_check=folder.keep,
                on_results=finished,
                resume=folder.under_way(wanted),
                time_limit=time_limit,
            )
        finally:
            write()
    elif len(folder.frame()) != len(known):
        write()
    return Made(len(plan.specs) - len(wanted) + trained, len(wanted) - trained)
