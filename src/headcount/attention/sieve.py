"""All pairs on a GPU, with no [m, m] matrix: rows' highest non-edges, and pairs above a level.

Scores are computed on tensor cores, from projections rounded to half precision or nearly as
precisely as in float32. What rounding costs is measured; what tensor cores lose in adding up is
bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headcount.attention.tiles import Projections
from headcount.problem.graph import Graph
from headcount.shapes import Float, Int
from headcount.triton_device import kernels_run_on

_ROWS = _COLUMNS = 128  # of a tile
_PARTS = 8  # programs per block of rows
_WARPS = 8
_STAGES = 3
_CHUNK = 64  # columns of a head multiplied at a time
_CAPACITY = 2**25  # pairs above a level that are listed
_CROWDED = 1 / 64  # share of edges from which looking them up costs more than the products
# Tensor cores cut sums off rather than round them (Fasi, Higham, Mikaitis and Pranesh, 2021), so an
# addition may lose 2⁻²³ of its largest term; this allows for eight times as much.
_ADDING = 2.0**-20
_SLACK = 1 + 1e-6  # covers the rounding of the bound itself
_UNDERFLOW = 2.0**-400  # more than entries whose squares vanish can add to a score
_LARGEST = 2.0**60  # scores in units beyond this, or of less than its inverse, are not sieved
_MOST = 2**29  # entries of all padded queries; the kernels count in 32 bits


@dataclass(frozen=True)
class TiledPairs:
    """Pairs in the order of the tiles they lie in, and where each tile's pairs begin."""

    begins: Int[Tensor, " tiles"]
    rows: Int[Tensor, " pairs"]
    columns: Int[Tensor, " pairs"]
    order: Int[Tensor, " pairs"]  # places in the list as it was given

    @classmethod
    def of(
        cls,
        rows: Int[Tensor, " pairs"],
        columns: Int[Tensor, " pairs"],
        items: int,
        height: int,
        width: int,
    ) -> TiledPairs:
        """For tiles of this height and width."""
        across, down = -(-items // width), -(-items // height)
        tile, order = (rows // height * across + columns // width).sort(stable=True)
        tiles = torch.arange(across * down + 1, device=tile.device)
        begins = torch.searchsorted(tile, tiles).int()
        return cls(begins, rows[order].int(), columns[order].int(), order)


def sieve_edges(
    sources: Int[Tensor, " edges"], targets: Int[Tensor, " edges"], items: int
) -> TiledPairs:
    """A graph's edges as a `Sieve` takes them."""
    return TiledPairs.of(sources, targets, items, _ROWS, _COLUMNS)


def padded(vectors: Float[Tensor, "heads items key_dim"]) -> Float[Tensor, "heads items width"]:
    """With zero columns up to a width that the kernels take."""
    missing = padded_width(vectors.shape[2]) - vectors.shape[2]
    return functional.pad(vectors, (0, missing)).contiguous()


def padded_width(width: int) -> int:
    """The next power of two, from 16 on.

    >>> padded_width(3), padded_width(16), padded_width(33)
    (16, 16, 64)
    """
    return max(16, 1 << (width - 1).bit_length())


def halved(
    vectors: Float[Tensor, "heads items key_dim"],
) -> tuple[Float[Tensor, "heads items width"], Float[Tensor, ""]]:
    """Vectors in half precision, times a power of two that is given too.

    Half precision has the eleven significant bits of TF32 but few exponents, so the largest entry
    is moved to between 8 and 16.
    """
    scale = torch.exp2(4 - torch.frexp(vectors.abs().amax()).exponent.to(vectors.dtype))
    return padded((vectors * scale).half()), scale


def sieve_runs_on(device: torch.device, items: int, edges: int, widths: Sequence[int]) -> bool:
    """Whether the kernels run here, and take heads of these widths and so many edges."""
    entries = len(widths) * items * padded_width(max(widths))
    small = entries <= _MOST and len(widths) * edges <= _MOST
    return small and edges <= _CROWDED * items**2 and kernels_run_on(device)


@dataclass(frozen=True)
class Sieve:
    """Queries and keys of all heads as the kernels take them, and the graph's edges.

    Entries in float32 are multiplied as three products in TF32, nearly as precise as float32.
    """

    queries: Float[Tensor, "heads items width"]
    keys: Float[Tensor, "heads items width"]
    edges: TiledPairs
    unit: float = 1.0  # what their scores are to be multiplied by
    error: float = math.nan  # how far a score can be from the one of the projections, if known

    @classmethod
    def of(cls, parts: Projections, graph: Graph) -> Sieve:
        """Projections rounded to half precision; what that costs is measured, row by row."""
        widest = max(part.shape[1] for part in parts.queries)
        both, lost, norms, scales = [], [], [], []
        for side in (parts.queries, parts.keys):
            vectors = torch.stack(
                [functional.pad(part, (0, widest - part.shape[1])) for part in side]
            )
            half, scale = halved(vectors)
            # Everything is measured after scaling, where no square underflows that matters.
            scaled = vectors * scale
            norms.append(scaled.norm(dim=2).amax(1))
            lost.append((scaled - half[:, :, :widest]).norm(dim=2).amax(1))
            both.append(half)
            scales.append(float(scale))
        # (q + δq)·(k + δk) − q·k, and what is lost in adding up.
        (query, key), (query_lost, key_lost) = norms, lost
        error = query_lost * (key + key_lost) + query * key_lost
        error += widest * _ADDING * (query + query_lost) * (key + key_lost)
        unit = 1 / (scales[0] * scales[1])
        sources, targets = (
            torch.from_numpy(part.copy()).to(half.device) for part in (graph.sources, graph.targets)
        )
        edges = sieve_edges(sources, targets, graph.items)
        return cls(both[0], both[1], edges, unit, (float(error.max()) + _UNDERFLOW) * _SLACK * unit)

    @property
    def usable(self) -> bool:
        """Whether float32 holds scores and levels in this unit."""
        return 1 / _LARGEST < self.unit < _LARGEST

    def sift(
        self, levels: Float[Tensor, " items"], listed: bool = True
    ) -> tuple[Float[Tensor, " items"], int, Int[Tensor, " places"]]:
        """Each row's highest non-edge, and how many and which lie above their row's level.

        A place is row times items plus column. No places are given where they are too many.
        """
        from headcount.attention import pair_kernels  # needs triton

        kernel: Any = pair_kernels.sift
        heads, items, width = self.queries.shape
        capacity = min(_CAPACITY, items**2) if listed else 0
        peaks = levels.new_empty(_PARTS, items)
        places = torch.empty(capacity, dtype=torch.int64, device=levels.device)
        found = torch.zeros(1, dtype=torch.int64, device=levels.device)
        edges = (self.edges.begins, self.edges.rows, self.edges.columns)
        kernel[(-(-items // _ROWS), _PARTS)](
            self.queries, self.keys, levels / self.unit, *edges, peaks, places, found, items,
            capacity, HEADS=heads, DK=width, CHUNK=min(width, _CHUNK), ROWS=_ROWS, COLUMNS=_COLUMNS,
            PARTS=_PARTS, num_warps=_WARPS, num_stages=self._stages,
        )  # fmt: skip
        count = int(found)
        places = places[: count if count <= capacity else 0].sort().values
        return peaks.amax(0) * self.unit, count, places

    @property
    def _stages(self) -> int:
        """Tiles loaded ahead: as many as the shared memory holds."""
        if self.queries.device.type != "cuda":
            return 1
        chunk = min(self.queries.shape[2], _CHUNK) * self.queries.element_size()
        room = torch.cuda.get_device_properties(self.queries.device).shared_memory_per_block_optin
        return max(1, min(_STAGES, room // ((_ROWS + _COLUMNS) * chunk)))
