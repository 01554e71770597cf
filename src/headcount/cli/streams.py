"""Standard streams whose encoding lacks characters that we print: write plain ones instead."""

from __future__ import annotations

import codecs
import sys
import unicodedata

_HANDLER = "headcount.plain"
_PLAIN = {
    "×": "x",
    "≥": ">=",
    "≤": "<=",
    "≠": "!=",
    "≈": "~",
    "±": "+/-",
    "–": "-",
    "−": "-",
    "·": "*",
    "→": "->",
    "’": "'",
    "“": '"',
    "”": '"',
    "√": "sqrt ",
    "²": "^2",
    "‖": "||",
}


def tolerate() -> None:
    """Let standard output and error take any text, whatever their encoding (LC_ALL=C is ASCII)."""
    codecs.register_error(_HANDLER, _replace)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors=_HANDLER)


def prints_unicode() -> bool:
    """Whether the encoding of standard output has every character; one without an encoding has."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def plain(text: str) -> str:
    """The text in ASCII: signs as they are typed, Greek letters by name, `?` for what is left.

    >>> plain("D_K ≥ 8 × 4, τ = ½…")
    'D_K >= 8 x 4, tau = 1?2...'
    >>> plain("C (ln m)²")
    'C (ln m)^2'
    """
    return "".join(map(_plain_character, text))


def _plain_character(character: str) -> str:
    if character.isascii():
        return character
    if character in _PLAIN:
        return _PLAIN[character]
    name = unicodedata.name(character, "")
    if name.startswith("GREEK "):
        letter = name.rpartition(" ")[2]
        return letter.lower() if "SMALL" in name else letter.capitalize()
    close = unicodedata.normalize("NFKD", character)
    close = "".join(part for part in close if not unicodedata.combining(part))
    return close.encode("ascii", "replace").decode() or "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain(error.object[error.start : error.end]), error.end
