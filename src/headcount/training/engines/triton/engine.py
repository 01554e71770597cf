"""The CUDA engine: fleets of runs on one GPU, one run per Triton program, no host round trip between checks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.shapes import Float, Int
from headcount.training.engines.base import Check, State, adam_scales, lockstep
from headcount.training.engines.triton.shape import Shape
from headcount.training.engines.triton.warmup import warm_up
from headcount.training.objective import metrics
from headcount.training.spec import RunSpec
from headcount.training.task import Task, task_of, training_key

try:
    from headcount.training.engines.triton import checks as triton_checks
    from headcount.training.engines.triton import kernels as triton_kernels
except ModuleNotFoundError as missing:
    raise InputError(
        "the triton engine needs the package triton; install it with: pip install triton"
    ) from missing

_PER = 25  # contexts a program of a check looks at
_DRAWN = 32  # contexts a program of the sampler draws
_TILE = 64  # items a side of a tile of all pairs
_MOST_RUNS = 8192


class TritonEngine:
    """CUDA through Triton. With TRITON_INTERPRET=1 the kernels run on the CPU, slowly, for tests."""

    name = "triton"
    concurrency = 64

    def __init__(self) -> None:
        if os.environ.get("TRITON_INTERPRET") == "1":
            self.device = "cpu"
        elif not torch.cuda.is_available():
            raise InputError(
                "the triton engine needs a CUDA device and torch sees none; use --engine native or torch"
            )
        elif not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
            raise InputError(
                "the triton engine needs a C compiler to launch its kernels; install gcc or clang"
            )
        else:
            self.device = "cuda"

    def group(self, spec: RunSpec) -> Hashable:
        return (
            Shape.of(spec),
            spec.rate,
            spec.learning_rate,
            spec.sharpness,
            spec.validation,
            spec.test,
        )

    def capacity(self, spec: RunSpec) -> int:
        shape = Shape.of(spec)
        floats = (
            6 * shape.dm * shape.d
            + 2 * spec.items * (shape.d + shape.dm)
            + spec.check_every * shape.l
        )
        memory = torch.cuda.mem_get_info()[0] if self.device == "cuda" else 2**32
        return max(1, min(_MOST_RUNS, memory // (2 * self.concurrency) // (4 * floats)))

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> TritonFleet:
        return TritonFleet(specs, states or [State.initial(spec) for spec in specs], self.device)

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        if self.device == "cuda":
            warm_up(specs, self)


@dataclass
class _Problems:
    """The distinct tasks of a fleet, packed: items of all tasks one after the other."""

    rows: Float[Tensor, "all_items dm"]
    messages: Float[Tensor, "all_items dm"]
    targets: Int[Tensor, "all_items degree"]
    contexts: dict[str, Int[Tensor, "tasks count l"]]  # by name: validation, test
    counts: dict[
        str, Int[Tensor, " pairs"]
    ]  # of all pairs of all tasks, where checks go over pairs

    @classmethod
    def of(cls, tasks: list[Task], shape: Shape, device: str) -> _Problems:
        sets = ("validation", "test")

        def padded(parts: list[Tensor], width: int, filler: float) -> Tensor:
            return torch.nn.functional.pad(
                torch.stack(parts), (0, width - parts[0].shape[-1]), value=filler
            ).to(device)

        def packed(parts: list[Tensor]) -> Tensor:
            return torch.cat(
                [torch.nn.functional.pad(part, (0, shape.dm - part.shape[1])) for part in parts]
            ).to(device)

        return cls(
            packed([task.rows for task in tasks]),
            packed([task.messages for task in tasks]),
            torch.cat([task.targets for task in tasks]).int().to(device),
            {
                name: padded([getattr(task, name).int() for task in tasks], shape.l, -1)
                for name in sets
            },
            {
                name: torch.cat(
                    [_signed_counts(task, getattr(task, name).to(device)) for task in tasks]
                )
                for name in sets
            }
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


@dataclass
class _Runs:
    """What the kernels know of some runs of a fleet, one entry a run."""

    weights: Float[Tensor, "runs 2 dm d"]
    first: Float[Tensor, "runs 2 dm d"]
    second: Float[Tensor, "runs 2 dm d"]
    threshold: Float[Tensor, "runs three"]
    diverged: Int[Tensor, " runs"]
    task: Int[Tensor, " runs"]
    first_row: Int[Tensor, " runs"]  # of its task, among the items of all tasks
    first_count: Int[Tensor, " runs"]  # of its task, among the pairs of all tasks
    items: Int[Tensor, " runs"]
    keys: Int[Tensor, " runs"]  # of the streams of training contexts
    head_scales: Float[Tensor, " runs"]  # 1/√d_k
    first_place: Int[Tensor, " runs"] = field(
        init=False
    )  # in the projected tables, which hold these runs one by one

    def __post_init__(self) -> None:
        counts = self.items.cpu()
        self.places, self.most_items = int(counts.sum()), int(counts.max())
        self.first_place = (counts.cumsum(0) - counts).to(self.items.device)

    def __len__(self) -> int:
        return len(self.items)

    def chosen(self, rows: Sequence[int]) -> _Runs:
        which = torch.tensor(list(rows), dtype=torch.int64, device=self.items.device)
        return _Runs(
            **{part.name: getattr(self, part.name)[which] for part in fields(self) if part.init}
        )


class TritonFleet:
    """Runs whose kernels are compiled for the same sizes; their items, seeds and (padded) widths may differ."""

    def __init__(self, specs: Sequence[RunSpec], states: Sequence[State], device: str) -> None:
        self.specs, self.device, self.taken = list(specs), device, lockstep(states)
        self.shape = Shape.of(specs[0])
        self._stream = torch.cuda.Stream() if device == "cuda" else None
        of_run = [task_of(spec) for spec in specs]
        tasks = {id(task): task for task in of_run}
        number = {key: n for n, key in enumerate(tasks)}
        task = np.array([number[id(task)] for task in of_run])
        items = np.array([task.graph.items for task in tasks.values()])

        def on_device(values: object, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.tensor(np.asarray(values), dtype=dtype, device=device)

        with self._on_stream():
            self._problems = _Problems.of(list(tasks.values()), self.shape, device)
            self._runs = _Runs(
                weights=self._padded([state.weights for state in states]),
                first=self._padded([state.first for state in states]),
                second=self._padded([state.second for state in states]),
                threshold=torch.stack([state.threshold for state in states]).to(device),
                diverged=torch.zeros(len(specs), dtype=torch.int64, device=device),
                task=on_device(task),
                first_row=on_device((np.cumsum(items) - items)[task]),
                first_count=on_device((np.cumsum(items**2) - items**2)[task]),
                items=on_device(items[task]),
                keys=on_device([training_key(spec) for spec in specs]),
                head_scales=on_device([spec.key_dim**-0.5 for spec in specs], torch.float32),
            )

    def launch(self, steps: int) -> None:
        """Nothing here waits for the device once the first kernel is on its way, so fleets overlap."""
        with self._on_stream():
            shape, runs, problems = self.shape, self._runs, self._problems
            scales = torch.from_numpy(
                adam_scales(self.specs[0].learning_rate, self.taken, steps)
            ).to(self.device)
            state = (runs.weights, runs.first, runs.second, runs.threshold, runs.diverged)
            problem = (problems.rows, problems.targets, problems.messages, runs.first_row)
            protocol = (steps, self.taken, self.specs[0].sharpness)
            if shape.resident:
                kernel, own, sizes = triton_kernels.train_resident, (), {}
            else:
                scratch = torch.empty(
                    len(runs), 2 * shape.l * shape.d + shape.h * shape.l**2, device=self.device
                )
                kernel, own, sizes = (
                    triton_kernels.train_streaming,
                    (scratch,),
                    {"GROUP": shape.group, "PART": shape.part},
                )
            _launch(
                kernel, (len(runs),), shape.warps, *state, self._drawn(steps), *problem, scales, runs.head_scales,
                *own, *protocol, **shape.constants(), **sizes, num_stages=shape.stages,
            )  # fmt: skip
            self.taken += steps
            self._tallies = self._tally("validation", runs)

    def check(self) -> Check:
        with self._on_stream():
            diverged = [n or None for n in self._runs.diverged.tolist()]
            return Check(metrics(self.specs[0].metric, self._tallies), diverged)

    def test(self, rows: Sequence[int]) -> list[float]:
        with self._on_stream():
            return metrics(self.specs[0].metric, self._tally("test", self._runs.chosen(rows)))

    def states(self, rows: Sequence[int]) -> list[State]:
        with self._on_stream():
            runs = self._runs.chosen(rows)
            parts = [part.cpu() for part in (runs.weights, runs.first, runs.second)]
            thresholds = runs.threshold.cpu()
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
        with self._on_stream():
            self._runs = self._runs.chosen(rows)

    def contexts(self, steps: int) -> Int[Tensor, "runs steps l"]:
        """The training contexts of the next steps, from every run's own stream."""
        with self._on_stream():
            return self._drawn(steps)

    def _drawn(self, steps: int) -> Int[Tensor, "runs steps l"]:
        shape, runs = self.shape, self._runs
        contexts = torch.empty(len(runs), steps, shape.l, dtype=torch.int32, device=self.device)
        _launch(
            triton_checks.draw_contexts, (len(runs), -(-steps // _DRAWN)), 1,
            contexts, runs.keys, runs.items, runs.first_row, self._problems.targets, steps, self.taken,
            int(self.specs[0].rate * 2**32), DEGREE=shape.degree, LENGTH=shape.length, L=shape.l, BLOCK=_DRAWN,
        )  # fmt: skip
        return contexts

    def _tally(self, name: str, runs: _Runs) -> Float[Tensor, "runs 2"]:
        """Summed tallies of runs on the validation or test contexts of their tasks."""
        shape = self.shape
        tables = torch.empty(2, runs.places, shape.d, device=self.device)
        _launch(
            triton_checks.project_items, (len(runs), -(-runs.most_items // 16), 2), 4,
            tables, runs.weights, self._problems.rows, runs.items, runs.first_row, runs.first_place, runs.places,
            DM=shape.dm, D=shape.d, L=16, WIDE=shape.group * shape.part, BLOCK=shape.block,
        )  # fmt: skip
        if shape.pairs:
            parts = (-(-runs.most_items // _TILE)) ** 2
            tallies = torch.empty(len(runs), parts, 2, dtype=torch.float64, device=self.device)
            _launch(
                triton_checks.tally_pairs, (len(runs), parts), 4,
                tallies, tables, runs.threshold, self._problems.counts[name], runs.first_count, runs.items,
                runs.first_place, runs.places, HEADS=shape.heads, H=shape.h, DK=shape.dk,
                WIDE=min(32, max(16, shape.dk)), TILE=_TILE,
            )  # fmt: skip
        else:
            contexts = self._problems.contexts[name]
            parts = -(-contexts.shape[1] // _PER)
            tallies = torch.empty(len(runs), parts, 2, dtype=torch.float64, device=self.device)
            _launch(
                triton_checks.tally_contexts, (len(runs), parts), shape.check_warps,
                tallies, tables, runs.threshold, contexts, runs.task, self._problems.targets, self._problems.messages,
                runs.first_row, runs.first_place, runs.head_scales, runs.places, contexts.shape[1],
                PER=_PER, **shape.constants(), GROUP=shape.group, PART=shape.part,
            )  # fmt: skip
        return tallies.sum(1)

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

    def _plain(
        self, part: Float[Tensor, "2 dm d"], spec: RunSpec
    ) -> Float[Tensor, "2 heads d_model key_dim"]:
        """The inverse of `_padded` for one run."""
        split = part.view(2, self.shape.dm, self.shape.h, self.shape.dk)[:, : spec.d_model]
        if spec.variant == "sum":
            split = split[:, :, 0, : spec.budget].reshape(2, spec.d_model, spec.heads, spec.key_dim)
        return split[:, :, : spec.heads, : spec.key_dim].permute(0, 2, 1, 3).contiguous()

    def _on_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()


def _launch(
    kernel: Any,
    grid: tuple[int, ...],
    warps: int,
    *arguments: object,
    num_stages: int = 1,
    **constants: object,
) -> None:
    kernel[grid](*arguments, **constants, num_warps=warps, num_stages=num_stages)
