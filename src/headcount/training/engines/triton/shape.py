"""The sizes a Triton kernel is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headcount.training.spec import RunSpec

# Weights of W_Q up to which a run's state is kept in registers: W, m and v of both matrices are
# then 6 · 4096 floats, 192 registers for each of 128 threads.
_RESIDENT = 4096
_TILE = 2 * _RESIDENT  # of W_Q and W_K, if several programs share a run
_MOST_MEMBERS = 64  # programs that do
_WIDE = 128  # columns handled at a time when it streams
_PAIRS = 3  # pairs that take the time of one in a context: tiles of them reuse what they read
_SCORES = 2**14  # of all heads of a context that are held at a time


@dataclass(frozen=True)
class Shape:
    """The sizes a kernel is compiled for.

    They follow from a run's own spec alone, so grouping cannot change its bits.
    """

    variant: str
    targets: int  # of every item: 1, or 2 for several; 0 where they differ
    heads: int
    h: int  # padded
    length: int
    l: int  # noqa: E741
    dm: int
    dk: int
    pairs: bool  # whether a check goes over all pairs instead of context by context
    share: int = 1  # heads with one key
    spread: int = 1  # padded

    @classmethod
    def of(cls, spec: RunSpec) -> Shape:
        """A linear sum over heads is one wide head (Section 3's remark), unless they share keys."""
        joined = spec.variant == "sum" and not spec.kv_heads
        heads, key_dim = (1, spec.budget) if joined else (spec.heads, spec.key_dim)
        share = spec.heads // spec.key_heads
        return cls(
            "max" if joined else spec.variant,
            min(spec.degree, 2) if spec.graph == "regular" else 0,
            heads,
            _power(heads // share, 1) * _power(share, 1),
            spec.length,
            _power(spec.length, 16),
            _power(spec.d_model, 16),
            _power(key_dim, 8),
            spec.variant in ("max", "sum")
            and spec.items**2 <= _PAIRS * spec.validation * spec.length**2
            and max(spec.items**2, max(spec.validation, spec.test) * spec.length**2) < 2**31,
            share,
            _power(share, 1),
        )

    @property
    def d(self) -> int:
        """Columns of all queries."""
        return self.h * self.dk

    @property
    def kd(self) -> int:
        """Columns of all keys."""
        return self.d // self.spread

    @property
    def resident(self) -> bool:
        """Whether one program holds the state in registers."""
        return self.dm * self.d <= _RESIDENT and self.h * self.l**2 <= _SCORES

    @property
    def together(self) -> dict[str, int] | None:
        """How several programs hold a larger state in their registers; None where it is streamed.

        ACROSS beside each other have different columns, WIDE each of W_Q and W_K together, and DOWN
        below each other have different rows. Each updates what it has in PARTS. Heads that share a
        key are in one program.
        """
        wide = min(2 * self.d, _TILE // min(self.dm, 128))
        tall = min(self.dm, _TILE // wide)
        columns = 2 * self.heads // self.share * self.spread * self.dk
        across, down = -(-columns // wide), self.dm // tall
        heads = self.h if 2 * self.dk > wide else wide // 2 // self.dk
        fits = heads * self.l**2 <= _SCORES and self.l <= 32 and across * down <= _MOST_MEMBERS
        # The largest tensor operations take 64 rows, and a tile of 512 spills.
        suits = wide >= 64 and self.dm >= 64 and self._key_wide <= wide
        # One tile alone is faster too than as `train_resident` has it, by 18 %.
        if not (fits and suits) or self.dm * self.d < _RESIDENT:
            return None
        return {"WIDE": wide, "ACROSS": across, "DOWN": down, "PARTS": max(1, tall // 32)}

    @property
    def _key_wide(self) -> int:
        """Columns of a shared key's heads, each with a copy of the key; 0 where none is shared."""
        return 2 * self.spread * self.dk if self.spread > 1 else 0

    @property
    def members(self) -> int:
        """Programs that share a run then."""
        return self.together["ACROSS"] * self.together["DOWN"] if self.together else 1

    @property
    def scratch(self) -> int:
        """Floats in memory that a step of a streamed run needs beside its state."""
        if self.resident or self.together:
            return 0
        return self.l * (self.d + self.kd) + self.h * self.l**2

    @property
    def warps(self) -> int:
        """Enough threads to hold the state and the heads' scores in registers, and no more.

        Fewer threads exchange less in each product and reduction.
        """
        heads = self.h if self.resident else self.group
        return max(min(4, _power(self.dm * self.d // 512, 1)), heads * self.l**2 // 1024)

    @property
    def repeated(self) -> bool:
        """Whether each head has a copy of its key: a warp takes whole pairs of matrices."""
        return self.spread > 1 and self.h // self.spread < self.warps

    @property
    def check_warps(self) -> int:
        """The same for a check, which holds no state."""
        return max(1, self.group * self.l**2 // 4096)

    @property
    def group(self) -> int:
        """Heads handled at a time when the state streams."""
        return min(self.h, max(1, _WIDE // self.dk), max(1, _SCORES // self.l**2))

    @property
    def part(self) -> int:
        """Columns of a head handled at a time then."""
        return min(self.dk, _WIDE)

    @property
    def block(self) -> int:
        """Rows of a weight matrix handled at a time then."""
        return min(self.dm, max(16, 4096 // (self.group * self.part)))

    def constants(self) -> dict[str, Any]:
        """The kernels' constexpr arguments."""
        return {
            "VARIANT": self.variant,
            "TARGETS": self.targets,
            "HEADS": self.heads,
            "H": self.h,
            "SHARE": self.share,
            "SPREAD": self.spread,
            "LENGTH": self.length,
            "L": self.l,
            "DM": self.dm,
            "DK": self.dk,
            "BLOCK": self.block,
        }

    def check_constants(self) -> dict[str, Any]:
        """The same for a check by contexts: it needs d_model for the messages of `value` only.

        Elsewhere one kernel serves every d_model, as each has to be compiled.
        """
        return self.constants() | ({} if self.variant == "value" else {"DM": 16, "BLOCK": 16})


def _power(size: int, least: int) -> int:
    """The smallest power of two that is at least both."""
    return max(least, 1 << (size - 1).bit_length())
