"""The runs and tasks of a fleet in device memory, as the kernels read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from headcount.shapes import Float, Int
from headcount.training.engines.triton.shape import Shape
from headcount.training.spec import RunSpec
from headcount.training.task import Task

_SETS = ("validation", "test")


@dataclass
class Problems:
    """The distinct tasks of a fleet, packed: items of all tasks one after the other.

    Runs of one task share its memory, so seeds × shapes fit beside thousands of runs.
    """

    rows: Float[Tensor, "all_items dm"]
    messages: Float[Tensor, "all_items_or_none dm"]  # only `value` reads them
    targets: Int[Tensor, " all_edges"]  # of each item in turn
    starts: Int[Tensor, " ends"]  # where an item's targets begin, one more at the end
    looks: int  # at an item's targets: one at each, or the halvings of a bisection
    contexts: dict[str, Int[Tensor, "tasks count l"]]  # by name: validation, test
    counts: dict[str, Int[Tensor, " pairs"]]  # of all tasks' pairs; empty unless checks use pairs

    @classmethod
    def of(cls, tasks: list[Task], shape: Shape, device: str) -> Problems:
        def packed(parts: list[Tensor]) -> Tensor:
            wide = [pad(part, (0, shape.dm - part.shape[1])) for part in parts]
            return torch.cat(wide or [torch.empty(0, shape.dm)]).to(device)

        def contexts(name: str) -> Tensor:  # a padded position holds item −1
            drawn = torch.stack([getattr(task, name).int() for task in tasks])
            return pad(drawn, (0, shape.l - drawn.shape[-1]), value=-1).to(device)

        def counts(name: str) -> Tensor:
            return torch.cat(
                [_signed_counts(task, getattr(task, name).to(device)) for task in tasks]
            )

        degrees = torch.cat([torch.tensor(task.graph.out_degrees) for task in tasks])
        return cls(
            packed([task.rows for task in tasks]),
            packed([task.messages for task in tasks if shape.variant == "value"]),
            torch.cat([torch.tensor(task.graph.targets) for task in tasks]).int().to(device),
            torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]).to(device),
            int(degrees.max()) if shape.targets else int(degrees.max()).bit_length(),
            {name: contexts(name) for name in _SETS},
            {name: counts(name) for name in _SETS} if shape.pairs else {},
        )


def _signed_counts(task: Task, contexts: Int[Tensor, "count length"]) -> Int[Tensor, " pairs"]:
    """How often each ordered pair is in the contexts, negative where it is not an edge."""
    items = task.graph.items
    codes = (contexts[:, :, None] * items + contexts[:, None, :]).flatten()
    counts = torch.bincount(codes, minlength=items**2)
    sign = torch.full((items**2,), -1, dtype=torch.int32)
    sign[torch.from_numpy(task.graph.sources * items + task.graph.targets)] = 1
    return counts.int() * sign.to(contexts.device)


@dataclass
class Runs:
    """What the kernels know of some runs of a fleet, one entry per run."""

    weights: Float[Tensor, "runs entries"]  # W_Q [dm, d], then W_K [dm, kd]
    first: Float[Tensor, "runs entries"]
    second: Float[Tensor, "runs entries"]
    threshold: Float[Tensor, "runs three"]
    diverged: Int[Tensor, " runs"]
    task: Int[Tensor, " runs"]
    first_row: Int[Tensor, " runs"]  # of its task, among the items of all tasks
    first_count: Int[Tensor, " runs"]  # of its task, among the pairs of all tasks
    items: Int[Tensor, " runs"]
    keys: Int[Tensor, " runs"]  # of the streams of training contexts
    head_scales: Float[Tensor, " runs"]  # 1/√d_k of softmax, 1/t of logsumexp
    # Where each run's items begin in the projected tables, which hold the runs one after another.
    first_place: Int[Tensor, " runs"] = field(init=False)

    def __post_init__(self) -> None:
        counts = self.items.cpu()
        self.places, self.most_items = int(counts.sum()), int(counts.max())
        self.first_place = (counts.cumsum(0) - counts).to(self.items.device)

    def __len__(self) -> int:
        return len(self.items)

    def chosen(self, rows: Sequence[int]) -> Runs:
        """These runs alone, copied."""
        which = torch.tensor(list(rows), dtype=torch.int64, device=self.items.device)
        given = [part.name for part in fields(self) if part.init]
        return Runs(**{name: getattr(self, name)[which] for name in given})


def run_bytes(spec: RunSpec) -> int:
    """What a run takes at most, with a task of its own and its part in a check."""
    shape = Shape.of(spec)
    state = 3 * shape.dm * (shape.d + shape.kd)
    rows = spec.items * shape.dm * (2 if shape.variant == "value" else 1)
    projected = spec.items * (shape.d + shape.kd)
    contexts = (spec.check_every + spec.validation + spec.test) * shape.l
    counts = 2 * spec.items**2 if shape.pairs else 0
    return 4 * (state + rows + projected + contexts + counts + shape.scratch)


def padded(
    parts: list[Tensor], specs: Sequence[RunSpec], shape: Shape
) -> Float[Tensor, "runs entries"]:
    """[matrices, d_model, key_dim] of each run as the kernels' W_Q [dm, d] and W_K [dm, kd]."""
    keys = shape.h // shape.spread
    queries = torch.zeros(len(parts), shape.dm, keys, shape.spread, shape.dk)
    shared = torch.zeros(len(parts), shape.dm, keys, 1, shape.dk)
    for n, (part, spec) in enumerate(zip(parts, specs, strict=True)):
        sides = part.transpose(0, 1).split([spec.heads, spec.key_heads], 1)
        for wide, side, share in zip((queries, shared), sides, (shape.share, 1), strict=True):
            if _one_head(spec):
                side = side.flatten(1)[:, None]
            groups = side.unflatten(1, (-1, share))
            d_model, used, share, key_dim = groups.shape
            wide[n, :d_model, :used, :share, :key_dim] = groups
    return torch.cat([queries.flatten(1), shared.flatten(1)], 1)


def plain(
    part: Float[Tensor, " entries"], spec: RunSpec, shape: Shape
) -> Float[Tensor, "matrices d_model key_dim"]:
    """The inverse of `padded` for one run."""
    found = []
    sides = part.split([shape.dm * shape.d, shape.dm * shape.kd])
    for side, spread, share in zip(sides, (shape.spread, 1), (shape.share, 1), strict=True):
        groups = side.view(shape.dm, -1, spread, shape.dk)[: spec.d_model, :, :share]
        if _one_head(spec):
            heads = groups[:, 0, 0, : spec.budget].reshape(spec.d_model, -1, spec.key_dim)
        else:
            heads = groups[:, : spec.key_heads, :, : spec.key_dim].flatten(1, 2)
        found.append(heads.transpose(0, 1))
    return torch.cat(found).contiguous()


def _one_head(spec: RunSpec) -> bool:
    """Whether the heads of a run lie side by side in one."""
    return spec.variant == "sum" and not spec.kv_heads
