"""The tokens of a model, and which of them is a whole word."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from headcount.errors import InputError

_SPACES = ("Ġ", "▁")  # how a space before a word is written: byte-level BPE, sentencepiece
_GAPS, _ROOM = 8, 1_024  # ids are below 8 times the number of tokens, and 1,024 more


def tokens_in(folder: Path) -> list[str] | None:
    """The tokens of a Hugging Face folder by id; None where it has no vocabulary."""
    for name, read in (("tokenizer.json", _tokenizer), ("vocab.txt", _lines), ("vocab.json", _map)):
        path = folder / name
        if path.is_file():
            try:
                return read(path)
            except RecursionError:
                raise InputError(
                    f"{path}: not a vocabulary that can be read (nested too deep); fetch it again"
                ) from None
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{path}: not a vocabulary that can be read ({error}); fetch it again"
                ) from None
    return None


def words_of(tokens: list[str]) -> dict[str, int]:
    """The ids of tokens that are a word: after a space, or, for word pieces, at its start.

    >>> words_of(["Ġhot", "hot", "Ġ", "ĠcaffÃ¨"])
    {'hot': 0, 'caffè': 3}
    >>> words_of(["[CLS]", "hot", "##ter"])
    {'hot': 1}
    """
    counts = {mark: sum(token.startswith(mark) for token in tokens) for mark in _SPACES}
    mark = max(counts, key=lambda one: counts[one])
    found: dict[str, int] = {}
    for place, token in enumerate(tokens):
        if counts[mark] * 20 < len(tokens):  # word pieces
            word = "" if token.startswith(("##", "[", "<")) else token
        else:
            word = token[1:] if token.startswith(mark) else ""
            word = _decoded(word) if mark == _SPACES[0] else word
        if word and mark not in word:
            found.setdefault(word, place)
    return found


def _tokenizer(path: Path) -> list[str]:
    model = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
    if isinstance(model, list):  # unigram: pairs of token and score
        return [str(token) for token, _ in model]
    return _by_id(model)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


def _map(path: Path) -> list[str]:
    return _by_id(json.loads(path.read_text(encoding="utf-8")))


def _by_id(ids: dict[str, Any]) -> list[str]:
    """Tokens in the order of their ids; gaps are empty, and few, so that ids bound the memory."""
    most = _GAPS * len(ids) + _ROOM
    for token, place in ids.items():
        if not isinstance(place, int) or not 0 <= place < most:
            raise ValueError(
                f"token {token[:40]!r} has id {place!r:.40}, and {len(ids):,} tokens have ids from "
                f"0 to {most - 1:,}"
            )
    tokens = [""] * (max(ids.values()) + 1)
    for token, place in ids.items():
        tokens[place] = token
    return tokens


def _decoded(word: str) -> str:
    """The text of a byte-level token; empty where its bytes are not whole characters."""
    if word.isascii():
        return word
    try:
        return bytes(_bytes()[letter] for letter in word).decode()
    except (KeyError, UnicodeDecodeError):
        return ""


@cache
def _bytes() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the rest follow U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}
