"""Triton's interpreter, which runs the kernels where there is no CUDA device, made less slow.

Most of its time goes into what comes out the same every time: for each call of a device function
it replaces the functions of `triton.language`, and for each tensor it works out the parts of a
type. Here each is done once.
"""

from __future__ import annotations

import inspect
from typing import Any


def remember_what_stays() -> None:
    _builtins()
    _replaced_functions()
    _types()
    _what_is_equal()


def _builtins() -> None:
    """Look through each namespace once for the names that the interpreter must replace."""
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    known: dict[Any, list[str]] = {}

    def patch_builtins(package: Any, builder: Any, scope: Any) -> None:
        if package not in known:
            members = inspect.getmembers(package)
            known[package] = [name for name, member in members if is_builtin(member)]
        for name in known[package]:
            member = getattr(package, name)
            if is_builtin(member):  # not replaced yet
                interpreter._patch_attr(package, name, member, builder, scope)

    interpreter._patch_builtin = patch_builtins


def _replaced_functions() -> None:
    """A device function finds the functions replaced by the kernel that calls it."""
    import triton.language as tl
    from triton.runtime import interpreter

    patch_lang = interpreter._patch_lang
    replaced: set[Any] = set()  # the modules whose functions are, while a kernel runs
    used: dict[int, set[Any]] = {}  # of each module with kernels: which of the two it uses

    class Scope(interpreter._LangPatchScope):
        def restore(self) -> None:  # called by the kernel alone
            super().restore()
            replaced.clear()

    def patch_once(function: Any) -> Any:
        names = function.__globals__
        if id(names) not in used:
            used[id(names)] = {m for m in (tl, tl.core) if any(v is m for v in names.values())}
        if used[id(names)] <= replaced:
            return Scope()
        replaced.update(used[id(names)])
        return patch_lang(function)

    interpreter._LangPatchScope, interpreter._patch_lang = Scope, patch_once


def _types() -> None:
    """Tensors of one type and types of one shape share all but their values."""
    import triton.language as tl
    from triton.runtime import interpreter

    make_type, make_tensor = tl.block_type.__init__, tl.tensor.__init__
    numpy_type = interpreter._get_np_dtype
    types: dict[Any, dict[str, Any]] = {}
    tensors: dict[str, dict[str, Any]] = {}
    numpy_types: dict[str, Any] = {}

    def block_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = [size.value if type(size) is tl.constexpr else size for size in shape]
        key = (element_ty.name, *sizes)
        if (known := types.get(key)) is None:
            make_type(self, element_ty, shape)
            types[key] = self.__dict__
        else:
            self.__dict__ = known

    def tensor(self: Any, handle: Any, type: Any) -> None:
        if (known := tensors.get(type.name)) is None:
            make_tensor(self, handle, type)
            tensors[type.name] = {k: v for k, v in self.__dict__.items() if k != "handle"}
        else:
            self.__dict__ = {"handle": handle, **known}

    def np_dtype(tt_dtype: Any) -> Any:
        if (known := numpy_types.get(tt_dtype.name)) is None:
            known = numpy_types[tt_dtype.name] = numpy_type(tt_dtype)
        return known

    tl.block_type.__init__, tl.tensor.__init__ = block_type, tensor
    interpreter._get_np_dtype = np_dtype


def _what_is_equal() -> None:
    """Types are the same object more often than not, and then equal."""
    import triton.language as tl
    from triton.language.semantic import TritonSemantic

    equal, broadcast = tl.dtype.__eq__, TritonSemantic.broadcast_impl_value

    def same_or_equal(self: Any, other: Any) -> bool:
        return self is other or equal(self, other)

    def broadcast_others(self: Any, lhs: Any, rhs: Any) -> Any:
        return (lhs, rhs) if lhs.type.name == rhs.type.name else broadcast(self, lhs, rhs)

    tl.dtype.__eq__, TritonSemantic.broadcast_impl_value = same_or_equal, broadcast_others
