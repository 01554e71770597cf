"""Names of items: one distinct text per row of a table, and where they are read from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, SupportsIndex

import numpy as np

from headcount.errors import InputError
from headcount.files import existing_file, replacing


@dataclass(frozen=True)
class Vocabulary:
    """The names of the items 0 … m−1: texts of one line, all different.

    >>> words = Vocabulary.of(["hot", "cold"])
    >>> words[1], words.id("hot"), "warm" in words, len(words)
    ('cold', 0, False, 2)
    """

    names: tuple[str, ...]

    @classmethod
    def of(
        cls, names: Iterable[str], source: str | os.PathLike[str] = "names", unit: str = "name"
    ) -> Vocabulary:
        """The vocabulary of `names`; an error says that they are from `source`.

        `unit` is what one of them is called there: `line` in a text file, `row` in a table.
        """
        listed, first = tuple(names), {}
        start = 1 if unit == "line" else 0
        for place, name in enumerate(listed, start):
            if not isinstance(name, str) or not name.strip() or set(name) & set("\n\r"):
                raise InputError(
                    f"{source}, {unit} {place}: {name!r} is not a name; "
                    "give every item a text of one line"
                )
            if name in first:
                raise InputError(
                    f"{source}, {unit} {place}: the name {name!r} is in {unit} {first[name]} "
                    "already; give every item a name of its own"
                )
            first[name] = place
        return cls(listed)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, item: SupportsIndex) -> str:
        return self.names[item]

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: item for item, name in enumerate(self.names)}

    def find(self, name: str) -> int | None:
        """The item of a name, with or without the blanks around it; None where there is none."""
        found = self._ids.get(name)
        return self._ids.get(name.strip()) if found is None else found

    def id(self, name: str) -> int:
        """The item of a name; an unknown one is an `InputError` that offers the nearest."""
        found = self.find(name)
        if found is None:
            raise InputError(f"{self.unknown(name)}; correct it or add it to the names")
        return found

    def unknown(self, name: str) -> str:
        """What to say of a name that is not here: how many there are, and the nearest."""
        near = get_close_matches(name.strip(), self.names, n=1)
        hint = f" (the nearest is {near[0]!r})" if near else ""
        return f"{name.strip()!r} is not among the {len(self):,} names{hint}"

    def picked(self, items: Iterable[SupportsIndex]) -> Vocabulary:
        """The names of some of the items, in the order given."""
        return Vocabulary(tuple(self.names[item] for item in items))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.names[:3])) + (", …" if len(self) > 3 else "")
        return f"Vocabulary({shown}; {len(self)} names)"


Names = Vocabulary | Sequence[str]


def as_vocabulary(names: Names | Any, items: int | None = None) -> Vocabulary:
    """A vocabulary from a list of texts; with `items`, it must name exactly that many.

    >>> as_vocabulary(["a", "b", "c"], items=2)
    Traceback (most recent call last):
    headcount.errors.InputError: 3 names do not fit 2 items; give one name per item
    """
    if not isinstance(names, Vocabulary):
        if isinstance(names, str):
            raise InputError(f"{names!r} is one text; give a list of names, one per item")
        names = Vocabulary.of(np.asarray(names, dtype=object).tolist())
    if items is not None and len(names) != items:
        raise InputError(f"{len(names):,} names do not fit {items:,} items; give one name per item")
    return names


def read_names(path: str | os.PathLike[str]) -> Vocabulary:
    """Read names from a text file, one per line, or from the name column of a table.

    In a `.csv`, `.tsv` or `.parquet` file the names are the column `name`, else the only column of
    texts. Every other file is read as text.
    """
    path = existing_file(path)
    if path.suffix.lower() in (".csv", ".tsv", ".parquet"):
        from headcount.problem.frames import frame_names, read_frame

        frame = read_frame(path)
        if path.suffix.lower() != ".parquet" and len(frame.columns) == 1:
            (title,) = frame.columns
            if title != "name":
                raise InputError(
                    f"{path}, line 1: {title!r} could be a title or a name; title the column "
                    "'name', or save the names as a .txt file without a title"
                )
        names = frame_names(frame, path)
        if names is None:
            raise InputError(f"{path}: no column holds names; add a column 'name' of texts")
        return names
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: is not UTF-8 text; save it as UTF-8") from None
    # Not splitlines: vocabularies hold tokens such as U+2028, which it takes for line ends.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise InputError(f"{path}: holds no names; write one per line")
    return Vocabulary.of(lines, path, "line")


def write_names(names: Vocabulary, path: str | os.PathLike[str]) -> None:
    """Write names as a text file, one per line."""
    with replacing(path) as temporary:
        temporary.write_bytes("".join(f"{name}\n" for name in names).encode())


def names_of_rows(
    names: str | os.PathLike[str], table: str | os.PathLike[str], rows: int
) -> Vocabulary:
    """Read the names of a table's rows from a file of their own."""
    read = read_names(names)
    if len(read) != rows:
        more = "more" if len(read) > rows else "fewer"
        raise InputError(
            f"{names}: {len(read):,} names are {more} than the {rows:,} rows of {table}; "
            "give one name per row"
        )
    return read
