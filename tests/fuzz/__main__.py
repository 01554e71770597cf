"""Run the fuzzers: `python -m tests.fuzz [NAME …] [--seconds S] [--seed N] [--cases C]`."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

import numpy as np

from tests.fuzz import certificates, readers, stores, verify

FUZZERS = {
    "verify": verify.case,
    "certificates": certificates.case,
    "stores": stores.case,
    "readers": readers.case,
}


def run(
    names: list[str], seconds: float, first_seed: int, cases: int | None = None
) -> dict[str, int]:
    """Give each fuzzer an equal share of the time; returns how many cases each had.

    A failure ends it, after the seed that repeats the case has been printed.
    """
    counts = dict.fromkeys(names, 0)
    for name in names:
        began, seed = time.monotonic(), first_seed
        while (
            (counts[name] < cases) if cases else (time.monotonic() - began < seconds / len(names))
        ):
            case_began = time.monotonic()
            try:
                FUZZERS[name](np.random.default_rng(seed))
                assert time.monotonic() - case_began < 60, "the case took more than a minute"
            except Exception:
                traceback.print_exc()
                again = f"python -m tests.fuzz {name} --seed {seed} --cases 1"
                print(f"fuzz: {name} failed with seed {seed}; repeat it with: {again}", flush=True)
                raise SystemExit(1) from None
            counts[name], seed = counts[name] + 1, seed + 1
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *FUZZERS], default=[])
    parser.add_argument("--seconds", type=float, default=os.environ.get("FUZZ_SECONDS", 60))
    parser.add_argument("--seed", type=int, help="of the first case; drawn where it is left out")
    parser.add_argument("--cases", type=int, help="of each fuzzer, in place of a time")
    asked = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if asked.seed is None else asked.seed
    print(f"fuzz: first seed {seed}", flush=True)
    began = time.monotonic()
    for name, count in run(asked.names or list(FUZZERS), asked.seconds, seed, asked.cases).items():
        print(f"fuzz: {name}: {count:,} cases, none wrong")
    print(f"fuzz: {time.monotonic() - began:.0f} s")
    sys.exit(0)
