"""Spec, the base of every run's description: typed fields, canonical JSON and its hash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import cache, cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

from headcount.errors import InputError

_Own = TypeVar("_Own", bound="Spec")


class _Budgets:
    """Columns of queries and keys. Specs have these fields, each in a place of its own."""

    heads: int
    key_dim: int
    kv_heads: int

    @property
    def budget(self) -> int:
        """D_K = h·d_k; with shared keys this is the queries' share of it, D_Q."""
        return self.heads * self.key_dim

    @property
    def key_heads(self) -> int:
        """g, which is h where every head has its own keys."""
        return self.kv_heads or self.heads

    @property
    def key_budget(self) -> int:
        """D_KV = g·d_k, the columns that a key cache holds."""
        return self.key_heads * self.key_dim


@dataclass(frozen=True)
class Spec(_Budgets):
    """The full description of one run. Its `hash` is its key everywhere.

    A subclass names its fields, whose annotations must be `int`, `float` or a kind of `str`, and
    checks their ranges in `__post_init__` after calling this one.
    """

    kind: ClassVar[str] = "run"  # what error messages call it
    # Fields that release 0.1.0 did not have, with the value that all its runs had. The JSON leaves
    # a field out at that value, so that the runs of that release keep their hashes.
    added: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        # Equal specs must have equal JSON, so 16.0, numpy's 16 and 16 all become the field's type.
        for name, kind in _kinds(type(self)):
            value = getattr(self, name)
            if type(value) is not kind:  # a sweep makes tens of thousands of specs
                object.__setattr__(self, name, _typed(name, value, kind))

    @cached_property
    def hash(self) -> str:
        """Content hash: the same for equal specs, on any machine."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=16).hexdigest()

    def to_json(self) -> str:
        """Canonical JSON: sorted names, no spaces, every field present but those of `added`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        kept = {
            name: value
            for name, value in values.items()
            if name not in self.added or value != self.added[name]
        }
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls: type[_Own], text: str) -> _Own:
        """Read what `to_json` wrote."""
        values = json_object(text, f"the description of a {cls.kind}")
        return cls.from_mapping({**cls.added, **values})

    @classmethod
    def from_mapping(cls: type[_Own], values: Mapping[str, Any]) -> _Own:
        """A spec from names and values; an unknown name is an error that gives the nearest one."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}"
                raise InputError(f"{name!r} is not a field of a {cls.kind}; {hint}")
        required = [field.name for field in fields(cls) if field.default is MISSING]
        if missing := [name for name in required if name not in values]:
            raise InputError(f"a {cls.kind} needs {', '.join(missing)}")
        return cls(**values)

    def _require_ranges(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} {getattr(self, name)} does not fit; choose {low}…{high}")

    def _require_positive(self, *names: str) -> None:
        for name in names:
            if not 0 < getattr(self, name) < math.inf:
                value = getattr(self, name)
                raise InputError(f"{name} {value} is not a positive number; choose one")

    def _require_share(self, name: str, usual: float) -> None:
        if not 0 < getattr(self, name) < 1:
            value = getattr(self, name)
            raise InputError(f"{name} {value} is not between 0 and 1; the paper uses {usual}")

    def _require_choice(self, name: str, choices: tuple[str, ...]) -> None:
        if getattr(self, name) not in choices:
            value = getattr(self, name)
            raise InputError(f"{name} {value!r} is unknown; use {', '.join(choices)}")


@cache
def _kinds(cls: type[Spec]) -> tuple[tuple[str, type], ...]:
    """The fields of a spec, each with its type."""
    types = {"int": int, "float": float}
    return tuple((field.name, types.get(str(field.type), str)) for field in fields(cls))


def json_object(text: str, what: str) -> dict[str, Any]:
    """One JSON object; `what` is how an error names the text."""
    try:
        values = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{what} is not JSON ({error}); write it with to_json") from error
    if not isinstance(values, dict):
        raise InputError(f"{what} must be one JSON object")
    return values


def _typed(name: str, value: Any, kind: type) -> Any:
    """The value as its field's type."""
    if kind is str:
        if not isinstance(value, str):
            raise InputError(f"{name} must be a word; {value!r} is not")
        return str(value)
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InputError(f"{name} must be a number; {value!r} is not")
    number: Any = value
    if kind is float:
        return math.inf if number > 2**1000 else float(number)  # float() refuses larger integers
    if not isinstance(number, Integral) and not float(number).is_integer():
        raise InputError(f"{name} must be a whole number; {value!r} is not")
    return int(number)
