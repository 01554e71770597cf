"""Runs and tasks in the memory layout that the native kernels read and write."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad

from headcount.shapes import Float, Int
from headcount.training.engines.base import State
from headcount.training.engines.native.library import Run, library
from headcount.training.spec import RunSpec
from headcount.training.task import Task, task_of, training_key

_VARIANTS = {"max": 0, "softmax": 1, "value": 2, "logsumexp": 3, "sum": 4}
_ROW, _DEPTH = 16, 8  # columns of X and rows of W are padded with zeros to multiples of these


class NativeRun:
    """One run: its tensors, which the kernels write, and the record that points at them."""

    def __init__(self, spec: RunSpec, state: State, level: int) -> None:
        self.spec, self._level, self._task = spec, level, _arrays(task_of(spec))
        lanes = library().headcount_width(level)
        self._state = _apart(
            [_panels(part, lanes) for part in (state.weights, state.first, state.second)]
        )
        self._threshold = state.threshold.clone()
        task = (self._task.rows, self._task.messages, self._task.targets, self._task.starts)
        self.record = Run(*(part.data_ptr() for part in (*task, *self._state, self._threshold)))
        if spec.graph == "regular":
            self.record.degree, self.record.starts = spec.degree, 0
        self.record.key, self.record.chosen = training_key(spec) % 2**64, int(spec.rate * 2**32)
        self.record.taken, self.record.variant = state.taken, _VARIANTS[spec.variant]
        panels, self.record.depth, _ = self._state[0].shape
        self.record.columns, self.record.width = panels * lanes, self._task.rows.shape[1]
        self.record.heads, self.record.key_dim = spec.heads, spec.key_dim
        self.record.share = spec.heads // spec.key_heads
        if spec.variant == "sum" and not spec.kv_heads:  # max with one head of width D_K
            self.record.variant = _VARIANTS["max"]
            self.record.heads, self.record.key_dim = 1, spec.budget
        for name in ("items", "length", "sharpness", "temperature"):
            setattr(self.record, name, getattr(spec, name))
        self._evaluates: Literal["validation", "test"] | None = None
        self.scratch_bytes = 0  # that a thread needs for this run

    def will_evaluate(self, which: Literal["validation", "test"]) -> None:
        """Point the record at the contexts of the next evaluation."""
        if which == self._evaluates:  # as from one check to the next: threads wait for this
            return
        contexts = self._task.validation if which == "validation" else self._task.test
        self.record.contexts, self.record.context_count = contexts.data_ptr(), len(contexts)
        # But under softmax, a decision does not depend on the context: where all pairs of items are
        # fewer than the pairs in the contexts, one pass over all pairs is cheaper.
        counted = (
            self.spec.variant in ("max", "sum", "logsumexp")
            and self.spec.items**2 <= contexts.numel() * self.spec.length
        )
        self.record.stride = self.spec.items + -self.spec.items % _ROW if counted else 0
        self.record.counts = 0
        if counted and which == "validation":  # the test is evaluated once: the kernels count then
            self.record.counts = self._task.validation_counts(self.record).data_ptr()
        self.scratch_bytes = self._bytes()
        self._evaluates = which

    def contexts(self, steps: int) -> Int[Tensor, "steps length"]:
        """The training contexts of the next steps, as the kernels draw them."""
        drawn = torch.empty(steps, self.spec.length, dtype=torch.int32)
        scratch = torch.empty(self._bytes(), dtype=torch.int8)
        library().headcount_contexts(
            self._level, ctypes.byref(self.record), steps, scratch.data_ptr(), drawn.data_ptr()
        )
        return drawn

    def _bytes(self) -> int:
        return library().headcount_bytes(self._level, ctypes.byref(self.record))

    def state(self, taken: int) -> State:
        weights, first, second = (_unpanelled(part, self.spec) for part in self._state)
        return State(weights, first, second, self._threshold.clone(), taken)


@dataclass(eq=False)
class _TaskArrays:
    """A task as the kernels read it; runs that share the task share it."""

    rows: Float[Tensor, "items padded"]
    messages: Float[Tensor, "items padded"]
    targets: Int[Tensor, " edges"]
    starts: Int[Tensor, " ends"]
    validation: Int[Tensor, "validation length"]
    test: Int[Tensor, "test length"]
    counts: Int[Tensor, "rows rows"] | None = None

    def validation_counts(self, record: Run) -> Int[Tensor, "rows rows"]:
        """How often each pair is in the validation contexts; counted once, read at every check."""
        if self.counts is None:
            counts = torch.zeros(record.stride, record.stride, dtype=torch.int32)
            library().headcount_count(ctypes.byref(record), counts.data_ptr())
            self.counts = counts  # whole: another thread may read it at once
        return self.counts


_ARRAYS: WeakKeyDictionary[Task, _TaskArrays] = WeakKeyDictionary()


def _arrays(task: Task) -> _TaskArrays:
    if task not in _ARRAYS:
        rows, messages = (
            pad(part, (0, -part.shape[1] % _ROW)).contiguous()
            for part in (task.rows, task.messages)
        )
        edges = (torch.tensor(task.graph.targets).int(), torch.tensor(task.graph.starts))
        contexts = (task.validation.int(), task.test.int())
        _ARRAYS[task] = _TaskArrays(rows, messages, *edges, *contexts)
    return _ARRAYS[task]


def _panels(
    part: Float[Tensor, "matrices d_model key_dim"], lanes: int
) -> Float[Tensor, "panels depth {lanes}"]:
    """[W_Q W_K] in panels of `lanes` columns. Padding is zero and stays zero: its gradient is."""
    flat = part.transpose(0, 1).flatten(1)
    flat = pad(flat, (0, -flat.shape[1] % lanes, 0, -flat.shape[0] % _DEPTH))
    return flat.unflatten(1, (-1, lanes)).transpose(0, 1).contiguous()


def _apart(parts: list[Tensor]) -> list[Tensor]:
    """The parts in one allocation, a third of a page off each other.

    AdamW reads and writes all three at the same index. Where the low 12 bits of two addresses
    agree, the CPU takes a load for one that must wait for the store before it.
    """
    page, size = 1024, parts[0].numel()
    memory = torch.zeros(len(parts), size + -size % page + page // 3 // 16 * 16)
    for place, part in zip(memory, parts, strict=True):
        place[:size] = part.flatten()
    return [place[:size].view_as(part) for place, part in zip(memory, parts, strict=True)]


def _unpanelled(
    panels: Float[Tensor, "panels depth lanes"], spec: RunSpec
) -> Float[Tensor, "matrices d_model key_dim"]:
    flat = panels.transpose(0, 1).flatten(1)[: spec.d_model, : spec.budget + spec.key_budget]
    return flat.unflatten(1, (-1, spec.key_dim)).transpose(0, 1).contiguous()
