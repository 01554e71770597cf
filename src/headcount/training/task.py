"""Task: all that the seed fixes before training begins (A.1), and the first weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from headcount.problem.contents import registered_graph, registered_table
from headcount.problem.contexts import ContextSampler
from headcount.problem.embeddings import binary_embeddings, gaussian_embeddings, gaussian_rows
from headcount.problem.graph import Graph
from headcount.problem.makers import graph_of_degree, random_graph, skewed_graph
from headcount.problem.streams import generator, stream_key
from headcount.shapes import Float, Int
from headcount.threads import torch_threads
from headcount.training.spec import RunSpec, is_content_hash

_VALUES, _WEIGHTS = 0x7A1, 0x3E1  # salts: one seed, separate draws


@dataclass(frozen=True, eq=False)
class Task:
    """The problem of a run. Runs that differ only in heads, width or protocol share one."""

    graph: Graph
    rows: Float[Tensor, "items d_model"]  # X, frozen
    messages: Float[Tensor, "items d_model"]  # X W_V of Section 7.2
    validation: Int[Tensor, "validation length"]
    test: Int[Tensor, "test length"]

    @property
    def targets(self) -> Int[Tensor, " items"]:
        """π, where the graph is a permutation."""
        return torch.tensor(self.graph.targets)


def task_of(spec: RunSpec) -> Task:
    """The task of a spec; the last few hundred are remembered."""
    fixed = (
        *("items", "d_model", "degree", "length", "rate", "seed"),
        *("validation", "test", "draws", "graph", "table"),
    )
    return _task(RunSpec(heads=1, key_dim=1, **{name: getattr(spec, name) for name in fixed}))


@lru_cache(maxsize=512)
def _task(spec: RunSpec) -> Task:
    """The task of any spec that differs from this one in heads, width, variant or protocol."""
    seed, graph, rows = spec.seed, graph_of(spec), table_of(spec)
    spec.require_content(graph, rows)
    sampler = ContextSampler(graph, spec.length, spec.rate)
    # Hundreds of small operations: on a busy machine more threads mostly wait for one another. And
    # a product's last bits would depend on their number.
    with torch_threads(1):
        messages = messages_of(spec, rows)
        validation = sampler.draw(spec.validation, seed=seed, stream="validation")
        test = sampler.draw(spec.test, seed=seed, stream="test")
    return Task(graph, rows, messages, validation, test)


def graph_of(spec: RunSpec) -> Graph:
    """The graph that the spec's seed draws, or the one that it names."""
    if is_content_hash(spec.graph):
        return registered_graph(spec.graph)
    edges = spec.items * spec.degree
    match spec.graph:
        case "random":
            return random_graph(spec.items, edges, spec.seed)
        case "skewed":
            return skewed_graph(spec.items, edges, spec.seed)
        case _:
            return graph_of_degree(spec.items, spec.degree, spec.seed)


def table_of(spec: RunSpec) -> Float[Tensor, "items d_model"]:
    """The embeddings that the spec's seed draws, or those that it names."""
    if is_content_hash(spec.table):
        return registered_table(spec.table)
    if spec.table == "binary":
        return binary_embeddings(spec.items, spec.d_model, spec.seed)
    if spec.draws == 1:  # from the stream of the graph
        return gaussian_rows(spec.items, spec.d_model, generator(spec.seed))
    return gaussian_embeddings(spec.items, spec.d_model, spec.seed)


def messages_of(
    spec: RunSpec, rows: Float[Tensor, "items d_model"]
) -> Float[Tensor, "items d_model"]:
    """X W_V: as wide as the embeddings and scaled like W_Q and W_K; the paper fixes neither."""
    d_model = spec.d_model
    values = generator(spec.seed, _VALUES).standard_normal((d_model, d_model)) / np.sqrt(d_model)
    return (rows.double() @ torch.from_numpy(values)).float()


def first_weights(spec: RunSpec) -> Float[Tensor, "matrices d_model key_dim"]:
    """W_Q of every head, then every W_K, before the first step: normal with deviation 1/√d_model.

    Of shared keys there are fewer: the first of those that the heads would have of their own.
    """
    draws = generator(abs(stream_key(spec.stream)), _WEIGHTS).standard_normal(
        (spec.heads + spec.key_heads, spec.d_model, spec.key_dim), dtype=np.float32
    )
    return torch.from_numpy(draws / np.float32(np.sqrt(spec.d_model)))


def training_key(spec: RunSpec) -> int:
    """The key of the stream its training contexts come from: step n uses context n − 1."""
    return stream_key(spec.seed, spec.stream)
