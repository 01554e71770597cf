"""Weights as `.safetensors`: tensors `queries` and `keys`, the rest as metadata. Never pickle."""

from __future__ import annotations

import json
import math
import os
import warnings
from decimal import Decimal
from pathlib import Path

from safetensors import SafetensorError, safe_open

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError
from headcount.files import existing_file, save_tensors
from headcount.problem.real_numbers import is_rounded_integer, real_tensor

_FORMAT = "headcount-key-query"
_VERSION = 2
# What truncated or altered files raise on the way from bytes to weights.
_DAMAGED = (
    *(SafetensorError, KeyError, TypeError, AttributeError, OverflowError, ValueError),
    *(RecursionError, RuntimeError),
)


def save(weights: KeyQuery, path: str | os.PathLike[str]) -> None:
    """Write the weights; the threshold keeps its 64 bits."""
    if Path(path).suffix.lower() != ".safetensors":
        raise InputError(f"{path}: weights are written as .safetensors; give the file that suffix")
    tempered = weights.aggregation == "logsumexp"
    newer = tempered or weights.kv_heads < weights.heads
    metadata = {
        "format": _FORMAT,
        "version": str(_VERSION if newer else 1),  # release 0.1.0 reads version 1
        **({"temperature": repr(weights.temperature)} if tempered else {}),
        "aggregation": weights.aggregation,
        "threshold": repr(weights.threshold),
        "widths": json.dumps(weights.widths),
        "notes": json.dumps(dict(weights.notes)),
    }
    save_tensors(path, {"queries": weights.queries, "keys": weights.keys}, metadata)


def load_weights(path: str | os.PathLike[str]) -> KeyQuery:
    """Read weights that `KeyQuery.save` wrote."""
    path = existing_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise InputError(
                    f"{path}: does not hold key-query weights; give a file that headcount wrote"
                )
            if int(_plain_number(metadata["version"])) > _VERSION:
                raise InputError(f"{path}: written by a newer headcount; upgrade this one")
            notes = json.loads(metadata["notes"])
            return KeyQuery(
                queries=real_tensor(file.get_tensor("queries"), "queries"),
                keys=real_tensor(file.get_tensor("keys"), "keys"),
                threshold=_threshold(metadata["threshold"]),
                aggregation=metadata["aggregation"],
                widths=tuple(json.loads(metadata["widths"])),
                notes={str(name): str(text) for name, text in notes.items()},
                temperature=float(_plain_number(metadata.get("temperature", "1.0"))),
            )
    except InputError as error:  # of the file, or of the weights in it
        said = str(error)
        raise InputError(said if said.startswith(str(path)) else f"{path}: {said}") from None
    except _DAMAGED as error:
        raise InputError(f"{path}: not a whole weights file ({error}); write it again") from None


def load(path: str | os.PathLike[str]) -> KeyQuery:
    """The name of `load_weights` in release 0.1.0; kept for one more."""
    warnings.warn(
        "headcount.load is now headcount.load_weights; use that name",
        DeprecationWarning,
        stacklevel=2,
    )
    return load_weights(path)


def _threshold(text: str) -> float:
    """The threshold, as `save` wrote it or as another number that float64 holds."""
    rounded = is_rounded_integer(text)
    number = float(_plain_number(text))
    if not rounded and math.isfinite(number) and len(text) <= 400:
        # As short as float64 prints it, or exactly.
        written = Decimal(text)
        rounded = written not in (Decimal(repr(number)), Decimal(number))
    if rounded:
        raise InputError(
            f"the threshold is {text[:40]}, which float64 rounds; scale the weights down"
        )
    return number


def _plain_number(text: str) -> str:
    """The text, refused where Python alone takes it for a number: 1_0, or digits of any script."""
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text[:40]!r} is not a number")
    return text
