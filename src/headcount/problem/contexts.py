"""Contexts: the sampler of Appendices A.1 (permutations) and A.3 (general graphs), labels, files.

One procedure serves both appendices. For a context of ℓ of the m items:

1. draw ℓ distinct items S uniformly, in uniform order;
2. let each of them be in U with probability ρ (so |U| ~ Binomial(ℓ, ρ) and U is uniform given its
   size);
3. for each i in U, in order: if no out-neighbour of i is in S, put a uniformly chosen one in place
   of a uniformly chosen item other than i. An i that an earlier replacement put out of its slot is
   skipped.

With out-degree 1 step 3 is A.1's. All of it is vectorised over contexts, slot by slot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.files import existing_file, read_records
from headcount.problem.distinct import distinct_items
from headcount.problem.graph import Graph
from headcount.problem.streams import below, halves, stream_key, words
from headcount.problem.table_files import read_npy
from headcount.problem.vocabulary import Vocabulary
from headcount.shapes import Bool, Int

_CHUNK = 8192  # contexts drawn together
_FEW_NEIGHBORS = 64  # up to this degree a source's neighbours are compared one by one


@dataclass(frozen=True)
class ContextSampler:
    """Draws contexts of `length` distinct items; a share `rate` of the sources gets a target there.

    Later replacements may evict a source or its target again: at ℓ = 16, m = 512, ρ = 0.5 about 30
    % of the sources end up with one.

    Context n of a stream is a pure function of (graph, length, rate, seed, stream, n).

    >>> from headcount.problem.makers import permutation_graph
    >>> sampler = ContextSampler(permutation_graph(64), length=8)
    >>> three = sampler.draw(3, seed=0, stream="test")
    >>> third = sampler.draw(1, seed=0, stream="test", start=2)
    >>> bool((three[2] == third[0]).all())
    True
    """

    graph: Graph
    length: int = 16
    rate: float = 0.5
    device: str | torch.device = "cpu"

    def __post_init__(self) -> None:
        if not 1 <= self.length <= self.graph.items:
            raise InputError(
                f"context length {self.length} does not fit {self.graph.items} items; "
                f"choose 1…{self.graph.items}"
            )
        if not 0 < self.rate < 1:
            raise InputError(f"rate {self.rate} is not between 0 and 1; the paper uses 0.5")

    def draw(
        self, count: int, *, seed: int, stream: str | int = "contexts", start: int = 0
    ) -> Int[Tensor, "{count} {self.length}"]:
        """Contexts `start` … `start + count − 1` of the stream, one per row."""
        key = stream_key(seed, stream)
        contexts = torch.empty(count, self.length, dtype=torch.int64, device=self.device)
        for first in range(0, count, _CHUNK):
            size = min(_CHUNK, count - first)
            numbers = torch.arange(start + first, start + first + size, device=self.device)
            contexts[first : first + size] = self._draw_chunk(key, numbers).T
        return contexts

    def _draw_chunk(
        self,
        key: int | Int[Tensor, " count"],
        numbers: Int[Tensor, " count"],
        items: int | None = None,
        first: int | Int[Tensor, " count"] = 0,
    ) -> Int[Tensor, "length count"]:
        """The contexts of these numbers, of `items` items (by default all) from `first` on.

        Slots are rows here, so that every operation runs over contiguous contexts.
        """
        slot = torch.arange(self.length, device=self.device)[:, None]
        counters = (numbers * self.length + slot) * 2
        pick, choose = halves(words(key, counters))
        place, which = halves(words(key, counters + 1))
        context = distinct_items(pick, items or self.graph.items).add_(first)  # step 1
        self._bring_targets_in(context, choose < int(self.rate * 2**32), place, which)
        return context

    def _bring_targets_in(
        self,
        context: Int[Tensor, "length count"],
        chosen: Bool[Tensor, "length count"],
        place: Int[Tensor, "length count"],
        which: Int[Tensor, "length count"],
    ) -> None:
        """Step 3, in place."""
        if self.length == 1:
            return
        starts, degrees, targets = self._arrays
        drawn = context.clone()
        for p in range(self.length):
            source = drawn[p]
            # A source that an earlier replacement evicted from its slot does not act.
            acts = chosen[p] & (context[p] == source) & (degrees[source] > 0)
            columns = acts.nonzero().squeeze(1)
            source = source[columns]
            columns = columns[~self._touches(source, context[:, columns])]
            source = drawn[p, columns]
            other = below(place[p, columns], self.length - 1)
            other += other >= p  # uniform over the slots other than p
            target = starts[source] + below(which[p, columns], degrees[source])
            context[other, columns] = targets[target]

    def _touches(
        self, source: Int[Tensor, " count"], context: Int[Tensor, "length count"]
    ) -> Bool[Tensor, " count"]:
        """Whether some out-neighbour of each source is in its context."""
        starts, degrees, targets = self._arrays
        widest = int(self.graph.out_degrees.max())
        if widest > _FEW_NEIGHBORS:  # a hub: search the sorted edge list instead
            found = self.graph.has_edges(
                source.cpu().expand_as(context).numpy(), context.cpu().numpy()
            )
            return torch.from_numpy(found.any(0)).to(context.device)
        first, degree = starts[source], degrees[source]
        touched = torch.zeros_like(source, dtype=torch.bool)
        for k in range(widest):
            neighbor = torch.where(degree > k, targets[first + k], -1)
            touched |= (context == neighbor).any(0)
        return touched

    @cached_property
    def _arrays(
        self,
    ) -> tuple[Int[Tensor, " items"], Int[Tensor, " items"], Int[Tensor, " padded"]]:
        """CSR starts, degrees and targets, padded so that reading past the last one is harmless."""
        padded = np.pad(self.graph.targets, (0, int(self.graph.out_degrees.max()) + 1))
        parts = (self.graph.starts[:-1], self.graph.out_degrees, padded)
        starts, degrees, targets = (torch.tensor(part, device=self.device) for part in parts)
        return starts, degrees, targets


class StackedSampler:
    """Draws contexts on several graphs of the same size at once, each from a stream of its own.

    It takes about as many operations as drawing on one of them.

    >>> from headcount.problem.makers import permutation_graph
    >>> graphs = [permutation_graph(64, seed) for seed in range(2)]
    >>> both = StackedSampler(graphs, 8).draw(3, [stream_key(seed, "train") for seed in range(2)])
    >>> alone = ContextSampler(graphs[1], 8).draw(3, seed=1, stream="train")
    >>> bool((both[1] == alone).all())
    True
    """

    def __init__(self, graphs: Sequence[Graph], length: int = 16, rate: float = 0.5) -> None:
        self._items, self._graphs = graphs[0].items, len(graphs)
        # One graph in which those given stand side by side.
        edges = [
            np.stack([graph.sources, graph.targets]) + number * self._items
            for number, graph in enumerate(graphs)
        ]
        union = Graph.from_arrays(self._items * len(graphs), *np.concatenate(edges, axis=1))
        self._sampler = ContextSampler(union, length, rate)

    def draw(
        self, count: int, keys: Sequence[int], start: int = 0
    ) -> Int[Tensor, "graphs {count} length"]:
        """Contexts `start` … `start + count − 1` of each graph's stream."""
        graph = torch.arange(self._graphs).repeat_interleave(count)
        numbers = torch.arange(start, start + count).repeat(self._graphs)
        columns = (torch.tensor(keys)[graph], numbers, graph * self._items)
        drawn = [
            self._sampler._draw_chunk(key, some, self._items, first).sub_(first).T
            for key, some, first in zip(*(each.split(_CHUNK) for each in columns), strict=True)
        ]
        return torch.cat(drawn).view(self._graphs, count, -1)


