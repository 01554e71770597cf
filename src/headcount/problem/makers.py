"""Graph families: the paper's permutations (A.1), r-regular (A.3), m' edges (Section 9); hubs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headcount.errors import InputError
from headcount.memory import require_memory
from headcount.problem.graph import MOST_ITEMS, Graph
from headcount.problem.streams import generator
from headcount.shapes import Float, Int


def permutation_graph(items: int, seed: int = 0) -> Graph:
    """A uniformly random permutation π with edges (i, π(i)); fixed points are allowed.

    >>> permutation_graph(4, seed=1).is_permutation
    True
    """
    _require_items(items, at_least=1)
    _require_room(items, items)
    return Graph.from_arrays(items, np.arange(items), generator(seed).permutation(items))


def regular_graph(items: int, degree: int, seed: int = 0) -> Graph:
    """A directed `degree`-regular graph: a union of random perfect matchings.

    It has no self-loops and no duplicate edges. Above half of items − 1 the complement (regular
    too) is drawn instead: by König's theorem it leaves a union of `degree` perfect matchings, and
    no draw ever gets stuck.

    >>> graph = regular_graph(10, 9)
    >>> graph.edges, set(graph.in_degrees.tolist())
    (90, {9})
    """
    _require_items(items, at_least=2)
    if not 1 <= degree < items:
        raise InputError(f"degree {degree} does not fit {items} items; choose 1…{items - 1}")
    rng = generator(seed)
    thin = min(degree, items - 1 - degree)
    _require_room(items, items * degree, 0 if thin == degree else items**2)
    layers = _disjoint_derangements(items, thin, rng)
    adjacency_sources = np.tile(np.arange(items), thin)
    if thin == degree:
        graph = Graph.from_arrays(items, adjacency_sources, layers.ravel())
    else:
        kept = ~np.eye(items, dtype=bool)
        kept[adjacency_sources, layers.ravel()] = False
        graph = Graph.from_arrays(items, *np.nonzero(kept))
    if not ((graph.in_degrees == degree).all() and (graph.out_degrees == degree).all()):
        raise AssertionError("regular_graph drew an irregular graph")
    return graph


def graph_of_degree(items: int, degree: int, seed: int = 0) -> Graph:
    """The paper's family of a degree: a permutation for 1 (A.1), above it a regular graph (A.3).

    Permutations may have fixed points, regular graphs have no loops, so that degree 1 is not
    `regular_graph(items, 1)`.

    >>> graph_of_degree(8, 1).is_permutation, graph_of_degree(8, 3).edges
    (True, 24)
    """
    return permutation_graph(items, seed) if degree == 1 else regular_graph(items, degree, seed)


def even_graph(items: int, edges: int, seed: int = 0) -> Graph:
    """A graph with degrees as equal as they can be: those of any two items differ by at most 1.

    It is a graph of the degree that divides evenly (`graph_of_degree`), and a matching of the items
    for the edges beyond it. With fewer edges than items it is a part of a permutation.

    >>> graph = even_graph(10, 23)
    >>> graph.edges, set(graph.in_degrees.tolist()), set(graph.out_degrees.tolist())
    (23, {2, 3}, {2, 3})
    """
    _require_edges(items, edges)
    rng = np.random.default_rng(seed)
    first = graph_of_degree(items, max(1, edges // items), seed).pairs
    if edges <= items:
        return Graph.from_edges(items, rng.permutation(first)[:edges])
    taken = {tuple(pair) for pair in first.tolist()}
    while True:
        sources, targets = (rng.permutation(items)[: edges - len(first)] for _ in range(2))
        more = set(zip(sources.tolist(), targets.tolist(), strict=True))
        if not more & taken and all(source != target for source, target in more):
            return Graph.from_edges(items, sorted(taken | more))


def random_graph(items: int, edges: int, seed: int = 0) -> Graph:
    """A uniformly random graph among those with exactly `edges` of the m(m − 1) loop-free pairs.

    >>> random_graph(5, 20).edges
    20
    """
    pairs = _require_edges(items, edges)
    _require_room(items, edges, 24 * pairs if 2 * edges > pairs else 0)
    rng = generator(seed)
    few = _distinct_integers(pairs, min(edges, pairs - edges), rng)
    if few.size != edges:
        few = np.setdiff1d(np.arange(pairs), few, assume_unique=True)
    sources, rest = np.divmod(few, max(items - 1, 1))
    return Graph.from_arrays(items, sources, rest + (rest >= sources))


def skewed_graph(items: int, edges: int, seed: int = 0) -> Graph:
    """A graph with hubs: exactly `edges` loop-free pairs, some items far more often targets.

    Pairs are drawn one after the other, without repetition. The target of rank n is drawn in
    proportion to 1/n (Zipf's law), the source of rank n to 1/√n; both rankings are random. So
    in-degrees fall off like 1/n up to items − 1, out-degrees vary less, and some items have no
    edge.

    >>> graph = skewed_graph(256, 256)
    >>> graph.edges, int(graph.in_degrees.max()) > 20, int((graph.in_degrees == 0).sum()) > 100
    (256, True, True)
    """
    pairs = _require_edges(items, edges)
    _require_room(items, edges, 24 * items**2 if 8 * edges > pairs else 0)
    rng = generator(seed)
    rank = np.arange(1, items + 1)
    as_source, as_target = rng.permutation(rank**-0.5), rng.permutation(1 / rank)
    draw = _few_skewed if 8 * edges <= pairs else _many_skewed
    codes = draw(as_source, as_target, edges, rng)
    return Graph.from_arrays(items, codes // items, codes % items)


def with_positions(graph: Graph, length: int, offsets: Iterable[int] | None = None) -> Graph:
    """(token, position) pairs as vertices (Section 3): token t at position p is item t·length + p.

    Each edge (t, t') joins t at p to t' at p' for all p, p' < length; with `offsets`, only where
    p' − p is one of them.

    >>> with_positions(Graph.from_edges(2, [(0, 1)]), length=3, offsets=[-1]).pairs.tolist()
    [[1, 3], [2, 4]]
    """
    if length < 1:
        raise InputError(f"length {length} leaves no position; choose at least 1")
    first, second = (
        grid.ravel() for grid in np.meshgrid(np.arange(length), np.arange(length), indexing="ij")
    )
    if offsets is not None:
        kept = np.isin(second - first, list(offsets))
        first, second = first[kept], second[kept]
    return Graph.from_arrays(
        graph.items * length,
        (graph.sources[:, None] * length + first).ravel(),
        (graph.targets[:, None] * length + second).ravel(),
    )


def _require_edges(items: int, edges: int) -> int:
    """The number of loop-free pairs, if the edges fit them."""
    _require_items(items, at_least=1)
    pairs = items * (items - 1)
    if not 0 <= edges <= pairs:
        raise InputError(f"{edges} edges do not fit {items} items; choose 0…{pairs}")
    return pairs


def _require_room(items: int, edges: int, more: int = 0) -> None:
    """Refuse a graph that memory cannot hold while it is drawn, sorted and checked."""
    require_memory(
        80 * edges + 40 * items + more, f"drawing a graph of {items:,} items and {edges:,} edges"
    )


def _require_items(items: int, at_least: int) -> None:
    if items < at_least:
        raise InputError(f"{items} items are too few; choose at least {at_least}")
    if items > MOST_ITEMS:
        raise InputError(f"{items} items are too many; choose at most {MOST_ITEMS}")


def _disjoint_derangements(
    items: int, count: int, rng: np.random.Generator
) -> Int[np.ndarray, "count items"]:
    """`count` ≤ (items − 1)/2 permutations without fixed points that pairwise never agree.

    Each starts uniform; an item on a forbidden target swaps targets with a random item until both
    fit. Less than half the targets are ever forbidden to an item, so an item to swap with always
    exists.
    """
    # Row i: item i itself and its targets in earlier layers.
    forbidden = np.full((items, count + 1), -1)
    forbidden[:, 0] = np.arange(items)
    for layer in range(count):
        taken = forbidden[:, : layer + 1]
        targets = rng.permutation(items)
        for i in np.flatnonzero((taken == targets[:, None]).any(axis=1)):
            while (taken[i] == targets[i]).any():
                j = rng.integers(items)
                if not (taken[i] == targets[j]).any() and not (taken[j] == targets[i]).any():
                    targets[i], targets[j] = targets[j], targets[i]
        forbidden[:, layer + 1] = targets
    return forbidden[:, 1:].T


def _distinct_integers(
    bound: int, count: int, rng: np.random.Generator
) -> Int[np.ndarray, " count"]:
    """A uniformly random `count`-subset of 0 … bound−1, count ≤ bound/2, in O(count) memory."""
    chosen = np.empty(0, dtype=np.int64)
    while chosen.size < count:
        missing = count - chosen.size
        chosen = np.sort(
            np.concatenate([chosen, rng.integers(bound, size=missing + missing // 8 + 8)])
        )
        chosen = chosen[np.diff(chosen, prepend=-1) > 0]
    return np.delete(chosen, rng.choice(chosen.size, chosen.size - count, replace=False))


def _few_skewed(
    source_weights: Float[np.ndarray, " items"],
    target_weights: Float[np.ndarray, " items"],
    edges: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, " edges"]:
    """Codes source·items + target, drawn by weight; loops and repetitions are drawn again."""
    items = len(source_weights)
    chances = [weights / weights.sum() for weights in (source_weights, target_weights)]
    codes = np.empty(0, dtype=np.int64)
    while codes.size < edges:
        sources, targets = (rng.choice(items, edges, p=chance) for chance in chances)
        drawn = np.concatenate([codes, (sources * items + targets)[sources != targets]])
        first = np.sort(np.unique(drawn, return_index=True)[1])  # in the order of the draws
        codes = drawn[first[:edges]]
    return codes


def _many_skewed(
    source_weights: Float[np.ndarray, " items"],
    target_weights: Float[np.ndarray, " items"],
    edges: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, " edges"]:
    """The same by a race over all pairs, which does not slow down when hubs are full.

    A pair arrives after an exponential time of rate its weight; the first to arrive are
    distributed like draws without repetition.
    """
    items = len(source_weights)
    times = rng.standard_exponential((items, items))
    times /= source_weights[:, None] * target_weights
    np.fill_diagonal(times, np.inf)
    return np.argpartition(times.ravel(), max(edges - 1, 0))[:edges]
