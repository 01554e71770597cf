"""AdamW as every engine and peer takes it; kernels read this too, so it imports nothing."""

BETAS, EPSILON = (0.9, 0.999), 1e-8  # the usual constants; weight decay is 0
WARM = 40_000  # steps after which 1 − β₂ⁿ is 1 in float64: 0.999ⁿ is below 2⁻⁵⁴
