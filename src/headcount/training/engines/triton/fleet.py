"""A fleet on the GPU: its kernels in the order of a block of steps and the check after it.

There is no round trip to the host between two checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.shapes import Float, Int
from headcount.training.adamw import WARM
from headcount.training.engines.base import Check, State, adam_scales, lockstep
from headcount.training.engines.triton.kernels import checks, together
from headcount.training.engines.triton.kernels import steps as training
from headcount.training.engines.triton.memory import Problems, Runs, padded, plain
from headcount.training.engines.triton.shape import Shape
from headcount.training.objective import metrics
from headcount.training.spec import RunSpec
from headcount.training.task import task_of, training_key

_PER = 25  # contexts per program of a check
_DRAWN = 32  # contexts per program of the sampler
_TILE = 128  # items on each side of a tile of all pairs


class TritonFleet:
    """Runs whose kernels have the same padded sizes; items, seeds and true widths may differ."""

    def __init__(
        self, specs: Sequence[RunSpec], states: Sequence[State], device: str, slots: int
    ) -> None:
        self.specs, self.device, self.taken = list(specs), device, lockstep(states)
        self._slots = slots  # programs of shared runs that can be under way at once
        self.shape = Shape.of(specs[0])
        # A stream of its own: small fleets do not fill the GPU and run side by side.
        self._stream = torch.cuda.Stream() if device == "cuda" else None

        def packed(parts: list[Tensor]) -> Tensor:
            return padded(parts, self.specs, self.shape).to(device)

        with self._on_stream():
            self._runs = Runs(
                weights=packed([state.weights for state in states]),
                first=packed([state.first for state in states]),
                second=packed([state.second for state in states]),
                threshold=torch.stack([state.threshold for state in states]).to(device),
                diverged=torch.zeros(len(specs), dtype=torch.int64, device=device),
                keys=self._on_device([training_key(spec) for spec in specs]),
                head_scales=self._on_device([_scale(spec) for spec in specs], torch.float32),
                **self._packed_tasks(),
            )

    def _packed_tasks(self) -> dict[str, Int[Tensor, " runs"]]:
        """Pack the tasks of the runs into memory; returns where each run finds its own."""
        of_run = [task_of(spec) for spec in self.specs]
        tasks = {id(task): task for task in of_run}
        number = {key: n for n, key in enumerate(tasks)}
        task = np.array([number[id(task)] for task in of_run])
        items = np.array([task.graph.items for task in tasks.values()])
        self._problems = Problems.of(list(tasks.values()), self.shape, self.device)
        self._tasks_of = len(self.specs)
        return {
            "task": self._on_device(task),
            "first_row": self._on_device((np.cumsum(items) - items)[task]),
            "first_count": self._on_device((np.cumsum(items**2) - items**2)[task]),
            "items": self._on_device(items[task]),
        }

    def _on_device(self, values: object, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(np.asarray(values), dtype=dtype, device=self.device)

    def launch(self, steps: int) -> None:
        """Nothing here waits for the device once the first kernel is launched: fleets overlap."""
        with self._on_stream():
            self._train(steps)
            self.taken += steps
            self._tallies = self._tally("validation", self._runs)

    def _train(self, steps: int) -> None:
        shape, runs, problems, spec = self.shape, self._runs, self._problems, self.specs[0]
        given = (
            runs.weights, runs.first, runs.second, runs.threshold, runs.diverged,
            self._drawn(steps), problems.rows, problems.targets, problems.starts,
            problems.messages, runs.first_row, problems.looks,
            _scales(spec.learning_rate, self.device), runs.head_scales,
        )  # fmt: skip
        protocol, constants = (steps, self.taken, spec.sharpness), shape.constants()
        if shape.together and (self._slots == 1 or shape.members <= self._slots):
            self._train_together(given, protocol)
        elif shape.resident:
            self._launch(
                training.train_resident, (len(runs),), shape.warps, *given, *protocol, **constants,
                REPEATED=shape.repeated,
            )  # fmt: skip
        else:
            self._launch(
                training.train_streaming, (len(runs),), shape.warps, *given,
                self._empty(len(runs), shape.scratch), *protocol, **constants, GROUP=shape.group,
                PART=shape.part, num_stages=3,
            )  # fmt: skip

    def _train_together(self, given: tuple[object, ...], protocol: tuple[object, ...]) -> None:
        """Several programs share a run; as many runs are under way as fit on the device."""
        shape, runs, slots = self.shape, len(self._runs), self._slots
        assert shape.together is not None
        constants, members, groups = shape.constants() | shape.together, shape.members, runs
        del constants["BLOCK"]  # a program has all of its part at once
        if members > slots:  # the interpreter, where one program has all of a run
            constants, members = constants | {"WIDE": 2 * shape.d, "ACROSS": 1, "DOWN": 1}, 1
        elif members > 1:
            groups = min(runs, slots // members)
            constants["launch_cooperative_grid"] = True  # they wait for one another
        words = 2 * members * (constants["WIDE"] * shape.l + 2 * shape.l**2)
        self._launch(
            together.train_together, (groups * members,), 4, *given, self._words(groups * words),
            runs, *protocol, **constants,
        )  # fmt: skip

    def _words(self, count: int) -> Int[Tensor, " words"]:
        """Where programs leave what others wait for."""
        return torch.zeros(count, dtype=torch.int64, device=self.device)

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
                *(plain(part[n], self.specs[row], self.shape) for part in parts),
                threshold=thresholds[n],
                taken=self.taken,
            )
            for n, row in enumerate(rows)
        ]

    def keep(self, rows: Sequence[int]) -> None:
        self.specs = [self.specs[row] for row in rows]
        with self._on_stream():
            self._runs = self._runs.chosen(rows)
            if len(rows) <= self._tasks_of // 2:  # most of what the tasks take is for runs now gone
                self._runs = replace(self._runs, **self._packed_tasks())

    def contexts(self, steps: int) -> Int[Tensor, "runs steps l"]:
        """The training contexts of the next steps, from every run's own stream."""
        with self._on_stream():
            return self._drawn(steps)

    def _drawn(self, steps: int) -> Int[Tensor, "runs steps l"]:
        shape, runs = self.shape, self._runs
        contexts = self._empty(len(runs), steps, shape.l, dtype=torch.int32)
        chance = int(self.specs[0].rate * 2**32)
        self._launch(
            checks.draw_contexts, (len(runs), -(-steps // _DRAWN)), 1,
            contexts, runs.keys, runs.items, runs.first_row, self._problems.targets,
            self._problems.starts, self._problems.looks, steps, self.taken, chance,
            TARGETS=shape.targets, LENGTH=shape.length, L=shape.l, BLOCK=_DRAWN,
        )  # fmt: skip
        return contexts

    def _tally(self, name: str, runs: Runs) -> Float[Tensor, "runs 2"]:
        """Summed tallies of runs on the validation or test contexts of their tasks."""
        shape = self.shape
        tables = self._empty(runs.places * (shape.d + shape.kd))
        if shape.d == shape.kd:
            self._project(tables, runs.weights, runs, shape.d, sides=2)
        else:
            self._project(tables, runs.weights, runs, shape.d)
            keys = runs.weights.view(-1)[shape.dm * shape.d :]  # W_K comes after W_Q
            self._project(tables[runs.places * shape.d :], keys, runs, shape.kd)
        tally = self._tally_pairs if shape.pairs else self._tally_contexts
        # Each program wrote its own entry: a sum in a fixed order, where atomic additions would
        # make the last bits depend on timing.
        return tally(name, runs, tables).sum(1)

    def _project(
        self, tables: Tensor, weights: Tensor, runs: Runs, columns: int, sides: int = 1
    ) -> None:
        """Write the projections of every item of every run by one matrix, or by both."""
        shape = self.shape
        self._launch(
            checks.project_items, (len(runs), -(-runs.most_items // 16), sides), 4,
            tables, weights, self._problems.rows, runs.items, runs.first_row, runs.first_place,
            runs.places, DM=shape.dm, D=columns, COLUMNS=shape.d + shape.kd, L=16,
            WIDE=min(columns, shape.group * shape.part), BLOCK=shape.block,
        )  # fmt: skip

    def _tally_pairs(
        self, name: str, runs: Runs, tables: Float[Tensor, " projected"]
    ) -> Float[Tensor, "runs parts 2"]:
        shape, parts = self.shape, (-(-runs.most_items // _TILE)) ** 2
        tallies = self._empty(len(runs), parts, 2, dtype=torch.float64)
        self._launch(
            checks.tally_pairs, (len(runs), parts), 8,
            tallies, tables, runs.threshold, self._problems.counts[name], runs.first_count,
            runs.items, runs.first_place, runs.places, shape.heads, shape.h,
            VARIANT=shape.variant, SHARE=shape.share, SPREAD=shape.spread, DK=shape.dk,
            WIDE=min(32, max(16, shape.dk)), TILE=_TILE, num_stages=3,
        )  # fmt: skip
        return tallies

    def _tally_contexts(
        self, name: str, runs: Runs, tables: Float[Tensor, " projected"]
    ) -> Float[Tensor, "runs parts 2"]:
        shape, contexts = self.shape, self._problems.contexts[name]
        parts = -(-contexts.shape[1] // _PER)
        tallies = self._empty(len(runs), parts, 2, dtype=torch.float64)
        self._launch(
            checks.tally_contexts, (len(runs), parts), shape.check_warps,
            tallies, tables, runs.threshold, contexts, runs.task, self._problems.targets,
            self._problems.starts, self._problems.looks, self._problems.messages,
            runs.first_row, runs.first_place, runs.head_scales, runs.places, contexts.shape[1],
            PER=_PER, **shape.check_constants(), GROUP=shape.group, PART=shape.part,
        )  # fmt: skip
        return tallies

    def _launch(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        warps: int,
        *arguments: object,
        num_stages: int = 1,
        **constants: object,
    ) -> None:
        # Fused multiply-adds are the default up to Triton 3.9 only.
        options = {"num_warps": warps, "num_stages": num_stages, "enable_fp_fusion": True}
        self._begin(kernel, grid, *arguments, **constants, **options)

    def _begin(self, kernel: Any, grid: tuple[int, ...], *arguments: object, **named: Any) -> None:
        kernel[grid](*arguments, **named)

    def _empty(self, *sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(*sizes, dtype=dtype, device=self.device)

    def _on_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream else nullcontext()


@cache
def _scales(learning_rate: float, device: str) -> Float[Tensor, "steps 2"]:
    """All of `adam_scales` on the device: to copy some of them before each launch takes longer."""
    return torch.from_numpy(adam_scales(learning_rate, 0, WARM + 1)).to(device)


def _scale(spec: RunSpec) -> float:
    """What the scores of a head are multiplied by before the exponential, where there is one."""
    return 1 / spec.temperature if spec.variant == "logsumexp" else spec.key_dim**-0.5
