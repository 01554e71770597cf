"""A clock that counts how often it is asked, for searches that end by the clock."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest


@contextmanager
def counting_time() -> Iterator[None]:
    """Each question of `time.monotonic` takes a millisecond.

    A search asks once per step, so its time limit is a number of steps: what it finds depends
    neither on the machine nor on what else runs there.
    """
    asked = itertools.count()
    with patch.object(time, "monotonic", lambda: next(asked) / 1000):
        yield


@pytest.fixture
def counted_time() -> Iterator[None]:
    with counting_time():
        yield
