"""Shapes and types in signatures are checked while the tests run."""

import torch
from jaxtyping import install_import_hook

import tests.typechecker  # noqa: F401  (the hook looks it up by name)

install_import_hook("headcount", "tests.typechecker.checked")

torch.set_num_threads(1)  # the problems are small: a second thread only waits
