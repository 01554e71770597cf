"""The command tree. Commands import torch and the like when they run, so that `--help` is fast."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from typing import Annotated, Any, NoReturn

import typer

from headcount.cli import (
    audit,
    bench,
    block,
    bounds,
    common,
    compile,
    construct,
    explore,
    export,
    frontier,
    incoherence,
    make,
    noise,
    plan,
    reproduce,
    results,
    show,
    sweep,
    tour,
    train,
    verify,
    watch,
)
from headcount.cli.help import App
from headcount.cli.streams import tolerate
from headcount.errors import InputError, NoSolution

app = App(
    "How many heads does your attention need? Plan, build, train and verify key-query budgets.",
    name="headcount",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# How numpy, torch and Python say that an array or a number does not fit.
_TOO_LARGE = re.compile("allocate|memory|too large|too big|overflow|maximum|exceed", re.IGNORECASE)


def _print_version(wanted: bool) -> bool:
    if wanted:
        from headcount import __version__
        from headcount.training.engines.native.library import levels

        print(f"headcount {__version__}")
        try:
            there = levels()
            print(f"native engine at level {there[-1]} (levels here: {', '.join(there)})")
        except InputError as missing:
            print(f"no native engine, so runs on a CPU are trained with torch: {missing}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and the native engine's levels, and exit.",
        ),
    ] = False,
) -> None:
    pass


app.add_typer(make.app, name="make")
app.add_typer(bench.app, name="bench")
app.add_typer(results.app, name="results")
app.command()(construct.construct)
app.command()(compile.compile)
app.command()(frontier.frontier)
app.command()(verify.verify)
app.command()(export.export)
app.command()(train.train)
app.command()(sweep.sweep)
app.command()(block.block)
app.command()(reproduce.reproduce)
app.command()(reproduce.report)
app.command()(show.show)
app.command()(explore.explore)
app.command()(bounds.bounds)
app.command()(plan.plan)
app.command()(incoherence.incoherence)
app.command()(audit.audit)
app.command()(noise.noise)
app.command()(watch.watch)
app.command()(tour.tour)


@cache  # a fifth of a second each time
def commands() -> Any:
    """The command tree as click has it."""
    return typer.main.get_command(app)


def run() -> None:
    """Run the command line: bad input is one sentence and exit code 2, never a traceback."""
    tolerate()
    try:
        try:
            _run()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _end_without_reader()


def _run() -> NoReturn:
    try:
        sys.exit(commands()(standalone_mode=False))
    except InputError as error:
        common.fail(str(error))
    except NoSolution as answer:
        common.fail(str(answer), code=1)
    except KeyboardInterrupt:
        common.fail("interrupted", code=130)
    except (MemoryError, OSError) as error:
        common.fail(f"the system refused: {error or 'out of memory'}")
    except Exception as error:
        _fail_otherwise(error)


def _end_without_reader() -> NoReturn:
    """End silently, as other tools do, when a reader went away, as in `headcount … | head`.

    SIGPIPE stays ignored: it would also end us when a worker or a scheduler goes away.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # what is still buffered is flushed at exit
    sys.exit(1)  # as rich and click do, which meet most of these cases before us


def _fail_otherwise(error: Exception) -> NoReturn:
    name = type(error).__name__
    if name == "Abort":
        common.fail("interrupted", code=130)
    if name == "NoArgsIsHelpError":  # the help has been printed
        sys.exit(2)
    # A usage error, of click or of the copy of it inside typer.
    if message := getattr(error, "format_message", None):
        text = message().replace("Value error, ", "")  # newer releases of typer say so first
        common.fail(f"{text.rstrip('.')}; see --help")
    numeric = isinstance(error, RuntimeError | ValueError | OverflowError)
    if numeric and _TOO_LARGE.search(str(error)):
        common.fail(f"a size is too large for this machine ({error}); choose smaller numbers")
    if os.environ.get("HEADCOUNT_DEBUG"):
        raise error
    common.fail(
        f"internal error ({name}: {error}); set HEADCOUNT_DEBUG=1 for the traceback and report it",
        code=70,
    )
