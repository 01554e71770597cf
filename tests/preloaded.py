"""What processes find imported that are forked from a server: processes.py."""

from __future__ import annotations

import contextlib
import os

import altair  # noqa: F401
import vl_convert  # noqa: F401

import headcount.sweeps.worker
import headcount.training.engines.native.engine
from tests.interpreted_kernels import remember_what_stays

with contextlib.suppress(ModuleNotFoundError):  # distributed may be missing
    import distributed.cli.dask_scheduler
    import distributed.cli.dask_worker  # noqa: F401
with contextlib.suppress(ModuleNotFoundError):  # triton may be missing
    import headcount.training.engines.triton.engine  # noqa: F401

    if os.environ.get("TRITON_INTERPRET") == "1":
        remember_what_stays()
