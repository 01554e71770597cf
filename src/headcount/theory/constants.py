"""The constants that the paper's theorems leave open, and where their values come from.

`constants.json` has one entry per construction:

    {"compressive": {"C": 16, "c0": 33, "source": "provisional"}, ...}

C is the factor in d_k = C·ln m (C·(ln m)² for softmax, C·(m/d_model)²·ln m for a single head), c0
the factor in the precondition that the bound names, and source says where both come from.
Logarithms are natural.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from math import ceil, log
from pathlib import Path

from headcount.errors import InputError


@dataclass(frozen=True)
class Constant:
    """The two constants of one construction, and where they come from."""

    C: float
    source: str
    c0: float = 0.0


@cache
def constants() -> dict[str, Constant]:
    """Read the constants of every construction.

    >>> constants()["one-hot"].C
    16
    """
    text = Path(__file__).with_name("constants.json").read_text(encoding="utf-8")
    return {name: Constant(**entry) for name, entry in json.loads(text).items()}


def chosen_constant(name: str, given: float | None) -> float:
    """C of a construction: the given value, or the one of `constants.json`."""
    if given is None:
        return constants()[name].C
    if given <= 0:
        raise InputError(
            f"constant = {given}: the constant C must be positive; leave it out for the default"
        )
    return given


def width(name: str, given: float | None, growth: float) -> tuple[int, str]:
    """The width d_k = ⌈C·growth⌉, with C and the first words of its source."""
    constant = chosen_constant(name, given)
    source = "given" if given is not None else re.split("[:;]", constants()[name].source)[0]
    return ceil(constant * growth), f"C = {constant:g} {source}"


def wide_enough(name: str, items: int, d_model: int) -> tuple[str, bool]:
    """The precondition d_model ≥ c₀·ln m of Theorems 4.1, 8.1 and B.9, and whether it holds."""
    least = constants()[name].c0 * log(items)
    return f"d_model ≥ c₀ ln m = {least:.0f}", d_model >= least
