"""What every training kernel does besides its products: AdamW's scales, τ, divergence."""

from __future__ import annotations

import triton.language as tl
from triton import jit

from headcount.training.adamw import WARM
from headcount.training.engines.triton.kernels.arithmetic import adam

_LAST = tl.constexpr(WARM)


@jit
def step_scales(scales, n):
    """Those of step n + 1, from all that `adam_scales` has; the last are those of later steps."""
    at = scales + 2 * tl.minimum(n, _LAST)
    return tl.load(at), tl.load(at + 1)


@jit
def load_threshold(thresholds, run):
    """τ and its moments."""
    at = thresholds + run * 3
    return tl.load(at), tl.load(at + 1), tl.load(at + 2)


@jit
def end_of_step(total, n, tau, tau_first, tau_second, diverged, rate, scale, VARIANT: tl.constexpr):
    """Move τ, and note the step at which a run's slopes stop being finite."""
    if VARIANT != "value":
        tau, tau_first, tau_second = adam(tau, -total, tau_first, tau_second, rate, scale)
    finite = (total - total) == 0.0  # false for NaN and ±∞
    return tau, tau_first, tau_second, tl.where((diverged == 0) & (finite == 0), n, diverged)


@jit
def store_threshold(thresholds, diverged_at, run, tau, tau_first, tau_second, diverged):
    """Write back what `load_threshold` read, and the step at which the run diverged."""
    tl.store(thresholds + run * 3, tau)
    tl.store(thresholds + run * 3 + 1, tau_first)
    tl.store(thresholds + run * 3 + 2, tau_second)
    tl.store(diverged_at + run, diverged)
