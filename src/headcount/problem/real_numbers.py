"""Real numbers of any type as floats: converted without rounding, or refused.

Verification decides exactly what it is given. Rounding on the way to it would make its answer one
about other numbers.
"""

from __future__ import annotations

import os
import re
import sys
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.memory import require_memory

_FIRST_ROUNDED = 2**53  # from here on float64 has no room for every integer
_WIDE = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr)
_NUMBER = re.compile(r"\s*[+-]?(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,9}))?\s*", re.ASCII)
_MOST_DIGITS = 309  # of an integer in float64

Source = str | os.PathLike[str]


def real_array(array: np.ndarray, source: Source) -> np.ndarray:
    """The array in native byte order; anything but real numbers of at most 64 bits is refused.

    bfloat16, which numpy knows only as two bytes, comes back as float32.
    """
    if array.dtype.name == "bfloat16" or array.dtype == np.dtype("V2"):
        upper = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32)
        return (upper << np.uint32(16)).view(np.float32)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(
            f"{source}: the entries are {array.dtype}; they must be real numbers of at most 64 bits"
        )
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def real_tensor(given: Tensor, source: Source) -> Tensor:
    """The tensor without gradient, dense, in float32 or float64, whichever holds its numbers.

    float32 and float64 stay as they are; 32- and 64-bit integers are widened to float64, everything
    else to float32. Complex and quantized numbers are refused, and integers that float64 rounds.
    """
    values = _dense(given, source)
    if values.dtype in (torch.float32, torch.float64):
        return values
    if values.dtype not in _WIDE:
        return _converted(values, torch.float32, source)
    wide = _converted(values, torch.float64, source)
    if (wide.abs() >= _FIRST_ROUNDED).any():
        raise _rounded(source)
    return wide


def weights_tensor(given: Any, name: str) -> Tensor:
    """Weights as a tensor of floats; arrays are converted, and what would be rounded is refused."""
    if isinstance(given, np.ndarray):
        given = torch.from_numpy(real_array(given, name).copy())
    if not isinstance(given, Tensor):
        raise InputError(
            f"{name} is a {type(given).__name__}; give a tensor or an array of numbers, "
            "heads × d_model × key_dim"
        )
    _require_plain(given, name)
    # Floats stay as they are, with their gradients: scores are computed in float32 at least.
    return given if given.dtype in _FLOATS else real_tensor(given, name)


def _require_plain(given: Tensor, source: Source) -> None:
    """Refuse a tensor that does not hold real numbers one by one."""
    if given.is_complex():
        raise InputError(f"{source} is complex; its entries must be real numbers")
    if given.is_quantized or given.is_nested or given.is_meta or given.layout not in _LAYOUTS:
        kind = "meta" if given.is_meta else given.layout
        kind = given.dtype if kind == torch.strided else kind
        raise InputError(f"{source} is a {kind} tensor, not plain numbers; convert it to float32")


def _dense(given: Tensor, source: Source) -> Tensor:
    """A tensor with one place in memory per entry, and without gradient."""
    _require_plain(given, source)
    size = given.numel() * given.element_size()
    if given.layout != torch.strided:
        require_memory(size, f"{source} as a dense tensor")
        return given.detach().to_dense()
    if size > given.untyped_storage().nbytes():  # one row stands for many: `expand`
        require_memory(2 * size, f"{source} with all its rows")
    return given.detach()


def require_exact_integers(values: np.ndarray, source: Source) -> None:
    """Refuse integers that would be rounded when they are joined with floats."""
    if values.dtype.kind in "iu" and values.size:
        low, high = int(values.min()), int(values.max())
        if max(-low, high) >= _FIRST_ROUNDED:
            raise _rounded(source)


def is_rounded_integer(entry: Any) -> bool:
    """Whether a number, or the text of one, is an integer that float64 does not hold.

    With an exponent, a text may also be what float64 prints: 1e+23 is how numpy writes the number
    next to 10²³. Fractions are not integers: 0.1 is the number next to it in any case.

    >>> [is_rounded_integer(text) for text in (str(2**53), "9007199254740993.0", "0.1")]
    [False, True, False]
    >>> [is_rounded_integer(text) for text in ("9007199254740993e0", "1e23", "1" + "0" * 23)]
    [True, False, True]
    """
    if isinstance(entry, str):
        return _is_rounded_text(entry)
    return isinstance(entry, Integral) and _is_rounded(int(entry))


def _is_rounded_text(text: str) -> bool:
    found = _NUMBER.fullmatch(text)
    if not found:
        return False
    whole, fraction, exponent = found.groups("")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    power = int(exponent or 0) - len(fraction) + len(digits) - len(significant)
    if not significant or power < 0:  # zero, or a fraction
        return False
    if len(significant) + power > _MOST_DIGITS:
        return True
    number = int(significant) * 10**power
    if not _is_rounded(number):
        return False
    return not exponent or number > sys.float_info.max or number != Decimal(repr(float(number)))


def _is_rounded(number: int) -> bool:
    try:
        return int(float(number)) != number
    except OverflowError:
        return True


def real_number(value: Any, name: str) -> float:
    """A single number as float64, refused if that would change it."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, Real):
        raise InputError(f"the {name} is {value!r}; give a number")
    try:
        number = float(value)
    except OverflowError:
        number = np.inf
    if number == number and number != value:
        raise InputError(f"the {name} is {value}, which float64 rounds; scale the weights down")
    return number


def _converted(values: Tensor, dtype: torch.dtype, source: Source) -> Tensor:
    try:
        return values.to(dtype)
    except (RuntimeError, NotImplementedError):  # types that torch stores and cannot compute with
        raise InputError(
            f"{source} is a {values.dtype} tensor, not plain numbers; convert it to float32"
        ) from None


def _rounded(source: Source) -> InputError:
    return InputError(
        f"{source}: holds integers of 2⁵³ or more, which float64 rounds; scale them down"
    )
