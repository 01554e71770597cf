"""Directed graphs of relations (Section 1; degrees and condition (33) of Appendix B.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from headcount.errors import InputError
from headcount.problem.vocabulary import Names, Vocabulary, as_vocabulary
from headcount.shapes import Bool, Int

if TYPE_CHECKING:
    import networkx as nx


MOST_ITEMS = 3_037_000_499  # pairs are numbered source·items + target in 64 bits


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed graph on the items 0 … m−1, immutable, its edges sorted by (source, target).

    Build one with `Graph.from_edges`, `as_graph` or a maker such as `permutation_graph`.

    Its items may have names, which are for people: they change no result, so that graphs with the
    same edges are equal, and have one hash, whatever their items are called.

    >>> graph = Graph.from_edges(3, [(0, 1), (2, 0), (2, 1)], names=["hot", "cold", "warm"])
    >>> graph.edges, graph.max_degree, graph.out_degrees.tolist(), graph.name(2)
    (3, 2, [1, 0, 2], 'warm')
    """

    items: int
    sources: Int[np.ndarray, " edges"]
    targets: Int[np.ndarray, " edges"]
    names: Vocabulary | None = None

    def __post_init__(self) -> None:
        if self.names is not None:
            as_vocabulary(self.names, self.items)
        sources, targets = checked_edges(self.items, self.sources, self.targets, self.names)
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "targets", targets)

    @classmethod
    def from_edges(
        cls,
        items: int,
        pairs: Iterable[tuple[int, int]] | Int[np.ndarray, "edges 2"],
        names: Names | None = None,
    ) -> Graph:
        """The graph with the given (source, target) pairs, in any order.

        Raises `InputError` for an id outside 0 … items−1, a pair given twice, or names that are
        not one per item.
        """
        array = np.asarray(pairs if isinstance(pairs, np.ndarray) else list(pairs))
        if array.size == 0:
            array = np.empty((0, 2), dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InputError(
                "edges must be (source, target) pairs of integers; give a list of pairs"
            )
        return cls.from_arrays(items, array[:, 0], array[:, 1], names=names)

    @classmethod
    def from_arrays(
        cls,
        items: int,
        sources: Int[np.ndarray, " edges"],
        targets: Int[np.ndarray, " edges"],
        *,
        names: Names | None = None,
    ) -> Graph:
        """The graph with the edges (sources[e], targets[e]), in any order."""
        return cls(items, sources, targets, None if names is None else as_vocabulary(names))

    @classmethod
    def from_networkx(cls, graph: nx.Graph) -> Graph:
        """A networkx graph whose nodes are 0 … m−1, or texts, which become the names.

        An undirected edge becomes both directions.
        """
        nodes = list(graph.nodes)
        names = nodes if nodes and all(isinstance(node, str) for node in nodes) else None
        if names is None and set(nodes) != set(range(len(nodes))):
            raise InputError(
                f"the nodes must be texts or the integers 0…{len(nodes) - 1}; "
                "relabel with networkx.convert_node_labels_to_integers"
            )
        pairs = graph.to_directed().edges()
        if names is not None:
            ids = as_vocabulary(names)
            pairs = [(ids.id(source), ids.id(target)) for source, target in pairs]
        return cls.from_edges(len(nodes), list(pairs), names)

    def to_networkx(self) -> nx.DiGraph:
        """The same graph as a `networkx.DiGraph`; its nodes are the names where there are any."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.items))
        graph.add_edges_from(zip(self.sources.tolist(), self.targets.tolist(), strict=True))
        if self.names is not None:
            return nx.relabel_nodes(graph, dict(enumerate(self.names)))
        return graph

    def with_names(self, names: Names | None) -> Graph:
        """The same graph with these names, one per item; None takes them away."""
        return replace(self, names=None if names is None else as_vocabulary(names, self.items))

    def name(self, item: SupportsIndex) -> str:
        """What an item is called: its name, else its number."""
        return str(item) if self.names is None else self.names[item]

    @property
    def edges(self) -> int:
        """m', the number of edges."""
        return int(self.sources.size)

    @cached_property
    def pairs(self) -> Int[np.ndarray, "edges 2"]:
        """The edge list, sorted."""
        return _read_only(np.stack([self.sources, self.targets], axis=1))

    @cached_property
    def starts(self) -> Int[np.ndarray, " {self.items}+1"]:
        """CSR view: the targets of item i are `targets[starts[i]:starts[i + 1]]`."""
        return _read_only(np.concatenate([[0], np.cumsum(self.out_degrees)]))

    def neighbors(self, item: int) -> Int[np.ndarray, " degree"]:
        """N⁺(item), sorted."""
        return self.targets[self.starts[item] : self.starts[item + 1]]

    @cached_property
    def out_degrees(self) -> Int[np.ndarray, " items"]:
        return _read_only(np.bincount(self.sources, minlength=self.items))

    @cached_property
    def in_degrees(self) -> Int[np.ndarray, " items"]:
        return _read_only(np.bincount(self.targets, minlength=self.items))

    @property
    def max_degree(self) -> int:
        """Δ = max(Δ_out, Δ_in)."""
        return int(max(self.out_degrees.max(), self.in_degrees.max()))

    def has_bounded_skew(self, d_model: int) -> bool:
        """Condition (33): Δ/d_avg ≤ m/d_model, that is Δ ≤ m'/d_model."""
        return self.max_degree * d_model <= self.edges

    @property
    def is_permutation(self) -> bool:
        """Whether every item has exactly one outgoing and one incoming edge."""
        return bool((self.out_degrees == 1).all() and (self.in_degrees == 1).all())

    def has_edges(self, sources: Any, targets: Any) -> Bool[np.ndarray, "*n"]:
        """Whether each (source, target) is an edge; arrays broadcast. O(log m') per pair."""
        sources, targets = np.broadcast_arrays(sources, targets)
        if not self.edges:
            return np.zeros(sources.shape, dtype=bool)
        codes = sources * self.items + targets
        place = np.minimum(np.searchsorted(self._codes, codes), self.edges - 1)
        # The code of an id out of range may be that of an edge: (0, m) and (1, 0) have the same.
        return (self._codes[place] == codes) & (targets >= 0) & (targets < self.items)

    @cached_property
    def _codes(self) -> Int[np.ndarray, " edges"]:
        return self.sources * self.items + self.targets

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Graph)
            and self.items == other.items
            and np.array_equal(self.sources, other.sources)
            and np.array_equal(self.targets, other.targets)
        )

    def __hash__(self) -> int:
        return hash((self.items, self.sources.tobytes(), self.targets.tobytes()))

    def __repr__(self) -> str:
        names = "" if self.names is None else f", names={self.names!r}"
        return f"Graph(items={self.items}, edges={self.edges}{names})"


