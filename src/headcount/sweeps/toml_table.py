"""TOML files read strictly: every error names the file and the place in it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from headcount.errors import InputError

SEEDS = 10  # of a configuration, as in the paper
MOST_RUNS = 1_000_000  # of one sweep
_LONGEST_FILE = 2**22  # bytes
_WORDS = {int: "whole number", float: "number", str: "text in quotes"}

T = TypeVar("T")


def field_types(spec: type[Any]) -> dict[str, type]:
    """The fields of a spec with their types; a field of choices is text."""
    known = {"int": int, "float": float}
    return {item.name: known.get(str(item.type), str) for item in fields(spec)}


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or say in a sentence why not."""
    try:
        if path.stat().st_size > _LONGEST_FILE:
            raise InputError(
                f"{path}: is longer than {_LONGEST_FILE:,} bytes; count seeds and lengths, do not "
                "list them"
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is not valid TOML: {error}; correct that line") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); check its permissions"
        ) from None
    except InputError:
        raise
    except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
        raise InputError(
            f"{path}: holds a number too long or tables nested too deeply; correct it"
        ) from None


def tables(top: TomlTable, name: str) -> list[tuple[str, Any]]:
    """The tables of one kind with their places: [grid] is one, [[grid]] may come several times."""
    found = top.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        return [(f"{top.place}: [{name}]", found)]
    if not found:
        raise top.wrong(f"{name} is an empty list; write [{name}] with its keys below")
    return [
        (f"{top.place}: [[{name}]] number {number}", values)
        for number, values in enumerate(found, 1)
    ]


class TomlTable:
    """One table of a TOML file, read strictly: its errors name the file and the place."""

    def __init__(self, place: str, values: Any, keys: Sequence[str]) -> None:
        self.place = place
        if not isinstance(values, Mapping):
            raise self.wrong(
                f"must be a table, {values!r} is not one; "
                "write its keys on lines of their own below it"
            )
        self._values = values
        for name in values:
            if name not in keys:
                near = get_close_matches(name, keys, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(keys)}"
                raise self.wrong(f"{name!r} is not a key here; {hint}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        """The value as it stands in the file, None where there is none."""
        return self._values.get(name)

    def wrong(self, text: str) -> InputError:
        """The sentence with its place."""
        return InputError(f"{self.place}: {text}")

    def located(self, make: Callable[[], T]) -> T:
        """What `make` returns; the place is added to its error."""
        try:
            return make()
        except InputError as error:
            raise self.wrong(str(error)) from None

    def one(self, name: str, kind: type, default: Any = None) -> Any:
        """A single value."""
        if name not in self:
            return default
        return self._typed(name, self._values[name], kind, f"{name} must be a {_WORDS[kind]}")

    def several(self, name: str, kind: type, default: Sequence[Any] = ()) -> list[Any]:
        """One value or a list of them, without repetitions."""
        if name not in self:
            return list(default)
        found = self._values[name]
        if found == []:
            raise self.wrong(f"{name} is an empty list; give at least one value or leave it out")
        asked = f"{name} must be a {_WORDS[kind]} or a list of them"
        values = [
            self._typed(name, value, kind, asked)
            for value in (found if isinstance(found, list) else [found])
        ]
        return list(dict.fromkeys(values))

    def required(self, name: str, kind: type) -> list[Any]:
        """Like `several`, for what cannot be left out."""
        if name not in self:
            raise self.wrong(f"{name} is missing; give one value or a list")
        return self.several(name, kind)

    def points(self) -> list[tuple[int, int]]:
        """(items, d_model) pairs: listed, or the product of both."""
        if "points" not in self:
            items, widths = self.required("items", int), self.required("d_model", int)
            self.require_count(len(items) * len(widths))
            return list(product(items, widths))
        if "items" in self or "d_model" in self:
            raise self.wrong("points already gives items and d_model; leave these out")
        return self.pairs("points", int, "[[64, 16], [128, 32]]")

    def pairs(self, name: str, kind: type, example: str) -> list[tuple[Any, Any]]:
        """A list of pairs, without repetitions."""
        found, asked = self._values[name], f"{name} must be a list of pairs like {example}"
        if (
            not isinstance(found, list)
            or not found
            or any(not isinstance(p, list) or len(p) != 2 for p in found)
        ):
            raise self.wrong(f"{asked}; {found!r} is not one")
        pairs = [tuple(self._typed(name, value, kind, asked) for value in pair) for pair in found]
        return [(one, other) for one, other in dict.fromkeys(pairs)]

    def seeds(self) -> Sequence[int]:
        """A count, for the seeds from 0, or the seeds themselves."""
        found = self._values.get("seeds", SEEDS)
        if isinstance(found, list):
            return self.several("seeds", int)
        count = self._typed("seeds", found, int, "seeds must be a count or a list of seeds")
        if count < 1:
            raise self.wrong(f"seeds {count} gives no run; choose at least 1, or a list of seeds")
        self.require_count(count)
        return range(count)

    def require_count(self, runs: int, most: int = MOST_RUNS) -> None:
        """Refuse more runs than a sweep takes, before they are made."""
        if runs > most:
            raise self.wrong(
                f"{runs:,} runs or more are too many; a sweep takes up to {MOST_RUNS:,}"
            )

    def span(self) -> tuple[float, float]:
        """The factors of the law between which budgets are tested."""
        if "span" not in self:
            return (0.3, 1.6)
        found, asked = self._values["span"], "span must be two factors of the law like [0.3, 1.6]"
        if not isinstance(found, list) or len(found) != 2:
            raise self.wrong(f"{asked}; {found!r} is not one")
        low, high = (self._typed("span", value, float, asked) for value in found)
        if not 0 < low <= high <= 100:
            raise self.wrong(f"span [{low}, {high}] does not fit; choose 0 < low ≤ high ≤ 100")
        return low, high

    def _typed(self, name: str, value: Any, kind: type, asked: str) -> Any:
        if isinstance(value, bool) or not isinstance(
            value, (int, float) if kind is float else kind
        ):
            raise self.wrong(f"{asked}; {value!r} is not one")
        return value
