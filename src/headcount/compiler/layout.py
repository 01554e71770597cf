"""What weights look like: the widths of their heads, how they are read, which heads share keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """The widths of the heads; rows decided by their `top`, not by τ; keys shared by heads.

    >>> Layout((4, 4, 3, 3), kv_heads=2).sharing
    2
    """

    widths: tuple[int, ...]
    top: bool = False
    kv_heads: int | None = None  # None: each head has a key of its own

    @property
    def heads(self) -> int:
        return len(self.widths)

    @property
    def keys(self) -> int:
        """g."""
        return self.kv_heads or self.heads

    @property
    def sharing(self) -> int:
        """Heads that share one key; they lie next to each other."""
        return self.heads // self.keys
