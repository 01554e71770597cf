"""How torch computes: its threads, and what it does with vanishing numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads (None: as many as before), and restore the number afterwards.

    One is best for small tensors: a second thread would mostly wait for the first, above all
    where other work uses the cores.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Keep vanishing violations from slowing the CPU down; the setting is restored afterwards."""
    import torch

    before = bool((torch.tensor([2.0**-126]) * 0.5 == 0).all())
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
