"""Numbers, intervals and lists as the report writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headcount.paper.data import Value

MISSING = "–"


def num(value: float, digits: int = 3) -> str:
    """Write a number with so many significant digits, and a true minus sign.

    >>> num(1.3446), num(-6.798), num(80_000), num(0.46)
    ('1.34', '−6.8', '80,000', '0.46')
    """
    large = abs(value) >= 10 ** (digits - 1)
    text = f"{value:,.0f}" if large else f"{float(f'{value:.{digits}g}'):g}"
    return text.replace("-", "−")


def f1_text(value: float) -> str:
    """Write an F1 rounded down, so that it reads 0.99 or more only where it passes.

    >>> f1_text(0.98996), f1_text(1.0)
    ('0.989', '1.000')
    """
    return f"{int(value * 1000 + 1e-9) / 1000:.3f}"


def paper_text(value: Value) -> str:
    """Write a value of the paper: "yes" for a claim in words, pairs and lists with commas.

    >>> paper_text(True), paper_text(-6.64), paper_text(((512, 64), (256, 32))), paper_text((4, 8))
    ('yes', '−6.64', '(512, 64), (256, 32)', '4, 8')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(
            f"({paper_text(item)})" if isinstance(item, tuple) else paper_text(item)
            for item in value
        )
    return f"{value:,}".replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """Write a difference with its sign; "same" where it is zero."""
    return "same" if value == 0 else ("+" if value > 0 else "") + num(value, digits)


def percent(ours: float, paper: float) -> str:
    """Write how much larger ours is than the paper's.

    >>> percent(1.345, 1.19), percent(0.966, 0.966)
    ('+13 %', 'same')
    """
    if ours == paper:
        return "same"
    share = 100 * (ours / paper - 1)
    text = f"{share:+.0f}" if abs(share) >= 1 else f"{share:+.1f}"
    return f"{text} %".replace("-", "−")


def share_text(share: float | None) -> str:
    """Write a share in whole percent; a dash where there is none.

    >>> share_text(0.954), share_text(-0.02), share_text(None)
    ('95 %', '−2 %', '–')
    """
    return MISSING if share is None else f"{100 * share:.0f} %".replace("-", "−")


def counted(number: int, noun: str) -> str:
    """Write "1 point", "12 points"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def pairs_text(pairs: Iterable[tuple[int, ...]]) -> str:
    """Write sizes as "(64, 32) and (128, 32)"; "none" where there are none."""
    return listed([f"({', '.join(str(size) for size in pair)})" for pair in pairs])


def listed(words: Sequence[str]) -> str:
    """Join words as in a sentence.

    >>> listed(["one", "two", "three"])
    'one, two and three'
    """
    if len(words) < 2:
        return words[0] if words else "none"
    return ", ".join(words[:-1]) + " and " + words[-1]


def interval_text(ends: tuple[float, float] | None, digits: int = 3) -> str:
    """Write an interval as "1.15 to 1.54"."""
    return "unknown" if ends is None else f"{num(ends[0], digits)} to {num(ends[1], digits)}"


def allowed_text(ends: tuple[float, float] | None) -> str:
    """Write the range of a number derived from two that have intervals; it is wider than 95 %.

    >>> allowed_text((1.07, 1.27)), allowed_text((6, 6))
    ('the two intervals allow 1.07 to 1.27', 'the two intervals allow 6')
    >>> allowed_text(None)
    'one of its two intervals is open'
    """
    if ends is None:
        return "one of its two intervals is open"
    low, high = num(ends[0]), num(ends[1])
    return f"the two intervals allow {low}" + ("" if low == high else f" to {high}")


def range_text(values: Iterable[float]) -> str:
    """Write the least and the largest number, or one where they agree.

    >>> range_text([0.52, 0.589, 0.51]), range_text([0.5231, 0.5234])
    ('0.51 to 0.589', '0.523')
    """
    ends = sorted(values)
    low, high = num(ends[0]), num(ends[-1])
    return low if low == high else f"{low} to {high}"


def span_text(factors: Sequence[float]) -> str:
    """Write factors as "1.4 to 2.8 times", or "1.4 times" where they agree."""
    return f"{range_text(factors)} times"


def widths_text(widths: Any) -> str:
    """Write the widths of heads as "2 × 7, 1 × 6"; a dash where there are none.

    >>> widths_text("7 7 6"), widths_text(None)
    ('2 × 7, 1 × 6', '–')
    """
    each = widths.split() if isinstance(widths, str) else []
    return ", ".join(f"{each.count(width)} × {width}" for width in dict.fromkeys(each)) or MISSING
