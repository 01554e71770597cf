"""How few columns reproduce a head's own choices: the word that it scores highest for each word.

Two answers. The kept rank is that of the head's own scores, cut to their largest singular values:
an upper bound that takes milliseconds. Compiled weights are any weights whose highest score in
each row is the head's (`compile` with `decide="top"`), certified over all pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.shapes import Float

WORDS = 256  # that a head chooses among


def kept_rank(
    query: Float[Tensor, "items key_dim"], key: Float[Tensor, "items key_dim"], share: float = 1.0
) -> int:
    """The smallest r for which the scores cut to rank r, and all larger r, keep the choices.

    `share` is how many of the words must keep their choice. Since the cut scores are products of
    combinations of the head's own queries and keys, r columns of weights give them.

    >>> kept_rank(torch.eye(3), torch.eye(3)), kept_rank(torch.ones(3, 2), torch.eye(3)[:, :2])
    (3, 1)
    """
    left, left_factor = torch.linalg.qr(query.double())
    right, right_factor = torch.linalg.qr(key.double())
    inner, values, other = torch.linalg.svd(left_factor @ right_factor.T)
    wanted = (query.double() @ key.double().T).argmax(1)
    scores = torch.zeros(len(query), len(key), dtype=torch.float64)
    rank = 1
    for place in range(len(values)):
        column = left @ inner[:, place] * values[place]
        scores += column[:, None] * (right @ other[place])
        if (scores.argmax(1) == wanted).double().mean() < share:
            rank = place + 2
    return min(rank, len(values))
