"""The command tree. Command modules import the heavy rooms inside their functions: `--help` stays fast."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from headcount.cli import audit, bounds, common, construct, make, plan, show, tour, verify
from headcount.errors import InputError, NoSolution

app = typer.Typer(
    name="headcount",
    help="How many heads does your attention need? Plan, build, train and verify key-query budgets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"headcount {version('headcount')}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


app.add_typer(make.app, name="make")
app.command()(construct.construct)
app.command()(verify.verify)
app.command()(show.show)
app.command()(bounds.bounds)
app.command()(plan.plan)
app.command()(audit.incoherence)
app.command()(audit.noise)
app.command()(tour.tour)


def run() -> None:
    """Run the command line: bad input is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except InputError as error:
        common.fail(str(error))
    except NoSolution as answer:
        common.fail(str(answer), code=1)
    except KeyboardInterrupt:
        common.fail("interrupted", code=130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (MemoryError, OSError) as error:
        common.fail(f"the system refused: {error or 'out of memory'}")
    except Exception as error:
        if os.environ.get("HEADCOUNT_DEBUG"):
            raise
        common.fail(
            f"internal error ({type(error).__name__}: {error}); set HEADCOUNT_DEBUG=1 for the traceback and report it",
            code=70,
        )
