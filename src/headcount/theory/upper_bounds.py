"""Budgets that the paper's constructions reach (Sections 4, 5, 8 and Appendix B).

The theorems leave their constants open. `constants.json` gives one entry for each construction:

    {"compressive": {"C": 16, "c0": 33, "source": "provisional"}, ...}

C is the factor in d_k = C·ln m (C·(ln m)² for softmax, C·(m/d_model)²·ln m for a single head), c0 the factor
in the precondition that the function names, and source says where both come from. Logarithms are natural.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, log
from pathlib import Path

from headcount.errors import InputError
from headcount.theory.counting import check_degree, check_sizes


@dataclass(frozen=True)
class Constant:
    """The two constants of one construction, and where they come from."""

    C: float
    source: str
    c0: float = 0.0


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
        """Say in words what the bound covers and needs."""
        state = {True: ", which holds", False: ", which fails here", None: ""}[self.met]
        return (
            f"{self.reference}, for {self.scope}, {self.constant}; needs {self.condition}{state}."
        )

    @property
    def sure(self) -> bool:
        """Say whether the condition holds, as far as it is known, and C is more than a guess."""
        return self.met is not False and not self.constant.endswith("provisional")


@cache
def constants() -> dict[str, Constant]:
    """Read the constants of every construction.

    >>> constants()["one-hot"].C
    16
    """
    text = Path(__file__).with_name("constants.json").read_text(encoding="utf-8")
    return {name: Constant(**entry) for name, entry in json.loads(text).items()}


def _scale(name: str, constant: float | None) -> float:
    if constant is None:
        return constants()[name].C
    if constant <= 0:
        raise InputError(
            f"constant = {constant}: the constant C must be positive; leave it out for the default"
        )
    return constant


def _width(name: str, constant: float | None, growth: float) -> tuple[int, str]:
    """The width d_k = ⌈C·growth⌉, with C and the first words of its source."""
    scale = _scale(name, constant)
    source = "given" if constant is not None else re.split("[:;]", constants()[name].source)[0]
    return ceil(scale * growth), f"C = {scale:g} {source}"


def _wide_enough(name: str, items: int, d_model: int) -> tuple[str, bool]:
    """The precondition d_model ≥ c₀·ln m of Theorems 4.1, 8.1 and B.9."""
    least = constants()[name].c0 * log(items)
    return f"d_model ≥ c₀ ln m = {least:.0f}", d_model >= least


def one_hot(items: int, *, constant: float | None = None) -> UpperBound:
    """Construction I: one head, d_k = C·ln m, where the rows of the table are independent (Theorem B.1).

    >>> one_hot(256).budget  # ⌈16·5.545⌉
    89
    """
    check_sizes(items)
    width, origin = _width("one-hot", constant, log(items))
    condition = "a table with independent rows, so d_model ≥ m"
    return UpperBound("one-hot", 1, width, "Theorem B.1", "permutations", condition, None, origin)


def compressive(items: int, d_model: int, *, constant: float | None = None) -> UpperBound:
    """Construction II: h = ⌈m/d_model⌉, d_k = C·ln m, for permutations (Theorem 4.1).

    >>> bound = compressive(4096, 512, constant=16)
    >>> bound.heads, bound.key_dim, bound.budget  # ⌈16·8.318⌉
    (8, 134, 1072)
    """
    check_sizes(items, d_model=d_model)
    width, origin = _width("compressive", constant, log(items))
    condition, met = _wide_enough("compressive", items, d_model)
    heads = ceil(items / d_model)
    return UpperBound(
        "compressive", heads, width, "Theorem 4.1", "permutations", condition, met, origin
    )


def softmax(
    items: int, d_model: int, *, edges: int | None = None, constant: float | None = None
) -> UpperBound:
    """Algorithm 2: h = ⌈m/d_model⌉, d_k = C·(ln m)², for permutations under softmax (Theorem 8.1, Eq. (21)).

    A partial permutation, with fewer `edges` than items, has fewer blocks.

    >>> softmax(256, 32, constant=16).budget  # 8·⌈16·5.545²⌉
    3936
    """
    edges = check_sizes(items, edges, d_model)
    width, origin = _width("softmax", constant, log(items) ** 2)
    condition, met = _wide_enough("softmax", items, d_model)
    scope = "permutations in contexts of length ≥ C_ℓ·max(h, ln m)"
    heads = ceil(edges / d_model)
    return UpperBound("softmax", heads, width, "Theorem 8.1", scope, condition, met, origin)


def general_embedding(items: int, block: int, *, constant: float | None = None) -> UpperBound:
    """Construction III: h = ⌈m/B⌉, d_k = C·ln m, for a table incoherent at block size B (Theorem B.5).

    >>> general_embedding(256, block=16).heads
    16
    """
    check_sizes(items)
    if not 1 <= block <= items:
        raise InputError(
            f"block = {block}: the block size lies between 1 and {items} items; choose one there"
        )
    width, origin = _width("general-embedding", constant, log(items))
    condition = f"ρ and γ of Definition B.4 at most c/ln m = c·{1 / log(items):.2g}"
    split = ceil(items / block), width
    return UpperBound(
        "general-embedding", *split, "Theorem B.5", "permutations", condition, None, origin
    )


def gaussian_embedding(items: int, d_model: int, *, constant: float | None = None) -> UpperBound:
    """Corollary B.6: Construction III on a Gaussian unit-norm table, at the block size B = d_model."""
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
    met = d_model >= log(items) ** 2
    condition = f"d_model ≥ (ln m)² = {log(items) ** 2:.0f}, so that γ ≤ c/ln m"
    origin = (
        bound.constant
        if constant is not None
        else f"{bound.constant} on Gaussian tables, here provisional"
    )
    name, reference = "binary table", "Corollary B.7"
    return replace(
        bound, name=name, reference=reference, condition=condition, met=met, constant=origin
    )


def bounded_skew(
    items: int,
    edges: int,
    d_model: int,
    max_degree: int | None = None,
    *,
    constant: float | None = None,
) -> UpperBound:
    """Construction IV in fewer heads: h = max(⌈m'/d_model⌉, Δ), d_k = C·ln m (Corollary B.10).

    Under Eq. (33), Δ ≤ m'/d_model, this is the ⌈m'/d_model⌉ of the corollary. So many heads suffice: with any
    number of colours from Δ up, edges can be coloured so that class sizes differ by at most one (McDiarmid
    1972), and here each class is a matching of at most d_model edges. Δ is ⌈m'/m⌉, the least there can be,
    when not given.

    >>> bounded_skew(256, 1024, 32).heads
    32
    """
    check_sizes(items, edges, d_model)
    degree = ceil(edges / items) if max_degree is None else max_degree
    check_degree(items, edges, degree)
    width, origin = _width("general-graph", constant, log(items))
    condition, met = _wide_enough("general-graph", items, d_model)
    heads = max(ceil(edges / d_model), degree)
    reference = "Corollary B.10" if degree * d_model <= edges else "Theorem B.9 in even batches"
    return UpperBound(
        "general-graph", heads, width, reference, _degree(degree), condition, met, origin
    )


def _degree(max_degree: int) -> str:
    return f"graphs with degrees up to {max_degree:,}"


def single_head(items: int, d_model: int, *, constant: float | None = None) -> UpperBound:
    """One head in the same template: D_K = C·(m/d_model)²·ln m (Section 5, Eq. (2) at B = m).

    Eq. (2) leaves out the mean of N₃, d_k·⟨δ_i, δ_j⟩. It grows with d_k as the signal does and is of order
    √(m ln m)/d_model of it, so no width helps below the precondition d_model² ≥ c₀·m·ln m.

    >>> single_head(256, 32, constant=16).budget  # ⌈16·64·5.545⌉
    5679
    """
    check_sizes(items, d_model=d_model)
    width, origin = _width("single-head", constant, (items / d_model) ** 2 * log(items))
    condition, met = _mean_is_small(items, d_model)
    return UpperBound("single-head", 1, width, "Section 5", "permutations", condition, met, origin)


def _mean_is_small(items: int, d_model: int) -> tuple[str, bool]:
    """The precondition d_model² ≥ c₀·m·ln m of a single head, which keeps the mean of N₃ below the signal."""
    least = (constants()["single-head"].c0 * items * log(items)) ** 0.5
    return f"d_model ≥ √(c₀ m ln m) = {least:.0f}", d_model >= least


def softmax_width(
    items: int,
    d_model: int,
    block: int,
    context_length: int,
    *,
    floor: float | None = None,
    leakage: float | None = None,
) -> int:
    """Give the width that one softmax head needs: max{C₁ (ln ℓ)², C₂ (B/d_model)² ln m} (Eq. (19)).

    >>> softmax_width(256, 32, block=32, context_length=256, floor=16, leakage=16)
    492
    """
    check_sizes(items, d_model=d_model)
    needed = _scale("softmax", floor) * log(context_length) ** 2  # C₁: the softmax floor
    noise = _scale("single-head", leakage) * (block / d_model) ** 2 * log(items)  # C₂: Eq. (2)
    return ceil(max(needed, noise))


def softmax_single_head(
    items: int, d_model: int, *, floor: float | None = None, leakage: float | None = None
) -> UpperBound:
    """Give D_K of one softmax head that serves all items in contexts of any length (Proposition 8.4, Eq. (20)).

    The width is necessary in the template of Algorithm 2; that it suffices is not proved, so it is provisional.

    >>> softmax_single_head(256, 32, floor=16, leakage=16).budget
    5679
    """
    width = softmax_width(items, d_model, items, items, floor=floor, leakage=leakage)
    condition, met = _mean_is_small(items, d_model)
    origin = (
        f"C₁ = {_scale('softmax', floor):g}, C₂ = {_scale('single-head', leakage):g}, provisional"
    )
    return UpperBound(
        "single-head", 1, width, "Proposition 8.4, Eq. (20)", "permutations", condition, met, origin
    )


def softmax_advantage(items: int, d_model: int) -> float:
    """Give the factor that many softmax heads save over one: (m/d_model)/ln m, constants apart (Eq. (22)).

    >>> round(softmax_advantage(4096, 64), 2)
    7.69
    """
    check_sizes(items, d_model=d_model)
    return items / d_model / log(items)


def pseudo_inverse(
    items: int,
    edges: int,
    d_model: int,
    max_degree: int | None = None,
    *,
    constant: float | None = None,
) -> UpperBound:
    """Construction IV with each block's pseudo-inverse, blocks of d_model/4 edges and τ at the midpoint: measured only.

    h = max(4⌈m'/d_model⌉, Δ), d_k = C·ln m. No theorem covers it; `construct(..., inverse="pinv")` verifies it.

    >>> bound = pseudo_inverse(1024, 1024, 256, constant=3)
    >>> bound.heads, bound.key_dim  # ⌈3·6.931⌉
    (16, 21)
    """
    check_sizes(items, edges, d_model)
    degree = ceil(edges / items) if max_degree is None else max_degree
    check_degree(items, edges, degree)
    width, origin = _width("pseudo-inverse", constant, log(items))
    condition, met = _wide_enough("pseudo-inverse", items, d_model)
    heads = max(4 * ceil(edges / d_model), degree)
    return UpperBound(
        "pseudo-inverse", heads, width, "docs/constants.md", _degree(degree), condition, met, origin
    )


def best_upper_bound(
    items: int,
    edges: int | None,
    d_model: int,
    *,
    max_degree: int | None = None,
    aggregation: str = "max",
) -> UpperBound | None:
    """Choose the construction that applies and needs the least; None where the paper has none (softmax).

    Without a maximum degree the graph is taken to be as even as can be, Δ = ⌈m'/m⌉. General graphs are packed
    evenly (`bounded_skew`), which never takes more heads than Theorem B.9's ⌈m'/d_model⌉ + Δ.

    >>> best_upper_bound(256, None, 32).reference, best_upper_bound(256, None, 256).reference
    ('Theorem 4.1', 'Theorem B.1')
    """
    edges = check_sizes(items, edges, d_model)
    degree = ceil(edges / items) if max_degree is None else max_degree
    check_degree(items, edges, degree)
    if aggregation == "softmax":
        return softmax(items, d_model, edges=edges) if degree == 1 else None
    if degree == 1 and d_model >= items:
        return one_hot(items)
    if degree == 1 and edges == items:
        return compressive(items, d_model)
    return bounded_skew(items, edges, d_model, degree)
