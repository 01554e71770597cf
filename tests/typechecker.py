"""The types and shapes in signatures are checked while the tests run: beartype with jaxtyping.

jaxtyping has an import hook of its own, with which the tests took 1.6 times as long: it binds the
arguments of every call, and checks them before and after it. Here each is checked once, jaxtyping
keeps the axes of those signatures alone that have shapes, and a function is compiled with its
checks when it is first called. What a test calls often, in a loop or over many examples, is checked
in its first calls and then in some: the rest took a tenth of the time of all tests.
"""

from __future__ import annotations

import ast
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source, decode_source
from types import CodeType, FunctionType
from typing import Any
from unittest.mock import patch

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintViolation as TypeViolation
from jaxtyping import AbstractArray, config, jaxtyped

__all__ = ["TypeViolation", "begin_test", "check_package", "checked", "unchecked"]

_ALL = 50  # of a function's calls in a test are checked; then one of `_SOME`
_SOME = 10
_test = 0  # how many have begun
_typed = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int may stand for a float
_checks: dict[CodeType, tuple[Any, bool]] = {}  # of each function: with its checks; has it shapes
_FUNCTION = "__beartype_func"  # what a check calls, as its keyword argument
_DECORATOR = "__import__('tests.typechecker').typechecker.checked"


def check_package(name: str) -> None:
    """Check every function and dataclass of the modules that are imported from now on."""
    sys.meta_path.insert(0, _Finder(name))


def begin_test() -> None:
    """Count every function's calls anew."""
    global _test
    _test += 1


def checked(found: Any) -> Any:
    """A function whose calls are checked, or a dataclass whose fields are."""
    if not inspect.isclass(found):
        return _checked_function(found)
    if is_dataclass(found) and not hasattr(found.__init__, "__wrapped__"):
        found.__init__ = _checked_function(found.__init__)
    return found


@contextmanager
def unchecked() -> Iterator[None]:
    """Calls as users make them, to whom a check of types does not speak first."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)


def _checked_function(function: Any) -> Any:
    compiled: Callable[..., Any] | None = None
    test = calls = 0

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal compiled, test, calls
        test, calls = _test, calls + 1 if test == _test else 1
        if config.jaxtyping_disable or (calls > _ALL and calls % _SOME):
            return function(*args, **kwargs)
        if compiled is None:
            compiled = _compiled(function)
        return compiled(*args, **kwargs)

    return call


def _compiled(function: Any) -> Callable[..., Any]:
    """The function with its checks. Those of a function inside another are compiled once."""
    known, has_shapes = _checks.get(function.__code__, (None, False))
    if known is None:
        names = function.__globals__
        hints = {name: _resolved(hint, names) for name, hint in function.__annotations__.items()}
        known, has_shapes = _typed(_copy(function, hints)), any(map(_has_shape, hints.values()))
        _checks[function.__code__] = known, has_shapes
    check = _copy(known, known.__annotations__)
    if _FUNCTION in (check.__kwdefaults__ or {}):  # not where there is nothing to check
        check.__kwdefaults__ = check.__kwdefaults__ | {_FUNCTION: function}
    else:
        check = function
    return jaxtyped(check, typechecker=None) if has_shapes else check


def _copy(function: Any, hints: dict[str, Any]) -> Any:
    code, defaults = function.__code__, function.__defaults__
    made = FunctionType(
        code, function.__globals__, function.__name__, defaults, function.__closure__
    )
    made.__kwdefaults__, made.__annotations__ = function.__kwdefaults__, hints
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    made.__dict__.update(function.__dict__)
    return made


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    """The type that a hint names; Any where only a type checker imports it."""

    def holder() -> None: ...

    holder.__annotations__ = {"hint": hint}
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["hint"]
    except (NameError, AttributeError):
        return Any


def _has_shape(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(map(_has_shape, typing.get_args(hint)))


class _Decorated(ast.NodeTransformer):
    """Functions get the decorator below their own, dataclasses above."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list.append(self._decorator(node))
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list.insert(0, self._decorator(node))
        return self.generic_visit(node)

    def _decorator(self, node: ast.AST) -> ast.expr:
        made = ast.parse(_DECORATOR, mode="eval").body
        for part in ast.walk(made):
            ast.copy_location(part, node)
        return made


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        # Decorated code has a cache of its own. Its name changes with what `_Decorated` does.
        place = "importlib._bootstrap_external.cache_from_source"
        with patch(place, partial(cache_from_source, optimization="checked1")):
            return super().get_code(fullname)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # pyright: ignore
        tree = _Decorated().visit(ast.parse(decode_source(data), path))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)


class _Finder(MetaPathFinder):
    def __init__(self, package: str):
        self.package = package

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self.package:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec
