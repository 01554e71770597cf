"""Relations among a model's tokens: a graph of words, their ids, and how edges are permuted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from headcount.auditing.model import Model
from headcount.errors import InputError
from headcount.problem.edge_list import read_graph
from headcount.problem.graph import Graph
from headcount.problem.relations import RELATIONS, relations
from headcount.shapes import Int

MOST_EDGES = 2_000  # of a larger relation a random part is used
FEWEST_EDGES = 8


@dataclass(frozen=True, eq=False)
class Relation:
    """A relation whose words all are tokens of the model.

    `known` of the `given` edges have both words among the tokens; `graph` has those that are used,
    without loops, and `ids` the token of each of its items.
    """

    name: str
    graph: Graph
    ids: Int[np.ndarray, " items"]
    known: int
    given: int

    @cached_property
    def sources(self) -> Int[np.ndarray, " sources"]:
        return np.unique(self.graph.sources)

    @cached_property
    def targets(self) -> Int[np.ndarray, " targets"]:
        """The words that a source is compared over: all that some edge leads to."""
        return np.unique(self.graph.targets)

    def permuted_targets(self, count: int, seed: int = 0) -> Int[np.ndarray, "edges count"]:
        """For each edge its target, then `count` − 1 targets dealt anew; as places in `targets`.

        Targets are dealt among the edges, so that every source keeps its number of edges, and
        every word the number of edges that lead to it. Where both directions of a pair are edges,
        they are dealt together: {a, b} becomes {a, b'}, in both directions. Otherwise a form that
        scores both directions alike would count such a pair twice. One-way edges and pairs are
        dealt apart.
        """
        graph, rng = self.graph, np.random.default_rng(seed)
        mutual = graph.has_edges(graph.targets, graph.sources)
        alone = np.flatnonzero(~mutual)
        pairs = np.flatnonzero(mutual & (graph.sources < graph.targets))
        codes = graph.sources * graph.items + graph.targets  # sorted, as edges are
        back = np.searchsorted(codes, graph.targets[pairs] * graph.items + graph.sources[pairs])
        moved = np.tile(graph.targets[:, None], count)
        for place in range(1, count):
            moved[alone, place] = graph.targets[rng.permutation(alone)]
            order = rng.permutation(len(pairs))
            moved[pairs, place] = graph.targets[pairs[order]]
            # The edge back from b' = b_π(e) to a_e is among those of the pair π(e).
            moved[back[order], place] = graph.sources[pairs]
        return np.searchsorted(self.targets, moved)


def relation_on(
    model: Model,
    source: str | os.PathLike[str] | Graph,
    most_edges: int | None = MOST_EDGES,
    seed: int = 0,
) -> Relation:
    """A shipped relation, a graph, or a CSV of words or token ids, among the tokens of a model."""
    if isinstance(source, Graph):
        name, graph = "graph", source
    elif os.fspath(source) in RELATIONS:
        name = os.fspath(source)
        graph = relations(name)
    elif Path(source).suffix.lower() in (".csv", ".tsv"):
        name, graph = Path(source).stem, read_graph(source)
    else:
        raise InputError(
            f"relation {os.fspath(source)!r} is unknown; use {', '.join(RELATIONS)}, or a .csv or "
            ".tsv file of words with the header source,target"
        )
    ids = _token_ids(model, graph, name)
    here = (ids[graph.sources] >= 0) & (ids[graph.targets] >= 0)
    here &= graph.sources != graph.targets
    if here.sum() < FEWEST_EDGES:
        raise InputError(
            f"relation {name}: {int(here.sum())} of its {graph.edges:,} edges join two tokens of "
            f"the model, and at least {FEWEST_EDGES} are needed; write whole words in the case "
            "that the model uses"
        )
    items = _chosen_items(graph, np.flatnonzero(here), most_edges, seed)
    return Relation(name, _induced(graph, items), ids[items], int(here.sum()), graph.edges)


def _chosen_items(
    graph: Graph, kept: Int[np.ndarray, " known"], most_edges: int | None, seed: int
) -> Int[np.ndarray, " items"]:
    """The words of as many random edges as have at most `most_edges` edges among them."""

    def words(number: int) -> Int[np.ndarray, " items"]:
        return np.unique(
            np.concatenate([graph.sources[kept[:number]], graph.targets[kept[:number]]])
        )

    if most_edges is None or len(kept) <= most_edges:
        return words(len(kept))
    kept = np.random.default_rng(seed).permutation(kept)
    low, high = 1, most_edges
    while low < high:  # more edges have more words, and these more edges among them
        middle = (low + high + 1) // 2
        fits = _induced(graph, words(middle)).edges <= most_edges
        low, high = (middle, high) if fits else (low, middle - 1)
    return words(low)


def _token_ids(model: Model, graph: Graph, name: str) -> Int[np.ndarray, " items"]:
    """The token of each item, −1 where there is none; items without names are token ids."""
    if graph.names is None:
        if graph.items > model.vocabulary_size:
            raise InputError(
                f"relation {name}: token id {graph.items - 1} is beyond the model's "
                f"{model.vocabulary_size:,} tokens; write words, or smaller ids"
            )
        return np.arange(graph.items)
    if not model.words:
        raise InputError(
            f"model {model.name} has no vocabulary beside its weights (tokenizer.json, vocab.txt "
            "or vocab.json), so words have no tokens; add it, or write a relation of token ids"
        )
    return np.array([model.words.get(word, -1) for word in graph.names])


def _induced(graph: Graph, items: Int[np.ndarray, " kept"]) -> Graph:
    """The graph among some of the items, loops left out."""
    inside = np.isin(graph.sources, items) & np.isin(graph.targets, items)
    inside &= graph.sources != graph.targets
    places = (np.searchsorted(items, ends[inside]) for ends in (graph.sources, graph.targets))
    names = None if graph.names is None else graph.names.picked(items)
    return Graph.from_arrays(len(items), *places, names=names)
