"""Shapes and types in signatures are checked while the tests run."""

import contextlib
import os

import torch
from jaxtyping import install_import_hook

import tests.typechecker  # noqa: F401  (the hook looks it up by name)

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton: its kernels then run on the CPU
with contextlib.suppress(ModuleNotFoundError):  # triton may be missing
    import headcount.training.triton_checks  # noqa: F401  (before the hook: triton reads the kernels' source itself)

install_import_hook("headcount", "tests.typechecker.checked")

torch.set_num_threads(1)  # the problems are small: a second thread only waits
