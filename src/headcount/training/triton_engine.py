"""The CUDA engine: fleets of runs on one GPU, one run per Triton program, no host round trip between checks."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.shapes import Float, Int
from headcount.training.engine import Check, State, adam_scales, lockstep
from headcount.training.objective import metrics
from headcount.training.spec import RunSpec
from headcount.training.task import Task, task_of, training_key
from headcount.training.triton_shape import Shape

try:
    from headcount.training import triton_checks, triton_kernels
except ModuleNotFoundError as missing:
    raise InputError("the triton engine needs the package triton; install it with: pip install triton") from missing

_PER = 25  # contexts a program of a check looks at
_DRAWN = 32  # contexts a program of the sampler draws
_TILE = 64  # items a side of a tile of all pairs
_MOST_RUNS = 8192


class TritonEngine:
    """CUDA through Triton. With TRITON_INTERPRET=1 the kernels run on the CPU, slowly, for tests."""

    name = "triton"
    concurrency = 8

    def __init__(self) -> None:
        if os.environ.get("TRITON_INTERPRET") == "1":
            self.device = "cpu"
        elif torch.cuda.is_available():
            self.device = "cuda"
        else:
            raise InputError("the triton engine needs a CUDA device and torch sees none; use --engine native or torch")

    def group(self, spec: RunSpec) -> Hashable:
        return Shape.of(spec), spec.rate, spec.learning_rate, spec.sharpness, spec.validation, spec.test

    def capacity(self, spec: RunSpec) -> int:
        shape = Shape.of(spec)
        floats = 6 * shape.dm * shape.d + 2 * spec.items * (shape.d + shape.dm) + spec.check_every * shape.l
        memory = torch.cuda.mem_get_info()[0] if self.device == "cuda" else 2**32
        return max(1, min(_MOST_RUNS, memory // (2 * self.concurrency) // (4 * floats)))

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> TritonFleet:
        return TritonFleet(specs, states or [State.initial(spec) for spec in specs], self.device)


@dataclass
class _Problems:
    """The distinct tasks of a fleet, packed: items of all tasks one after the other."""

    rows: Float[Tensor, "all_items dm"]
    messages: Float[Tensor, "all_items dm"]
    targets: Int[Tensor, "all_items degree"]
    contexts: dict[str, Int[Tensor, "tasks count l"]]  # by name: validation, test
    counts: dict[str, Int[Tensor, " pairs"]]  # of all pairs of all tasks, where checks go over pairs

    @classmethod
    def of(cls, tasks: list[Task], shape: Shape, device: str) -> _Problems:
        sets = ("validation", "test")

        def padded(parts: list[Tensor], width: int, filler: float) -> Tensor:
            return torch.nn.functional.pad(torch.stack(parts), (0, width - parts[0].shape[-1]), value=filler).to(device)

        def packed(parts: list[Tensor]) -> Tensor:
            joined = torch.cat(parts)
            return torch.nn.functional.pad(joined, (0, shape.dm - joined.shape[1])).to(device)

        return cls(
            packed([task.rows for task in tasks]),
            packed([task.messages for task in tasks]),
            torch.cat([task.targets for task in tasks]).int().to(device),
            {name: padded([getattr(task, name).int() for task in tasks], shape.l, -1) for name in sets},
            {name: torch.cat([_signed_counts(task, getattr(task, name).to(device)) for task in tasks]) for name in sets}
            if shape.pairs
            else {},
        )


def _signed_counts(task: Task, contexts: Int[Tensor, "count length"]) -> Int[Tensor, " pairs"]:
    """How often each ordered pair stands in the contexts, negative where it is no edge."""
    items = task.graph.items
    codes = (contexts[:, :, None] * items + contexts[:, None, :]).flatten()
    counts = torch.bincount(codes, minlength=items**2)
    edges = torch.arange(items)[:, None] * items + task.targets
    sign = torch.full((items**2,), -1, dtype=torch.int32)
    sign[edges.flatten()] = 1
    return counts.int() * sign.to(contexts.device)


class TritonFleet:
    """Runs whose kernels are compiled for the same sizes; their items, seeds and (padded) widths may differ."""

    def __init__(self, specs: Sequence[RunSpec], states: Sequence[State], device: str) -> None:
        self.specs, self.device, self.taken = list(specs), device, lockstep(states)
        self.shape = Shape.of(specs[0])
        self._stream = torch.cuda.Stream() if device == "cuda" else None
        tasks = {id(task): task for task in map(task_of, specs)}
        number = {key: n for n, key in enumerate(tasks)}
        starts = np.cumsum([0, *(task.graph.items for task in tasks.values())])
        pairs = np.cumsum([0, *(task.graph.items**2 for task in tasks.values())])
        with self._on_stream():
            self._problems = _Problems.of(list(tasks.values()), self.shape, device)
            of_task = np.array([number[id(task_of(spec))] for spec in specs])

            def on_device(values: list[int] | list[float] | np.ndarray, dtype: torch.dtype) -> Tensor:
                return torch.tensor(np.asarray(values), dtype=dtype, device=device)

            self._task = on_device(of_task, torch.int64)
            self._first_row = on_device(starts[of_task], torch.int64)
            self._first_count = on_device(pairs[of_task], torch.int64)
            self._item_counts = np.array([spec.items for spec in specs])
            self._items = on_device(self._item_counts, torch.int64)
            self._keys = on_device([training_key(spec) for spec in specs], torch.int64)
            self._head_scales = on_device([spec.key_dim**-0.5 for spec in specs], torch.float32)
            self._diverged = torch.zeros(len(specs), dtype=torch.int64, device=device)
            self.weights = self._padded([state.weights for state in states])
            self.first = self._padded([state.first for state in states])
            self.second = self._padded([state.second for state in states])
            self.threshold = torch.stack([state.threshold for state in states]).to(device)

    def launch(self, steps: int) -> None:
        with self._on_stream():
            shape, runs, problems = self.shape, len(self.specs), self._problems
            contexts = self._drawn(steps)
            scales = torch.from_numpy(adam_scales(self.specs[0].learning_rate, self.taken, steps)).to(self.device)
            kernel = triton_kernels.train_resident if shape.resident else triton_kernels.train_streaming
            _launch(
                kernel, (runs,), shape.warps,
                self.weights, self.first, self.second, self.threshold, self._diverged, contexts,
                problems.rows, problems.targets, problems.messages, self._first_row, scales, self._head_scales,
                steps, self.taken, self.specs[0].sharpness, **shape.constants(),
            )  # fmt: skip
            self.taken += steps
            self._tallies = self._tally("validation", range(runs))

    def check(self) -> Check:
        with self._on_stream():
            return Check(metrics(self.specs[0].metric, self._tallies), [n or None for n in self._diverged.tolist()])

    def test(self, rows: Sequence[int]) -> list[float]:
        with self._on_stream():
            return metrics(self.specs[0].metric, self._tally("test", rows))

    def states(self, rows: Sequence[int]) -> list[State]:
        with self._on_stream():
            which = self._which(rows)
            parts = [part[which].cpu() for part in (self.weights, self.first, self.second)]
            thresholds = self.threshold[which].cpu()
            return [
                State(
                    *(self._plain(part[n], self.specs[row]) for part in parts),
                    threshold=thresholds[n],
                    taken=self.taken,
                )
                for n, row in enumerate(rows)
            ]

    def keep(self, rows: Sequence[int]) -> None:
        self.specs = [self.specs[row] for row in rows]
        self._item_counts = self._item_counts[np.asarray(rows)]
        with self._on_stream():
            which = self._which(rows)
            for name in (
                "_task",
                "_first_row",
                "_first_count",
                "_items",
                "_keys",
                "_head_scales",
                "_diverged",
                "weights",
                "first",
                "second",
                "threshold",
            ):
                setattr(self, name, getattr(self, name)[which])

    def _drawn(self, steps: int) -> Int[Tensor, "runs steps l"]:
        """The next contexts of every run's own stream."""
        shape, runs = self.shape, len(self.specs)
        contexts = torch.empty(runs, steps, shape.l, dtype=torch.int32, device=self.device)
        _launch(
            triton_checks.draw_contexts, (runs, -(-steps // _DRAWN)), 1,
            contexts, self._keys, self._items, self._first_row, self._problems.targets, steps, self.taken,
            int(self.specs[0].rate * 2**32), DEGREE=shape.degree, LENGTH=shape.length, L=shape.l, BLOCK=_DRAWN,
        )  # fmt: skip
        return contexts

    def _tally(self, name: str, rows: Sequence[int]) -> Float[Tensor, "rows 2"]:
        """Summed tallies of runs on the validation or test contexts of their tasks."""
        shape, which, items = self.shape, self._which(rows), self._item_counts[np.asarray(rows)]
        places = int(items.sum())
        first_place = torch.from_numpy(np.cumsum(items) - items).to(self.device)
        first_row, counts = self._first_row[which], self._items[which]
        tables = torch.empty(2, places, shape.d, device=self.device)
        _launch(
            triton_checks.project_items, (len(rows), -(-int(items.max()) // 16), 2), 4,
            tables, self.weights[which], self._problems.rows, counts, first_row, first_place, places,
            DM=shape.dm, D=shape.d, L=16, BLOCK=shape.block,
        )  # fmt: skip
        if shape.pairs:
            parts = (-(-int(items.max()) // _TILE)) ** 2
            tallies = torch.empty(len(rows), parts, 2, device=self.device)
            _launch(
                triton_checks.tally_pairs, (len(rows), parts), 4,
                tallies, tables, self.threshold[which], self._problems.counts[name], self._first_count[which], counts,
                first_place, places, HEADS=shape.heads, H=shape.h, DK=shape.dk, WIDE=max(16, shape.dk), TILE=_TILE,
            )  # fmt: skip
        else:
            contexts = self._problems.contexts[name]
            parts = -(-contexts.shape[1] // _PER)
            tallies = torch.empty(len(rows), parts, 2, device=self.device)
            _launch(
                triton_checks.tally_contexts, (len(rows), parts), shape.check_warps,
                tallies, tables, self.threshold[which], contexts, self._task[which], self._problems.targets,
                self._problems.messages, first_row, first_place, self._head_scales[which], places, contexts.shape[1],
                PER=_PER, **shape.constants(),
            )  # fmt: skip
        return tallies.double().sum(1)

    def _padded(self, parts: list[Tensor]) -> Float[Tensor, "runs 2 dm d"]:
        """[2, heads, d_model, key_dim] of each run as the kernels' [2, dm, h·dk]."""
        shape = self.shape
        padded = torch.zeros(len(parts), 2, shape.dm, shape.h, shape.dk)
        for n, part in enumerate(parts):
            if self.specs[n].variant == "sum":  # heads side by side in one
                part = part.permute(0, 2, 1, 3).flatten(2)[:, None]
            _, heads, d_model, key_dim = part.shape
            padded[n, :, :d_model, :heads, :key_dim] = part.permute(0, 2, 1, 3)
        return padded.flatten(3).to(self.device)

    def _plain(self, part: Float[Tensor, "2 dm d"], spec: RunSpec) -> Float[Tensor, "2 heads d_model key_dim"]:
        """The inverse of `_padded` for one run."""
        split = part.view(2, self.shape.dm, self.shape.h, self.shape.dk)[:, : spec.d_model]
        if spec.variant == "sum":
            split = split[:, :, 0, : spec.budget].reshape(2, spec.d_model, spec.heads, spec.key_dim)
        return split[:, :, : spec.heads, : spec.key_dim].permute(0, 2, 1, 3).contiguous()

    def _which(self, rows: Sequence[int]) -> Int[Tensor, " rows"]:
        return torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(self.device)

    def _on_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()


def _launch(kernel: Any, grid: tuple[int, ...], warps: int, *arguments: object, **constants: object) -> None:
    kernel[grid](*arguments, **constants, num_warps=warps, num_stages=1)
