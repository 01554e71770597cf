"""What a single head needs, to compare with many (Section 5, Eq. (2); Proposition 8.4)."""

from __future__ import annotations

from math import ceil, log

from headcount.theory.constants import chosen_constant, constants, width
from headcount.theory.counting import check_sizes
from headcount.theory.upper_bounds import UpperBound


def single_head(items: int, d_model: int, *, constant: float | None = None) -> UpperBound:
    """One head in the same template: D_K = C·(m/d_model)²·ln m (Section 5, Eq. (2) at B = m).

    Eq. (2) leaves out the mean of N₃, d_k·⟨δ_i, δ_j⟩. It grows with d_k as the signal does and is
    of order √(m ln m)/d_model of it, so no width helps below the precondition d_model² ≥ c₀·m·ln m.

    >>> single_head(256, 32, constant=16).budget  # ⌈16·64·5.545⌉
    5679
    """
    check_sizes(items, d_model=d_model)
    key_dim, origin = width("single-head", constant, (items / d_model) ** 2 * log(items))
    condition, met = _mean_is_small(items, d_model)
    return UpperBound(
        "single-head", 1, key_dim, "Section 5", "permutations", condition, met, origin
    )


def softmax_width(
    items: int,
    d_model: int,
    block: int,
    context_length: int,
    *,
    floor: float | None = None,
    leakage: float | None = None,
) -> int:
    """The width that one softmax head needs: max{C₁ (ln ℓ)², C₂ (B/d_model)² ln m} (Eq. (19)).

    >>> softmax_width(256, 32, block=32, context_length=256, floor=16, leakage=16)
    492
    """
    check_sizes(items, d_model=d_model)
    needed = chosen_constant("softmax", floor) * log(context_length) ** 2  # C₁: the softmax floor
    noise = chosen_constant("single-head", leakage) * (block / d_model) ** 2 * log(items)  # Eq. (2)
    return ceil(max(needed, noise))


def softmax_single_head(
    items: int, d_model: int, *, floor: float | None = None, leakage: float | None = None
) -> UpperBound:
    """D_K of one softmax head for all items in contexts of any length (Prop. 8.4, Eq. (20)).

    The width is necessary in the template of Algorithm 2. That it suffices is not proved, so it is
    provisional.

    >>> softmax_single_head(256, 32, floor=16, leakage=16).budget
    5679
    """
    key_dim = softmax_width(items, d_model, items, items, floor=floor, leakage=leakage)
    condition, met = _mean_is_small(items, d_model)
    first, second = chosen_constant("softmax", floor), chosen_constant("single-head", leakage)
    origin = f"C₁ = {first:g}, C₂ = {second:g}, provisional"
    reference = "Proposition 8.4, Eq. (20)"
    return UpperBound("single-head", 1, key_dim, reference, "permutations", condition, met, origin)


def softmax_advantage(items: int, d_model: int) -> float:
    """What many softmax heads save over one, without constants: (m/d_model)/ln m (Eq. (22)).

    >>> round(softmax_advantage(4096, 64), 2)
    7.69
    """
    check_sizes(items, d_model=d_model)
    return items / d_model / log(items)


def _mean_is_small(items: int, d_model: int) -> tuple[str, bool]:
    """The precondition d_model² ≥ c₀·m·ln m, which keeps the mean of N₃ below the signal."""
    least = (constants()["single-head"].c0 * items * log(items)) ** 0.5
    return f"d_model ≥ √(c₀ m ln m) = {least:.0f}", d_model >= least
