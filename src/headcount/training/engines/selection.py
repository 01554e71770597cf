"""The choice of an engine: by name, or the fastest that this machine can run."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Literal, get_args

import torch

from headcount.errors import InputError
from headcount.training.engines.base import Engine

EngineName = Literal["auto", "native", "torch", "triton"]


SLOW = (
    "with the torch engine, which takes 2 to 20 times as long as the native one; that one "
    "needs a C++ compiler (g++) when headcount is installed"
)


def is_slow(engine: Engine) -> bool:
    """Whether it is the engine that is left where there is neither a compiler nor a GPU."""
    return (engine.name, engine.device) == ("torch", "cpu")


class SlowerEngine(UserWarning):
    """`auto` took a slower engine than this machine could run; the text says what is missing."""


def choose_engine(engine: EngineName | Engine = "auto") -> Engine:
    """The engine asked for, or an error that says what it needs; `auto` takes the fastest one."""
    if not isinstance(engine, str):
        return engine
    if engine not in get_args(EngineName):
        raise InputError(f"engine {engine!r} is unknown; use {', '.join(get_args(EngineName))}")
    if engine == "auto":
        return _fastest()
    return _load(engine)


def warn_slower(missing: InputError) -> None:
    """Tell the user what keeps the faster engine from running."""
    warnings.warn(f"{missing} Falling back to a slower engine.", SlowerEngine, stacklevel=4)


@cache
def _load(name: str) -> Engine:
    if name == "native":
        from headcount.training.engines.native.engine import NativeEngine

        return NativeEngine()
    if name == "triton":
        from headcount.triton_device import triton_device

        triton_device()  # before the kernels, whose import needs triton
        from headcount.training.engines.triton.engine import TritonEngine

        return TritonEngine()
    from headcount.training.engines.torch import TorchEngine

    return TorchEngine("cuda" if torch.cuda.is_available() else "cpu")


@cache
def _fastest() -> Engine:
    """triton on CUDA, else native, else torch; warns once about what is missing."""
    for name in ("triton", "native") if torch.cuda.is_available() else ("native",):
        try:
            return _load(name)
        except InputError as missing:
            warn_slower(missing)
    return _load("torch")
