"""Counter-based random words: word n of a stream is a pure function of (key, n).

Any engine, on any device, can draw any part of a stream without drawing the rest, and gets the same
bits. The generator is SplitMix64 used as a counter-based one: word n = mix(key + (n + 1)·γ).
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.shapes import Int

_GOLDEN = -0x61C8864680B583EB  # γ = 0x9E3779B97F4A7C15 as a signed 64-bit integer
_FIRST = -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
_SECOND = -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB


def generator(seed: int, *salt: int) -> np.random.Generator:
    """numpy's generator for a seed; `salt` keeps uses of one seed apart."""
    if seed < 0:
        raise InputError(f"seed {seed} is negative; choose 0 or more")
    return np.random.default_rng([seed, *salt] if salt else seed)


def stream_key(*parts: int | str) -> int:
    """A signed 64-bit key for a stream named by integers and words, such as (seed, "validation").

    >>> stream_key(0, "train") == stream_key(0, "train")
    True
    >>> stream_key(0, "train") == stream_key(0, "test")
    False
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def words(key: int | Int[Tensor, "*#n"], counters: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
    """The 64-bit words of stream `key` at `counters`, as signed integers that wrap."""
    z = (counters + 1).mul_(_GOLDEN).add_(key)
    z = z.bitwise_xor_(_shift(z, 30)).mul_(_FIRST)
    z = z.bitwise_xor_(_shift(z, 27)).mul_(_SECOND)
    return z.bitwise_xor_(_shift(z, 31))


def halves(word: Int[Tensor, "*n"]) -> tuple[Int[Tensor, "*n"], Int[Tensor, "*n"]]:
    """Two uniform 32-bit integers (high, low) from each word."""
    return _shift(word, 32), word & 0xFFFFFFFF


def below(uniform: Int[Tensor, "*n"], bound: int | Int[Tensor, "*#n"]) -> Int[Tensor, "*n"]:
    """A uniform 32-bit integer scaled to 0 … bound−1.

    Probabilities are off from 1/bound by at most bound/2³² of their value.
    """
    return (uniform * bound) >> 32


def _shift(z: Int[Tensor, "*n"], by: int) -> Int[Tensor, "*n"]:
    """Logical right shift of signed 64-bit integers: torch has the arithmetic one alone."""
    return torch.bitwise_right_shift(z, by).bitwise_and_((1 << (64 - by)) - 1)
