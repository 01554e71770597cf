"""Triton's interpreter, which runs the kernels where there is no CUDA device, made less slow.

Each call of a device function has it look through all names of `triton.language` for those that it
must replace, which takes more time than the kernels do. They are the same names every time.
"""

from __future__ import annotations

import inspect
from typing import Any


def remember_builtins() -> None:
    """Look through each namespace once."""
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    known: dict[Any, list[str]] = {}

    def patch_builtins(package: Any, builder: Any, scope: Any) -> None:
        if package not in known:
            members = inspect.getmembers(package)
            known[package] = [name for name, member in members if is_builtin(member)]
        for name in known[package]:
            member = getattr(package, name)
            if is_builtin(member):  # not replaced yet, by the kernel that calls this function
                interpreter._patch_attr(package, name, member, builder, scope)

    interpreter._patch_builtin = patch_builtins
