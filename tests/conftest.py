"""Shapes and types in signatures are checked while the tests run."""

import contextlib
import gc
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

# One thread per process: the problems are small, and a second only waits. BLAS reads this when
# numpy is first imported, here or in a process that a test starts.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pytest
import torch

from tests.interpreted_kernels import remember_what_stays
from tests.typechecker import begin_test, check_package
from tests.typechecker import unchecked as without_checks

if not torch.cuda.is_available():
    # Before anything imports triton: its kernels then run on the CPU.
    os.environ["TRITON_INTERPRET"] = "1"
with contextlib.suppress(ModuleNotFoundError):  # triton may be missing
    # Before the hook: triton reads the kernels' source itself.
    import headcount.attention.pair_kernels
    import headcount.block.kernels
    import headcount.compiler.slope_kernel
    import headcount.training.engines.triton.kernels.checks
    import headcount.training.engines.triton.kernels.steps
    import headcount.training.engines.triton.kernels.together  # noqa: F401

    if os.environ.get("TRITON_INTERPRET") == "1":
        remember_what_stays()

check_package("headcount")

# Imported after the hook is in place.
pytest_plugins = [
    "tests.browser_pages",
    "tests.counted_time",
    "tests.made_engines",
    "tests.tiny_blocks",
]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script's background job ignores interrupts, and so would the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """Spare every later collection of garbage the modules, which are most objects and stay."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    begin_test()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session")
def command_in():
    """Run a command line in a folder; gives (exit code, standard output, standard error).

    With `encoding`, on a terminal of that encoding.
    """
    from headcount.cli import main

    def run(folder: Path, *words: object, encoding: str = "") -> tuple[int, str, str]:
        terminals = [TextIOWrapper(BytesIO(), encoding or "utf-8") for _ in range(2)]
        out, err = terminals if encoding else (StringIO(), StringIO())
        with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
            patched.chdir(folder)
            patched.setattr(sys, "argv", ["headcount", *map(str, words)])
            with pytest.raises(SystemExit) as ended:
                main()
        return int(ended.value.code or 0), *(_content(stream) for stream in (out, err))

    def _content(stream: TextIOWrapper | StringIO) -> str:
        stream.seek(0)
        return stream.read()

    return run


@pytest.fixture
def command(command_in, tmp_path):
    """Run a command line in an empty folder of the test's own, as `command_in` does."""
    return partial(command_in, tmp_path)


@pytest.fixture
def unchecked():
    """Without the check of types, which would come before the sentence that users read."""
    with without_checks():
        yield


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
