"""Array shapes in signatures, by jaxtyping; plain array types where jaxtyping is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Bool", "Float", "Int"]

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ModuleNotFoundError:
        # Machines that only train may have torch, numpy, scipy, pandas, safetensors, typer and rich
        # alone, and shapes are checked in tests only.

        class _AnyShape:
            def __class_getitem__(cls, item: tuple[type, str]) -> type:
                return item[0]

        Bool = Float = Int = _AnyShape