def labels(
    graph: Graph, contexts: Int[Tensor, "count length"]
) -> Bool[Tensor, "count length length"]:
    """y_pq of A.1: is (context[p], context[q]) an edge?"""
    rows = contexts.cpu().numpy()
    return torch.from_numpy(graph.has_edges(rows[:, :, None], rows[:, None, :])).to(contexts.device)


def read_contexts(
    path: str | os.PathLike[str], names: Vocabulary | None = None
) -> Int[Tensor, "count length"]:
    """Contexts from a `.npy` file of item ids, or from a `.csv` or `.tsv` file, one per row.

    A text file has one context per line and no header; with `names` its entries are names.
    Whether the ids are distinct items of a graph is checked where the contexts are used.
    """
    if Path(path).suffix.lower() in (".csv", ".tsv"):
        return _listed_contexts(Path(path), names)
    array = read_npy(path)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise InputError(
            f"{path}: contexts must be a 2-D array of item ids, not {array.dtype} {array.shape}"
        )
    return torch.from_numpy(array.astype(np.int64))


def _listed_contexts(path: Path, names: Vocabulary | None) -> Int[Tensor, "count length"]:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    contexts, length = list[list[int]](), 0
    for line, entries in read_records(existing_file(path), separator):
        if contexts and len(entries) != length:
            raise InputError(
                f"{path}, line {line}: has {len(entries)} items, the lines above {length}; "
                "give all contexts the same length"
            )
        length = len(entries)
        try:
            contexts.append([_item(entry, names) for entry in entries])
        except InputError as error:
            raise InputError(f"{path}, line {line}: {error}") from None
    if not contexts:
        raise InputError(f"{path}: holds no context; write one per line, items between commas")
    return torch.tensor(contexts, dtype=torch.int64)


def _item(entry: str, names: Vocabulary | None) -> int:
    if names is not None:
        return names.id(entry)
    if not re.fullmatch(r"\d{1,18}", entry.strip()):
        raise InputError(f"{entry.strip()!r} is not an item id; write ids, or give names (--names)")
    return int(entry)
