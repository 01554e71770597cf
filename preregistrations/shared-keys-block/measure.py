"""Run the preregistration: python preregistrations/shared-keys-block/measure.py OUT --seconds N

Trains the runs of large.toml, then those of small.toml, and writes OUT/large.parquet and
OUT/small.parquet whenever a stack of runs ends, with OUT/manifest.json beside them. After N seconds
it stops; a stack that has not ended then leaves no runs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from headcount.block.spec import BlockResult
from headcount.block.train import choose_device, train_blocks
from headcount.files import replacing
from headcount.sweeps.block_frame import block_frame
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.manifest import TRAINING, Manifest, ManifestEntry, device_name

FOLDER = Path(__file__).parent
PLANS = (FOLDER / "large.toml", FOLDER / "small.toml")


def measure(path: Path, out: Path, entry: ManifestEntry, seconds: float) -> int:
    """Train the runs of one file for at most so many seconds; returns how many are missing."""
    plan, results, began = read_block_plan(path), list[BlockResult](), time.monotonic()

    def keep(found: list[BlockResult]) -> None:
        results.extend(found)
        entry.trained += len(found)
        with replacing(out / f"{plan.name}.parquet") as temporary:
            block_frame(results).to_parquet(temporary, index=False, compression="zstd")
        Manifest(out / "manifest.json").write([entry.as_dict()])
        spec, passed = found[0].spec, time.monotonic() - began
        print(f"{plan.name}, g = {spec.key_heads}: {len(found)} runs, {passed:.0f} s", flush=True)

    train_blocks(plan.specs, plan.table, on_results=keep, time_limit=seconds)
    return len(plan.specs) - len(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=280)
    chosen = parser.parse_args()
    deadline = time.monotonic() + chosen.seconds
    chosen.out.mkdir(parents=True, exist_ok=True)
    command = "python preregistrations/shared-keys-block/measure.py OUT"
    entry, missing = ManifestEntry(command, device_name(choose_device("auto"))), 0
    with entry.timed(TRAINING):
        for path in PLANS:
            if (left := deadline - time.monotonic()) > 0:
                missing += measure(path, chosen.out, entry, left)
            else:
                missing += len(read_block_plan(path).specs)
    entry.complete = not missing
    Manifest(chosen.out / "manifest.json").write([entry.as_dict()])
    print(f"{entry.trained} runs, {missing} missing", flush=True)


if __name__ == "__main__":
    main()
