"""How few columns reproduce a head's own choices: the word that it scores highest for each word.

Two answers. The kept rank is that of the head's own scores, cut to their largest singular values:
an upper bound that takes milliseconds. Compiled columns are those of any one head whose highest
score in each row is the same (`compile` with `decide="top"`), certified over all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from headcount.compiler.compile import compile
from headcount.errors import NoSolution
from headcount.problem.graph import Graph
from headcount.shapes import Float

RANDOM_HEADS = 3  # measured beside the model's
_SECONDS = 4.0  # per head, at least: less finds little among a thousand words


def kept_choices(
    query: Float[Tensor, "items key_dim"], key: Float[Tensor, "items key_dim"]
) -> Float[Tensor, " key_dim"]:
    """The share of words that keep their choice when the scores are cut to rank 1, 2, … d_k.

    The cut scores are products of combinations of the head's own queries and keys, so as many
    columns of weights give them.

    >>> kept_choices(torch.eye(3)[:, :2], torch.eye(3)[:, :2]).tolist()[-1]
    1.0
    """
    left, left_factor = torch.linalg.qr(query.double())
    right, right_factor = torch.linalg.qr(key.double())
    inner, values, other = torch.linalg.svd(left_factor @ right_factor.T)
    left, right = (left @ inner * values).float(), (right @ other.T).float()
    wanted = (left @ right.T).argmax(1)
    scores, found = torch.zeros(len(query), len(key)), []
    for place in range(len(values)):
        scores += left[:, place, None] * right[:, place]
        found.append(float((scores.argmax(1) == wanted).double().mean()))
    found[-1] = 1.0  # all columns: what the order of addition changes is not a choice
    return torch.tensor(found)


def kept_rank(kept: Float[Tensor, " key_dim"], share: float = 1.0) -> int:
    """The smallest rank from which on this share of the words keep their choice.

    >>> kept_rank(torch.tensor([0.9, 1.0, 0.8, 1.0])), kept_rank(torch.tensor([0.9, 1.0]), 0.9)
    (4, 1)
    """
    below = (kept < share).nonzero()
    return int(below.max()) + 2 if len(below) else 1


def compiled_columns(
    query: Float[Tensor, "items key_dim"],
    key: Float[Tensor, "items key_dim"],
    table: Float[Tensor, "items d_model"],
    seconds: float,
    seed: int = 0,
) -> int:
    """The fewest certified columns that make the same choices; the head's own if none are fewer.

    An upper bound: more time may find fewer.
    """
    choices = (query @ key.T).argmax(1)
    pairs = torch.stack([torch.arange(len(choices)), choices], dim=1).numpy()
    graph = Graph.from_edges(len(choices), pairs)
    try:
        found = compile(
            *(graph, table),
            heads=1,
            decide="top",
            time_limit=seconds,
            seed=seed,
            last_resort=False,
        )
    except NoSolution:
        return query.shape[1]
    return min(found.weights.budget, query.shape[1])


class TimeShare(NamedTuple):
    """The heads whose choices are compiled, as layer and number, and the seconds that each has."""

    heads: frozenset[tuple[int, int]]
    seconds: float


def shared_time(places: Sequence[tuple[int, int]], seconds: float) -> TimeShare:
    """As many heads, evenly spread, as have four seconds each; random heads take their part.

    >>> shared_time([(0, 0), (0, 1), (1, 0), (1, 1)], 20)
    TimeShare(heads=frozenset({(0, 1), (1, 1)}), seconds=4.0)
    """
    if not seconds:
        return TimeShare(frozenset(), 0.0)
    count = min(len(places), max(1, int(seconds / _SECONDS) - RANDOM_HEADS))
    spread = [int((number + 0.5) * len(places) / count) for number in range(count)]
    chosen = frozenset(places[place] for place in spread)
    return TimeShare(chosen, seconds / (count + RANDOM_HEADS))
