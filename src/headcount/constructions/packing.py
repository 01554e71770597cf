"""Lemma B.8: the edges of a graph packed into matchings, one per head.

A matching of the directed graph is a matching of its bipartite incidence graph (sources left,
targets right), so a proper edge colouring of that graph is a packing, and König's theorem gives one
with Δ colours. It is found by Euler splitting (Gabow 1976), all subgraphs of a level at once: make
the graph Δ-regular, then, while the degree D is above 1, take out a perfect matching if D is odd
and split every subgraph into two of degree D/2.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from headcount.constructions.template import Matching
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Int


def color_edges(graph: Graph) -> Int[np.ndarray, " edges"]:
    """A proper edge colouring with 0 … Δ−1: no two edges of a colour share a source or a target.

    >>> graph = Graph.from_edges(3, [(0, 0), (0, 1), (1, 1), (2, 1)])
    >>> sorted(set(color_edges(graph).tolist()))
    [0, 1, 2]
    """
    degree = graph.max_degree
    if degree == 0:
        return np.empty(0, dtype=np.int64)
    left, right, side = _regularised(graph, degree)
    colors = np.zeros(left.size, dtype=np.int64)
    # Edges without their final colour: `colors` holds the first colour of their subgraph.
    active = np.arange(left.size)
    parts = np.zeros(left.size, dtype=np.int64)
    while degree > 1:
        if degree % 2:
            taken = _perfect_matching(
                parts * side + left[active], parts * side + right[active], side
            )
            colors[active[taken]] += degree - 1
            active, parts = np.delete(active, taken), np.delete(parts, taken)
            degree -= 1
        second = _euler_split(parts * side + left[active], parts * side + right[active])
        degree //= 2
        colors[active] += degree * second
        parts = 2 * parts + second
    return colors[: graph.edges]


def pack(graph: Graph, block: int) -> list[Matching]:
    """Lemma B.8: at most ⌈m'/block⌉ + Δ matchings of at most `block` edges.

    Each of the Δ colour classes is cut into batches, of which only the last may be short.
    """
    if block < 1:
        raise InputError(f"block {block} leaves no room for an edge; choose at least 1")
    return [
        part
        for class_ in _classes(graph, color_edges(graph), graph.max_degree)
        for part in _batches(class_, block)
    ]


def pack_evenly(graph: Graph, heads: int) -> list[Matching]:
    """Exactly `heads` ≥ Δ matchings whose sizes differ by at most one.

    An equitable colouring exists for every number of colours from Δ on (McDiarmid 1972), so max(Δ,
    ⌈m'/d_model⌉) heads always do: fewer than Lemma B.8's sum, and exactly Corollary B.10's
    ⌈m'/d_model⌉ under condition (33).
    """
    if heads < max(graph.max_degree, 1):
        raise InputError(
            f"{heads} heads cannot hold a graph of degree {graph.max_degree}; "
            "use at least that many"
        )
    colors = color_edges(graph)
    sizes = np.bincount(colors, minlength=heads)
    while sizes.max() - sizes.min() > 1:
        order = np.argsort(-sizes, kind="stable").tolist()
        pairs = [(a, b) for a, b in zip(order, order[::-1], strict=True) if sizes[a] - sizes[b] > 1]
        _balance(graph, colors, pairs, sizes)
        sizes = np.bincount(colors, minlength=heads)
    return _classes(graph, colors, heads)


def _classes(graph: Graph, colors: Int[np.ndarray, " edges"], count: int) -> list[Matching]:
    order = np.argsort(colors, kind="stable")
    bounds = np.searchsorted(colors[order], np.arange(count + 1))
    return [
        Matching(graph.sources[order[a:b]], graph.targets[order[a:b]]) for a, b in pairwise(bounds)
    ]


def _batches(matching: Matching, block: int) -> list[Matching]:
    starts = range(0, matching.sources.size, block)
    return [
        Matching(matching.sources[s : s + block], matching.targets[s : s + block]) for s in starts
    ]


def _regularised(
    graph: Graph, degree: int
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], int]:
    """Left and right ends of a `degree`-regular bipartite multigraph that begins with the graph.

    Vertices whose degrees add up to at most Δ are merged (what is proper after is proper before),
    so that at most about 2m' edges are needed; then edges between vertices that lack some fill both
    sides up.
    """
    left, right = (
        _merged(graph.out_degrees, degree)[graph.sources],
        _merged(graph.in_degrees, degree)[graph.targets],
    )
    side = int(max(left.max(), right.max())) + 1
    missing = [
        np.repeat(np.arange(side), degree - np.bincount(ends, minlength=side))
        for ends in (left, right)
    ]
    return np.concatenate([left, missing[0]]), np.concatenate([right, missing[1]]), side


def _merged(degrees: Int[np.ndarray, " items"], limit: int) -> Int[np.ndarray, " items"]:
    """Group numbers: vertices, largest first, join a group while its degrees fit into `limit`."""
    groups = np.empty(degrees.size, dtype=np.int64)
    group, room = -1, 0
    order = np.argsort(-degrees, kind="stable")
    for item, needed in zip(order.tolist(), degrees[order].tolist(), strict=True):
        if group < 0 or needed > room:
            group, room = group + 1, limit
        room -= needed
        groups[item] = group
    return groups


def _euler_split(
    left: Int[np.ndarray, " n"], right: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """0 or 1 for each edge, so that every vertex has half its edges of each kind (even degrees).

    Pair the edges at every vertex, on both sides. Going from an edge to its left mate and on to
    that one's right mate permutes the edges; an edge and its mate lie on different cycles of that
    permutation, one of which is the other backwards: call the one with the smaller number 0.
    """
    left_mate, right_mate = _mates(left), _mates(right)
    n = left.size
    steps = csr_array((np.ones(n), right_mate[left_mate], _row_starts(n)), shape=(n, n))
    number = connected_components(steps, directed=False)[1]
    return (number > number[left_mate]).astype(np.int64)


def _mates(vertex: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """For each edge its pair at its end `vertex`: neighbours in a counting sort by vertex."""
    shape = (vertex.size, int(vertex.max(initial=0)) + 1)
    by_vertex = csr_array(
        (np.ones(vertex.size, dtype=np.int8), vertex, _row_starts(vertex.size)), shape=shape
    ).tocsc()
    first, second = by_vertex.indices[::2], by_vertex.indices[1::2]
    mate = np.empty(vertex.size, dtype=np.int32)
    mate[first], mate[second] = second, first
    return mate


def _row_starts(rows: int) -> Int[np.ndarray, " starts"]:
    return np.arange(rows + 1, dtype=np.int32)


def _perfect_matching(
    left: Int[np.ndarray, " n"], right: Int[np.ndarray, " n"], side: int
) -> Int[np.ndarray, " matched"]:
    """Indices of edges that form a perfect matching of a regular bipartite multigraph (Alon 2003).

    The graph is a disjoint union of parts with `side` vertices on each side. Give every edge the
    multiplicity α = ⌊2ᵗ/D⌋ and add bad edges (v, v) of multiplicity β = 2ᵗ − αD, which makes
    2ᵗ-regular parts. Each of t rounds halves all multiplicities: even ones directly, odd ones by an
    Euler split, keeping the half with fewer bad edges. There are βn < Dn ≤ 2ᵗ bad ones in a part,
    so none is left when the degree is 1.
    """
    vertices = int(left.max()) + 1
    degree = left.size // vertices
    rounds = (degree * side - 1).bit_length()
    share, rest = divmod(2**rounds, degree)
    everyone = np.arange(vertices) if rest else np.empty(0, dtype=np.int64)
    left, right = np.concatenate([left, everyone]), np.concatenate([right, everyone])
    edge = np.concatenate([np.arange(vertices * degree), np.full(everyone.size, -1)])
    copies = np.where(edge >= 0, share, rest)
    for _ in range(rounds):
        odd = np.flatnonzero(copies & 1)
        kind = _euler_split(left[odd], right[odd])
        part, bad = left[odd] // side, edge[odd] < 0
        worse = np.bincount(part, np.where(bad, 2 * kind - 1, 0), minlength=vertices // side) > 0
        copies >>= 1
        copies[odd] += kind != worse[part]
        kept = np.flatnonzero(copies)
        left, right, edge, copies = left[kept], right[kept], edge[kept], copies[kept]
    return edge


def _balance(
    graph: Graph,
    colors: Int[np.ndarray, " edges"],
    pairs: list[tuple[int, int]],
    sizes: Int[np.ndarray, " heads"],
) -> None:
    """Make each pair (larger, smaller) of classes even by exchanging colours along paths, in place.

    The union of two matchings is made of alternating paths and cycles. A path with one more edge of
    the larger class moves one edge net; there are at least as many such paths as the difference in
    size.
    """
    pair_of, other = np.full(sizes.size, -1), np.arange(sizes.size)
    larger = np.zeros(sizes.size, dtype=bool)
    for number, (a, b) in enumerate(pairs):
        pair_of[a] = pair_of[b] = number
        other[a], other[b], larger[a] = b, a, True
    edges = np.flatnonzero(pair_of[colors] >= 0)
    path = _alternating_paths(graph, edges, pair_of[colors[edges]])
    signs = np.where(larger[colors[edges]], 1, -1)
    surplus = np.bincount(path, weights=signs).round().astype(np.int64)
    owner = np.zeros(surplus.size, dtype=np.int64)
    owner[path] = pair_of[colors[edges]]
    movable = np.flatnonzero(surplus == 1)
    movable = movable[np.argsort(owner[movable], kind="stable")]
    # `rank`: a path's place among those of its pair. The first (difference/2) are flipped.
    rank = np.arange(movable.size) - np.searchsorted(owner[movable], owner[movable])
    wanted = np.array([(sizes[a] - sizes[b]) // 2 for a, b in pairs])
    flipped = np.zeros(surplus.size, dtype=bool)
    flipped[movable[rank < wanted[owner[movable]]]] = True
    change = edges[flipped[path]]
    colors[change] = other[colors[change]]


def _alternating_paths(
    graph: Graph, edges: Int[np.ndarray, " n"], pair: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """The number of the path or cycle of each edge, in the union of its pair's two classes."""
    base = 2 * graph.items * pair  # vertices of different pairs are different
    ends = np.stack([base + graph.sources[edges], base + graph.items + graph.targets[edges]])
    vertices, compact = np.unique(ends, return_inverse=True)
    compact = compact.reshape(2, -1)
    n = vertices.size
    links = csr_array((np.ones(edges.size, dtype=np.int8), (compact[0], compact[1])), shape=(n, n))
    return connected_components(links, directed=False)[1][compact[0]]
