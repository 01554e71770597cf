"""headcount: how many heads does your attention need?

Software for *A Capacity-Based Rationale for Multi-Head Attention* (M. Adler, arXiv 2509.22840).
This page is the public API; names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headcount.attention.key_query import KeyQuery as KeyQuery
    from headcount.attention.recovery import Recovery as Recovery
    from headcount.attention.softmax_certificate import softmax_certificate as softmax_certificate
    from headcount.attention.storage import load as load
    from headcount.attention.storage import load_weights as load_weights
    from headcount.attention.verification import verify as verify
    from headcount.compiler.compile import compile as compile
    from headcount.constructions.construct import construct as construct
    from headcount.errors import InputError as InputError
    from headcount.errors import NoSolution as NoSolution
    from headcount.problem.contexts import ContextSampler as ContextSampler
    from headcount.problem.contexts import PairCounts as PairCounts
    from headcount.problem.contexts import labels as labels
    from headcount.problem.edge_list import read_graph as read_graph
    from headcount.problem.edge_list import write_graph as write_graph
    from headcount.problem.embeddings import binary_embeddings as binary_embeddings
    from headcount.problem.embeddings import gaussian_embeddings as gaussian_embeddings
    from headcount.problem.embeddings import one_hot_embeddings as one_hot_embeddings
    from headcount.problem.graph import Graph as Graph
    from headcount.problem.makers import permutation_graph as permutation_graph
    from headcount.problem.makers import random_graph as random_graph
    from headcount.problem.makers import regular_graph as regular_graph
    from headcount.problem.makers import with_positions as with_positions
    from headcount.problem.tables import load_embeddings as load_embeddings
    from headcount.problem.tables import save_embeddings as save_embeddings
    from headcount.theory.capacity import capacity as capacity
    from headcount.theory.incoherence import incoherence as incoherence
    from headcount.theory.lower_bounds import lower_bounds as lower_bounds
    from headcount.theory.planner import plan as plan
    from headcount.training.result import RunResult as RunResult
    from headcount.training.spec import RunSpec as RunSpec
    from headcount.training.train import train as train

_ROOMS = {
    "attention.key_query": ["KeyQuery"],
    "attention.recovery": ["Recovery"],
    "attention.storage": ["load", "load_weights"],
    "attention.verification": ["verify"],
    "compiler.compile": ["compile"],
    "constructions.construct": ["construct"],
    "errors": ["InputError", "NoSolution"],
    "problem.contexts": ["ContextSampler", "PairCounts", "labels"],
    "problem.edge_list": ["read_graph", "write_graph"],
    "problem.embeddings": ["binary_embeddings", "gaussian_embeddings", "one_hot_embeddings"],
    "problem.graph": ["Graph"],
    "problem.makers": ["permutation_graph", "random_graph", "regular_graph", "with_positions"],
    "problem.tables": ["load_embeddings", "save_embeddings"],
    "theory.lower_bounds": ["lower_bounds"],
    "theory.capacity": ["capacity"],
    "theory.incoherence": ["incoherence"],
    "theory.planner": ["plan"],
    "attention.softmax_certificate": ["softmax_certificate"],
    "training.result": ["RunResult"],
    "training.spec": ["RunSpec"],
    "training.train": ["train"],
}
_HOME = {name: f"headcount.{room}" for room, names in _ROOMS.items() for name in names}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headcount' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
