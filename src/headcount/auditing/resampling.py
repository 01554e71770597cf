"""Bootstrap intervals of the means over a relation's edges, such as the AUC.

Source words are drawn with replacement, each with all its edges: the edges of one word share its
query, so they are not independent.
"""

from __future__ import annotations

import numpy as np

from headcount.shapes import Float, Int

RESAMPLES = 1_000
_ENDS = (0.025, 0.975)


def mean_intervals(
    values: Float[np.ndarray, "heads edges"],
    sources: Int[np.ndarray, " edges"],
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """The ends of the 95 % interval of each row's mean; all rows see the same samples.

    >>> low, high = mean_intervals(np.array([[0.5, 0.5, 0.5], [0, 1, 1]]), np.array([0, 0, 4]))
    >>> low.tolist(), high.tolist()
    ([0.5, 0.5], [0.5, 1.0])
    """
    words, places, counts = np.unique(sources, return_inverse=True, return_counts=True)
    sums = np.zeros((len(words), len(values)))
    np.add.at(sums, places, values.T)
    share = np.full(len(words), 1 / len(words))
    drawn = np.random.default_rng(seed).multinomial(len(words), share, resamples).astype(float)
    means = drawn @ sums / (drawn @ counts)[:, None]
    low, high = np.quantile(means, _ENDS, axis=0)
    return low, high
