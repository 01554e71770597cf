"""What only a CUDA device shows: programs that wait for one another, and fleets side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headcount.training.spec import RunSpec
from tests.made_engines import follow_the_reference, made

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

JOINED = {"variant": "logsumexp", "temperature": 0.3}
# Runs that several programs share: some heads each, some rows, both, and pieces of heads.
SHARED_RUNS = [
    RunSpec(64, 100, 11, 6, 1, validation=12, test=4),
    RunSpec(64, 128, 16, 6, 2, validation=12, test=4, variant="softmax"),
    RunSpec(64, 200, 4, 5, 3, validation=12, test=4, **JOINED),
    RunSpec(64, 512, 16, 6, 4, validation=12, test=4),
    RunSpec(64, 256, 3, 40, 5, validation=12, test=4, variant="value"),
    RunSpec(64, 512, 1, 100, 6, validation=12, test=4, degree=2),
    RunSpec(64, 512, 64, 2, 7, validation=12, test=4, length=20),
    RunSpec(64, 512, 16, 6, 8, validation=12, test=4, variant="value"),
    RunSpec(64, 128, 16, 6, 9, validation=12, test=4, kv_heads=4),
    RunSpec(64, 512, 12, 6, 10, validation=12, test=4, kv_heads=4, variant="softmax"),
    RunSpec(64, 512, 16, 6, 11, validation=12, test=4, kv_heads=4, variant="value"),
]


@pytest.mark.parametrize("spec", SHARED_RUNS)
def test_shared_runs_follow_the_reference(spec):
    follow_the_reference(made("triton"), spec, before=100, steps=20)


def bits_of(fleet, row):
    (state,) = fleet.states([row])
    return [part.tolist() for part in (state.weights, state.first, state.second, state.threshold)]


@pytest.mark.parametrize("runs", [150, 50])  # more than fit; less, but not those of two fleets
@pytest.mark.parametrize("spec", [*SHARED_RUNS[:4], *SHARED_RUNS[-2:]])
def test_fleets_of_shared_runs_side_by_side(spec, runs):
    """Fleets on streams of their own do not block each other; a run ends as if it were alone."""
    engine = made("triton")
    specs = [replace(spec, seed=seed) for seed in range(runs)]
    fleets = [engine.fleet(specs) for _ in range(3)]
    for _ in range(4):
        for fleet in fleets:
            fleet.launch(30)
        for fleet in fleets:
            fleet.check()
    alone = engine.fleet(specs[-1:])
    for _ in range(4):
        alone.launch(30)
        alone.check()
    for fleet in fleets:
        assert bits_of(fleet, runs - 1) == bits_of(alone, 0)
