"""Budgets that the paper's constructions reach (Section 4, Section 8, Appendix B)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log

from headcount.attention.aggregation import Aggregation
from headcount.errors import InputError
from headcount.theory.constants import wide_enough, width
from headcount.theory.counting import check_degree, check_sizes


@dataclass(frozen=True)
class UpperBound:
    """A split that a construction reaches on the graphs and contexts of its `scope`.

    `met` says whether the condition holds at these sizes; None where it depends on the table.
    """

    name: str
    heads: int
    key_dim: int
    reference: str
    scope: str
    condition: str
    met: bool | None
    constant: str  # the value of C and where it comes from

    @property
    def budget(self) -> int:
        """D_K = h·d_k."""
        return self.heads * self.key_dim

    @property
    def basis(self) -> str:
        """What the bound covers and needs, in words."""
        state = {True: ", which holds", False: ", which fails here", None: ""}[self.met]
        return (
            f"{self.reference}, for {self.scope}, {self.constant}; needs {self.condition}{state}."
        )

    @property
    def sure(self) -> bool:
        """Whether the condition holds, as far as it is known, and C is more than a guess."""
        return self.met is not False and not self.constant.endswith("provisional")


def one_hot(items: int, *, constant: float | None = None) -> UpperBound:
    """Construction I: one head, d_k = C·ln m, where the table's rows are independent (Theorem B.1).

    >>> one_hot(256).budget  # ⌈16·5.545⌉
    89
    """
    check_sizes(items)
    key_dim, origin = width("one-hot", constant, log(items))
    condition = "a table with independent rows, so d_model ≥ m"
    return UpperBound("one-hot", 1, key_dim, "Theorem B.1", "permutations", condition, None, origin)


def compressive(items: int, d_model: int, *, constant: float | None = None) -> UpperBound:
    """Construction II: h = ⌈m/d_model⌉, d_k = C·ln m, for permutations (Theorem 4.1).

    >>> bound = compressive(4096, 512, constant=16)
    >>> bound.heads, bound.key_dim, bound.budget  # ⌈16·8.318⌉
    (8, 134, 1072)
    """
    check_sizes(items, d_model=d_model)
    key_dim, origin = width("compressive", constant, log(items))
    condition, met = wide_enough("compressive", items, d_model)
    heads = ceil(items / d_model)
    return UpperBound(
        "compressive", heads, key_dim, "Theorem 4.1", "permutations", condition, met, origin
    )


def softmax(
    items: int, d_model: int, *, edges: int | None = None, constant: float | None = None
) -> UpperBound:
    """Algorithm 2: h = ⌈m/d_model⌉, d_k = C·(ln m)², under softmax (Theorem 8.1, Eq. (21)).

    A partial permutation, with fewer `edges` than items, has fewer blocks.

    >>> softmax(256, 32, constant=16).budget  # 8·⌈16·5.545²⌉
    3936
    """
    edges = check_sizes(items, edges, d_model)
    key_dim, origin = width("softmax", constant, log(items) ** 2)
    condition, met = wide_enough("softmax", items, d_model)
    scope = "permutations in contexts of length ≥ C_ℓ·max(h, ln m)"
    heads = ceil(edges / d_model)
    return UpperBound("softmax", heads, key_dim, "Theorem 8.1", scope, condition, met, origin)


def general_embedding(items: int, block: int, *, constant: float | None = None) -> UpperBound:
    """Construction III: h = ⌈m/B⌉, d_k = C·ln m, on a table incoherent at block size B (Thm B.5).

    >>> general_embedding(256, block=16).heads
    16
    """
    check_sizes(items)
    if not 1 <= block <= items:
        raise InputError(
            f"block = {block}: the block size must be between 1 and {items} items; choose another"
        )
    key_dim, origin = width("general-embedding", constant, log(items))
    condition = f"ρ and γ of Definition B.4 at most c/ln m = c·{1 / log(items):.2g}"
    heads, scope = ceil(items / block), "permutations"
    return UpperBound(
        "general-embedding", heads, key_dim, "Theorem B.5", scope, condition, None, origin
    )


def gaussian_embedding(items: int, d_model: int, *, constant: float | None = None) -> UpperBound:
    """Corollary B.6: Construction III on a Gaussian unit-norm table, at B = d_model."""
    bound = general_embedding(items, min(d_model, items), constant=constant)
    return replace(bound, name="Gaussian table", reference="Corollary B.6")


def binary_embedding(items: int, d_model: int, *, constant: float | None = None) -> UpperBound:
    """Corollary B.7: Construction III on a sparse binary table, at B = ⌊d_model/ln m⌋.

    >>> bound = binary_embedding(256, 64, constant=16)
    >>> bound.heads, bound.budget  # B = ⌊64/5.545⌋ = 11, d_k = 89
    (24, 2136)
    """
    check_sizes(items, d_model=d_model)
    block = min(max(int(d_model / log(items)), 1), items)
    bound = general_embedding(items, block, constant=constant)
    origin = bound.constant
    if constant is None:  # C was measured on Gaussian tables alone
        origin = f"{origin} on Gaussian tables, here provisional"
    return replace(
        bound,
        name="binary table",
        reference="Corollary B.7",
        condition=f"d_model ≥ (ln m)² = {log(items) ** 2:.0f}, so that γ ≤ c/ln m",
        met=d_model >= log(items) ** 2,
        constant=origin,
    )


def bounded_skew(
    items: int,
    edges: int,
    d_model: int,
    max_degree: int | None = None,
    *,
    constant: float | None = None,
) -> UpperBound:
    """Construction IV, packed evenly: h = max(⌈m'/d_model⌉, Δ), d_k = C·ln m (Corollary B.10).

    Under Eq. (33), Δ ≤ m'/d_model, this is the ⌈m'/d_model⌉ of the corollary. So many heads suffice
    in any case, fewer than Theorem B.9's ⌈m'/d_model⌉ + Δ: with any number of colours from Δ up,
    edges can be coloured so that class sizes differ by at most one (McDiarmid 1972), and here each
    class is a matching of at most d_model edges. Δ is ⌈m'/m⌉, the least there can be, when not
    given.

    >>> bounded_skew(256, 1024, 32).heads
    32
    """
    check_sizes(items, edges, d_model)
    degree = _degree(items, edges, max_degree)
    key_dim, origin = width("general-graph", constant, log(items))
    condition, met = wide_enough("general-graph", items, d_model)
    heads = max(ceil(edges / d_model), degree)
    reference = "Corollary B.10" if degree * d_model <= edges else "Theorem B.9 in even batches"
    return UpperBound(
        "general-graph", heads, key_dim, reference, _scope(degree), condition, met, origin
    )


def pseudo_inverse(
    items: int,
    edges: int,
    d_model: int,
    max_degree: int | None = None,
    *,
    constant: float | None = None,
) -> UpperBound:
    """Construction IV with each block's pseudo-inverse and τ at the midpoint: measured, not proved.

    Blocks have d_model/4 edges: h = max(4⌈m'/d_model⌉, Δ), d_k = C·ln m. No theorem covers it;
    `construct(..., inverse="pinv")` verifies what it builds.

    >>> bound = pseudo_inverse(1024, 1024, 256, constant=3)
    >>> bound.heads, bound.key_dim  # ⌈3·6.931⌉
    (16, 21)
    """
    check_sizes(items, edges, d_model)
    degree = _degree(items, edges, max_degree)
    key_dim, origin = width("pseudo-inverse", constant, log(items))
    condition, met = wide_enough("pseudo-inverse", items, d_model)
    heads, scope = max(4 * ceil(edges / d_model), degree), _scope(degree)
    return UpperBound(
        "pseudo-inverse", heads, key_dim, "docs/constants.md", scope, condition, met, origin
    )


def best_upper_bound(
    items: int,
    edges: int | None,
    d_model: int,
    *,
    max_degree: int | None = None,
    aggregation: Aggregation = "max",
) -> UpperBound | None:
    """Choose the construction that applies and needs the least; None where the paper has none.

    That is so for softmax beyond permutations. Without a maximum degree the graph is taken to be as
    even as can be, Δ = ⌈m'/m⌉.

    >>> best_upper_bound(256, None, 32).reference, best_upper_bound(256, None, 256).reference
    ('Theorem 4.1', 'Theorem B.1')
    """
    edges = check_sizes(items, edges, d_model)
    degree = _degree(items, edges, max_degree)
    if aggregation == "softmax":
        return softmax(items, d_model, edges=edges) if degree == 1 else None
    if degree == 1 and d_model >= items:
        return one_hot(items)
    if degree == 1 and edges == items:
        return compressive(items, d_model)
    return bounded_skew(items, edges, d_model, degree)


def _degree(items: int, edges: int, max_degree: int | None) -> int:
    """Δ as given, or the least that m' edges on m items can have."""
    degree = ceil(edges / items) if max_degree is None else max_degree
    check_degree(items, edges, degree)
    return degree


def _scope(max_degree: int) -> str:
    return f"graphs with degrees up to {max_degree:,}"
