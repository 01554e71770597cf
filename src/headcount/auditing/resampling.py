"""Bootstrap intervals of the means over a relation's edges, such as the AUC.

Source words are drawn with replacement, each with all its edges: the edges of one word share its
query, so they are not independent. Few words cannot stand for others: fewer than eight give no
interval.
"""

from __future__ import annotations

import numpy as np

from headcount.shapes import Float, Int

RESAMPLES = 1_000
FEWEST_WORDS = 8
_ENDS = (0.025, 0.975)


def mean_intervals(
    values: Float[np.ndarray, "heads edges"],
    sources: Int[np.ndarray, " edges"],
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """The ends of the 95 % interval of each row's mean; all rows see the same samples.

    With too few source words both ends are NaN.

    >>> low, high = mean_intervals(np.array([[0.5] * 8, [0, 1] * 4]), np.arange(8))
    >>> low.tolist(), high.tolist()
    ([0.5, 0.125], [0.5, 0.875])
    """
    words, places, counts = np.unique(sources, return_inverse=True, return_counts=True)
    if len(words) < FEWEST_WORDS:
        none = np.full(len(values), np.nan)
        return none, none
    sums = np.zeros((len(words), len(values)))
    np.add.at(sums, places, values.T)
    share = np.full(len(words), 1 / len(words))
    drawn = np.random.default_rng(seed).multinomial(len(words), share, resamples).astype(float)
    means = drawn @ sums / (drawn @ counts)[:, None]
    low, high = np.quantile(means, _ENDS, axis=0)
    return low, high
