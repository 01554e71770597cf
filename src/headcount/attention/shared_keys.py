"""Shared keys: g of them for h heads (Section 2.1), where g divides h; head k uses ⌊k·g/h⌋."""

from __future__ import annotations

from headcount.errors import InputError


def require_kv_heads(heads: int, kv_heads: int) -> None:
    """Refuse a number of keys that h heads cannot share evenly.

    >>> require_kv_heads(8, 2)
    """
    if not 1 <= kv_heads <= heads or heads % kv_heads:
        few = [str(g) for g in range(1, min(heads, 2**10) + 1) if heads % g == 0]
        raise InputError(
            f"kv_heads {kv_heads} does not divide {heads} heads; choose one of {', '.join(few)}"
        )
