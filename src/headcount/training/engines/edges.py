"""Labels of contexts for a stack of runs: which pairs of items are edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headcount.problem.graph import Graph
from headcount.shapes import Bool, Int

_FEW_NEIGHBORS = 64  # up to this out-degree neighbours are compared one by one


class StackedEdges:
    """The edges of one graph per run, all on the same number of items."""

    def __init__(self, graphs: Sequence[Graph], device: str | torch.device) -> None:
        self._items = graphs[0].items
        widest = max(int(graph.out_degrees.max()) for graph in graphs)
        self._targets = self._codes = None
        if widest <= _FEW_NEIGHBORS:
            self._targets = torch.stack([neighbors(graph, widest) for graph in graphs]).to(device)
        else:  # a table as wide as a hub's neighbours may not fit the memory; a sorted list does
            codes = [
                graph.sources * self._items + graph.targets + run * self._items**2
                for run, graph in enumerate(graphs)
            ]
            self._codes = torch.from_numpy(np.concatenate(codes)).to(device)

    def labels(
        self, contexts: Int[Tensor, "runs *steps length"], first: int = 0
    ) -> Bool[Tensor, "runs *steps length length"]:
        """y_pq: is item q of a context an out-neighbour of item p? `first` is that of the runs."""
        run = torch.arange(first, first + len(contexts), device=contexts.device)
        run = run.view(-1, *[1] * (contexts.ndim - 1))
        source, target = contexts[..., :, None], contexts[..., None, :]
        if self._codes is not None:
            wanted = (run[..., None] * self._items + source) * self._items + target
            place = torch.searchsorted(self._codes, wanted).clamp_(max=len(self._codes) - 1)
            return self._codes[place] == wanted
        assert self._targets is not None
        found = torch.zeros(
            *contexts.shape, contexts.shape[-1], dtype=torch.bool, device=run.device
        )
        for neighbor in self._targets.unbind(2):  # together they would need much memory
            found |= neighbor[run, contexts][..., None] == target
        return found


def neighbors(graph: Graph, widest: int) -> Int[Tensor, "items {widest}"]:
    """The out-neighbours of each item, filled up with −1."""
    table = np.full((graph.items, widest), -1)
    table[graph.sources, np.arange(graph.edges) - graph.starts[graph.sources]] = graph.targets
    return torch.from_numpy(table)
