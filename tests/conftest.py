"""Shapes and types in signatures are checked while the tests run."""

import contextlib
import os
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

import tests.typechecker  # noqa: F401  (the hook looks it up by name)

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = (
        "1"  # before anything imports triton: its kernels then run on the CPU
    )
with contextlib.suppress(ModuleNotFoundError):  # triton may be missing
    # Before the hook: triton reads the kernels' source itself.
    import headcount.block.kernels
    import headcount.training.engines.triton.kernels.checks
    import headcount.training.engines.triton.kernels.steps  # noqa: F401

install_import_hook("headcount", "tests.typechecker.checked")

torch.set_num_threads(1)  # the problems are small: a second thread only waits


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run a command line in an empty folder; gives (exit code, standard output, standard error)."""
    from headcount.cli import main

    def run(*words: object) -> tuple[int | str | None, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["headcount", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def written(tmp_path):
    """Write a sweep file."""

    def write(text: str, name: str = "some.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def path(tmp_path) -> Path:
    """Where a store may be made."""
    return tmp_path / "results.sqlite"


@pytest.fixture
def filled(path) -> Path:
    """A store of 40 runs."""
    from headcount.store.store import Store
    from tests.store_writers import result_of

    with Store(path) as store:
        store.add(map(result_of, range(40)))
    return path
