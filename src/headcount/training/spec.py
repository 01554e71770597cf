"""RunSpec, the description of one training run (Sections 6–7, A)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from headcount.attention.shared_keys import require_kv_heads
from headcount.errors import InputError
from headcount.problem.graph import MOST_ITEMS, Graph
from headcount.training.base_spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

Variant = Literal["max", "softmax", "value", "sum", "logsumexp"]
Metric = Literal["f1", "mse"]
GRAPHS = ("regular", "random", "skewed")
TABLES = ("gaussian", "binary")
LONGEST_CONTEXT = 64
_MOST_ENTRIES = 2**32  # 16 GB of float32


@dataclass(frozen=True)
class RunSpec(Spec):
    """One run: the problem, the channel, the protocol and the seed.

    Variants: `max` over heads with the logistic loss (Section 6), `softmax` (7.1:
    Σ_k softmax(S⁽ᵏ⁾/√d_k)), `value` (7.2: raw max scores mix frozen messages, mean squared error)
    `sum` over heads, the control that Section 3's remark calls for, and `logsumexp`,
    t·log Σ_k exp(S⁽ᵏ⁾/t) at the temperature t, between max and sum (Section 9).

    Graphs: `regular` is the paper's family of a degree (a permutation for 1, above it an r-regular
    graph), `random` draws items·degree of all loop-free pairs, `skewed` as many with hubs
    (`skewed_graph`). The positive weight is ℓ − 1 for permutations, that of Eq. (30) otherwise.
    Where an item has several targets in a context, `value` retrieves the sum of their messages.
    Tables: `gaussian` unit-norm rows, or `binary` ones (Cor. B.7). A graph or table of one's own
    is named by the hash of its content: `RunSpec.on` makes such specs.

    `kv_heads` g < h are shared keys: head k uses key ⌊k·g/h⌋. 0 means that every head has its own;
    g = h says the same and becomes 0, so that both are one spec.

    >>> spec = RunSpec(items=64, d_model=16, heads=4, key_dim=5, seed=3)
    >>> spec.budget, spec.steps, RunSpec.from_json(spec.to_json()) == spec
    (20, 20000, True)
    >>> shared = RunSpec(items=64, d_model=16, heads=4, key_dim=5, kv_heads=1)
    >>> shared.budget, shared.key_budget, RunSpec(64, 16, 4, 5, kv_heads=4) == RunSpec(64, 16, 4, 5)
    (20, 5, True)
    """

    items: int  # m
    d_model: int
    heads: int  # h
    key_dim: int  # d_k
    seed: int = 0
    degree: int = 1  # r
    variant: Variant = "max"
    length: int = 16  # ℓ
    rate: float = 0.5  # ρ
    learning_rate: float = 1e-3
    sharpness: float = 10.0  # α
    steps: int = 0  # 0: the paper's limit, 80,000 for softmax and 20,000 otherwise
    check_every: int = 500
    patience: int = 5
    target: float = (
        0.995  # validation micro-F1 to exceed; `value` stops when no check is a new best
    )
    validation: int = 500  # contexts
    test: int = 2000
    draws: int = 2  # 1: as in release 0.1.0, which drew π and X from one random stream
    graph: str = "regular"
    table: str = "gaussian"
    temperature: float = 1.0  # t of logsumexp
    kv_heads: int = 0  # g; 0: as many as heads

    added: ClassVar[Mapping[str, Any]] = {
        "draws": 1,
        "graph": "regular",
        "table": "gaussian",
        "temperature": 1.0,
        "kv_heads": 0,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_choice("variant", get_args(Variant))
        self._require_problem("graph", GRAPHS)
        self._require_problem("table", TABLES)
        if self.steps == 0:
            object.__setattr__(self, "steps", 80_000 if self.variant == "softmax" else 20_000)
        self._require_ranges(
            {
                "items": (1, MOST_ITEMS),
                "d_model": (1, 2**20),
                "heads": (1, 2**16),
                "key_dim": (1, 2**16),
                "seed": (0, 2**63 - 1),
                "degree": (1, max(1, self.items - 1)),
                "length": (1, min(self.items, LONGEST_CONTEXT)),
                "steps": (1, 10**9),
                "check_every": (1, 10**6),
                "patience": (1, 10**9),
                "validation": (1, 10**6),
                "test": (1, 10**6),
                "draws": (1, 2),
            }
        )
        if self.kv_heads:
            require_kv_heads(self.heads, self.kv_heads)
        if self.kv_heads == self.heads:
            object.__setattr__(self, "kv_heads", 0)
        self._require_share("rate", 0.5)
        self._require_positive("learning_rate", "sharpness", "temperature")
        if self.variant != "logsumexp" and self.temperature != 1:
            raise InputError(
                f"temperature {self.temperature} belongs to the variant logsumexp; leave it out"
            )
        self._require_share("target", 0.995)
        self._require_memory()
        if self.variant == "value":
            self._require_value_retrieval()

    @classmethod
    def on(cls, graph: Any, table: Any = "gaussian", **fields: Any) -> RunSpec:
        """A run on a graph or table of one's own; either may be a family that the seed draws from.

        `graph` is whatever `as_graph` takes, `table` whatever `as_table` takes.

        The content gives `items`, `d_model` and, of a graph, `degree`: its edges per item, rounded.
        The seed then varies what is left: first weights, contexts, validation and test.

        >>> ring = Graph.from_edges(16, [(i, (i + 1) % 16) for i in range(16)])
        >>> spec = RunSpec.on(ring, d_model=8, heads=2, key_dim=3)
        >>> spec.items, spec.degree, len(spec.graph), spec.table
        (16, 1, 32, 'gaussian')
        """
        known = sizes_of(graph, table)
        for name, value in known.items():
            if fields.get(name, value) != value:
                raise InputError(
                    f"{name} {fields[name]} is not that of the graph or table, {value}; "
                    "leave it out"
                )
        return cls.from_mapping({**fields, **known})

    def require_content(self, graph: Graph, table: Tensor) -> None:
        """Refuse a graph or table whose sizes are not the spec's."""
        sizes = {"items": graph.items, "d_model": table.shape[1]}
        if is_content_hash(self.graph):
            sizes["degree"] = _degree_of(graph)
        if len(table) != graph.items:
            sizes["items"] = len(table)
        for name, value in sizes.items():
            if getattr(self, name) != value:
                raise InputError(
                    f"{name} {getattr(self, name)} is not that of the graph or table, {value}; "
                    "make the spec with RunSpec.on"
                )

    @property
    def contents(self) -> set[str]:
        """The hashes of the graph and the table, where these are one's own."""
        return {name for name in (self.graph, self.table) if is_content_hash(name)}

    def _require_problem(self, name: str, families: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in families and not is_content_hash(value):
            raise InputError(
                f"{name} {value!r} is unknown; use {', '.join(families)}, or a file "
                "(in Python, RunSpec.on)"
            )

    def _require_memory(self) -> None:
        for what, entries in (
            ("embeddings", self.items * self.d_model),
            ("weights", self.d_model * (self.budget + self.key_budget)),
        ):
            if entries > _MOST_ENTRIES:
                raise InputError(
                    f"{entries:,} entries of {what} are more than {_MOST_ENTRIES:,}; "
                    "choose smaller sizes"
                )

    def _require_value_retrieval(self) -> None:
        if self.length < 2:
            raise InputError(
                "value retrieval needs a source and its target in a context; "
                "choose a length of at least 2"
            )

    @property
    def is_permutation(self) -> bool:
        """Whether the graph is a permutation by construction (A.1)."""
        return self.graph == "regular" and self.degree == 1

    @property
    def metric(self) -> Metric:
        """What the run is judged by."""
        return "mse" if self.variant == "value" else "f1"

    @property
    def stream(self) -> str:
        """The name of the random stream of its training contexts and first weights.

        Limits and stopping rules are left out: a run with more steps begins with the shorter run.
        So is `kv_heads`: runs that share keys differently see the same contexts and first queries.
        """
        drawn = (
            *("items", "d_model", "heads", "key_dim", "degree"),
            *("variant", "length", "rate", "seed"),
        )
        return "/".join(str(getattr(self, name)) for name in drawn)


def is_content_hash(name: str) -> bool:
    """Whether a graph or table is named by the hash of its content, and not by its family.

    >>> is_content_hash("regular"), is_content_hash("0123456789abcdef" * 2)
    (False, True)
    """
    return re.fullmatch("[0-9a-f]{32}", name) is not None


def sizes_of(graph: Any, table: Any) -> dict[str, Any]:
    """What a graph and a table, of one's own or families, settle of a spec; they are registered."""
    from headcount.problem.contents import register
    from headcount.problem.conversion import as_graph
    from headcount.problem.tables import as_table, names_of_table, require_same_names

    known: dict[str, Any] = {"graph": graph, "table": table}
    if not isinstance(table, str):
        rows = as_table(table)
        known |= {"table": register(rows), "items": rows.shape[0], "d_model": rows.shape[1]}
    if not isinstance(graph, str):
        names = names_of_table(table)
        if not isinstance(graph, Graph):
            graph = as_graph(graph, known.get("items"), names)
            if graph.names is not None and names is None and not isinstance(table, str):
                raise InputError(
                    "the edges are pairs of names, and the rows of the table have none; give a "
                    "pandas frame with a column 'name', or as_graph(edges, names=names of the rows)"
                )
        if known.get("items", graph.items) != graph.items:
            raise InputError(
                f"the graph has {graph.items} items, the table {known['items']} rows; "
                "give a table with one row per item"
            )
        require_same_names(graph, names)
        if not graph.edges:
            raise InputError("the graph has no edges; there is nothing to learn, add some")
        known |= {"graph": register(graph), "items": graph.items, "degree": _degree_of(graph)}
    return known


def _degree_of(graph: Graph) -> int:
    """Edges per item, rounded: what stands for the degree of a graph of one's own."""
    return min(max(1, round(graph.edges / graph.items)), max(1, graph.items - 1))
