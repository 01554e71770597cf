"""The help of commands: options that take no value are shown without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _PlainFlags:
    """`--json`, not `--json <bool>`: typer writes a type beside every option, flags included."""

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)  # pyright: ignore[reportAttributeAccessIssue]
        for parameter in found:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return found


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


class App(typer.Typer):
    """A group of commands whose help shows flags as flags."""

    def __init__(self, help: str, **options: Any) -> None:
        super().__init__(help=help, cls=_Group, no_args_is_help=True, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[..., Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().command(name, cls=_Command, **options)