def checked_edges(
    items: int, sources: Any, targets: Any, names: Vocabulary | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The edges as sorted read-only int64 arrays; what is not an edge list is refused."""
    if not isinstance(items, Integral) or not 1 <= items <= MOST_ITEMS:
        raise InputError(
            f"a graph has 1 to {MOST_ITEMS} items, not {items}; choose a number in that range"
        )
    ends = [np.asarray(part) for part in (sources, targets)]
    for name, part in zip(("sources", "targets"), ends, strict=True):
        if part.ndim != 1 or not (part.size == 0 or np.issubdtype(part.dtype, np.integer)):
            raise InputError(
                f"{name} of shape {part.shape} and type {part.dtype} are not item ids; "
                "give a list of integers"
            )
    if len(ends[0]) != len(ends[1]):
        raise InputError(
            f"{len(ends[0])} sources and {len(ends[1])} targets make no pairs; give as many of both"
        )
    first, second = (part.astype(np.int64) for part in ends)
    outside = (first < 0) | (first >= items) | (second < 0) | (second >= items)
    if outside.any():
        e = int(outside.argmax())
        raise InputError(
            f"edge {e + 1} ({first[e]}, {second[e]}) has an id outside 0…{items - 1}; "
            "correct the id or raise the number of items"
        )
    codes = first * items + second
    if codes.size > 1 and not (codes[1:] > codes[:-1]).all():
        codes = np.sort(codes)
        twice = np.flatnonzero(codes[1:] == codes[:-1])
        if twice.size:
            pair = divmod(int(codes[twice[0]]), items)
            source, target = (item if names is None else names[item] for item in pair)
            raise InputError(f"edge ({source}, {target}) is given twice; keep it once")
    sorted_sources, sorted_targets = np.divmod(codes, items)
    return _read_only(sorted_sources), _read_only(sorted_targets)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
