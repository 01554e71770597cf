"""Thin commands: read files, call one function of the library, print."""

from __future__ import annotations


def main() -> None:
    """The `headcount` command."""
    from headcount.cli.app import run

    run()
