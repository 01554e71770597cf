"""The engine for CPUs: C++ kernels, one run a thread, its state in cache for a whole block of steps."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from threading import Event, Thread
from typing import Literal, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad

from headcount.errors import InputError
from headcount.provenance import cores
from headcount.shapes import Float, Int
from headcount.training.engines.base import Check, State, adam_scales, lockstep
from headcount.training.objective import metrics
from headcount.training.spec import RunSpec
from headcount.training.task import Task, task_of, training_key

Level = Literal["baseline", "avx2", "avx512"]  # in the order of the library's table
_VARIANTS = {"max": 0, "sum": 0, "softmax": 1, "value": 2}  # sum is max with one head of width D_K
_WIDEST = 2**20  # budget
_ROW, _DEPTH = 16, 8  # columns of X and rows of W are padded with zeros to multiples of these


class NativeEngine:
    """C++ on the CPU, on every core it may use and with the widest vectors it has, unless told otherwise."""

    name = "native"
    device = "cpu"
    concurrency = 1

    def __init__(self, threads: int | None = None, level: Level | None = None) -> None:
        runnable = get_args(Level)[: _library().headcount_level() + 1]
        if level is not None and level not in runnable:
            raise InputError(
                f"this machine does not run level {level!r}; leave it out or use {', '.join(runnable)}"
            )
        if threads is not None and threads < 1:
            raise InputError(f"{threads} threads do no work; choose at least 1, or leave them out")
        self.level = runnable.index(level) if level else len(runnable) - 1
        self.level_name = runnable[self.level]
        self.threads = threads or cores()

    def group(self, spec: RunSpec) -> Hashable:
        return self.name  # each run has its own shape, rate and pointers

    def capacity(self, spec: RunSpec) -> int:
        return max(1, 2**29 // (6 * spec.d_model * spec.budget + 2 * spec.items * spec.d_model))

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> NativeFleet:
        for spec in specs:
            if spec.items >= 2**31 or spec.budget > _WIDEST:
                raise InputError(
                    f"the native engine takes up to {2**31 - 1} items and a budget of {_WIDEST}"
                )
        return NativeFleet(
            specs, states or [State.initial(spec) for spec in specs], self.level, self.threads
        )

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        pass


class NativeFleet:
    """Runs of any shape; `launch` blocks until all of them have taken their steps."""

    def __init__(
        self, specs: Sequence[RunSpec], states: Sequence[State], level: int, threads: int
    ) -> None:
        self.specs, self.taken = list(specs), lockstep(states)
        self._level, self._threads, self._scratch = level, threads, torch.empty(0, dtype=torch.int8)
        self._scales: dict[float, Tensor] = {}
        self._members = [
            _Member(spec, state, level) for spec, state in zip(specs, states, strict=True)
        ]

    def launch(self, steps: int) -> None:
        rates = {spec.learning_rate for spec in self.specs}
        self._scales = {
            rate: torch.from_numpy(adam_scales(rate, self.taken, steps)) for rate in rates
        }
        for member in self._members:
            member.run.scales = self._scales[member.spec.learning_rate].data_ptr()
            member.will_evaluate("validation")
        self._values = self._call(self._members, steps)
        self.taken += steps

    def check(self) -> Check:
        return Check(self._values, [member.run.diverged or None for member in self._members])

    def draw(self, steps: int) -> None:
        self._call(self._members, -steps)

    def test(self, rows: Sequence[int]) -> list[float]:
        members = [self._members[row] for row in rows]
        for member in members:
            member.will_evaluate("test")
        return self._call(members, 0)

    def states(self, rows: Sequence[int]) -> list[State]:
        return [self._members[row].state(self.taken) for row in rows]

    def keep(self, rows: Sequence[int]) -> None:
        self.specs = [self.specs[row] for row in rows]
        self._members = [self._members[row] for row in rows]

    def _call(self, members: list[_Member], steps: int) -> list[float]:
        """Steps and an evaluation of these runs, the costly ones first: none is left for the end."""
        order = sorted(members, key=lambda member: -member.spec.d_model * member.spec.budget)
        runs = (_Run * len(order))(*(member.run for member in order))
        threads = min(self._threads, len(order))
        most = max(_library().headcount_bytes(self._level, ctypes.byref(run)) for run in runs)
        if threads * most > self._scratch.numel():
            self._scratch = torch.empty(threads * most, dtype=torch.int8)
        _work(self._level, runs, steps, threads, self._scratch, most, (members, self._scales))
        for member, run in zip(order, runs, strict=True):
            member.run = run
        tallies = torch.tensor([tuple(member.run.tally) for member in members], dtype=torch.float64)
        f1, mse = metrics("f1", tallies), metrics("mse", tallies)
        return [
            (f1 if member.spec.metric == "f1" else mse)[row] for row, member in enumerate(members)
        ]


def _work(
    level: int,
    runs: ctypes.Array[_Run],
    steps: int,
    threads: int,
    scratch: Tensor,
    most: int,
    held: object,
) -> None:
    """Call the library from a thread of its own, which holds all that the runs point at whatever an interrupt does."""
    stop, codes, begun, ended = ctypes.c_int32(0), [], Event(), Event()

    def call(held: object = held) -> None:
        begun.set()
        try:
            arguments = (
                level,
                runs,
                len(runs),
                steps,
                threads,
                scratch.data_ptr(),
                most,
                ctypes.byref(stop),
            )
            codes.append(_library().headcount_run(*arguments))
        finally:
            ended.set()

    try:
        Thread(target=call, daemon=True).start()
        ended.wait()  # not `join`: once interrupted, it takes a living thread for dead
    except BaseException:
        stop.value = 1
        if begun.wait(0.2):  # a thread that has not begun by then will find `stop` set
            ended.wait()
        raise
    if codes != [0]:
        raise MemoryError(
            "the native engine ran out of memory; train fewer or smaller runs at a time"
        )


class _Run(ctypes.Structure):
    """`struct Run` of native/run.h, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("rows", "messages", "targets")),
        *(
            (name, ctypes.c_void_p)
            for name in ("weights", "first", "second", "threshold", "scales")
        ),
        *((name, ctypes.c_void_p) for name in ("contexts", "counts")),
        ("context_count", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("key", "chosen")),
        *((name, ctypes.c_int64) for name in ("taken", "diverged", "columns")),
        ("tally", ctypes.c_double * 2),
        *((name, ctypes.c_int32) for name in ("items", "width", "depth", "heads", "key_dim")),
        *((name, ctypes.c_int32) for name in ("degree", "length", "variant", "stride")),
        ("sharpness", ctypes.c_float),
    )


class _Member:
    """One run: its tensors, which the kernels write, and the record that points at them."""

    def __init__(self, spec: RunSpec, state: State, level: int) -> None:
        self.spec, self._task = spec, _arrays(task_of(spec))
        lanes = _library().headcount_width(level)
        self._state = _apart(
            [_panels(part, lanes) for part in (state.weights, state.first, state.second)]
        )
        self._threshold = state.threshold.clone()
        panels, depth, _ = self._state[0].shape
        pointers = (
            self._task.rows,
            self._task.messages,
            self._task.targets,
            *self._state,
            self._threshold,
        )
        self.run = _Run(*(tensor.data_ptr() for tensor in pointers))
        self.run.key, self.run.chosen = training_key(spec) % 2**64, int(spec.rate * 2**32)
        self.run.taken, self.run.variant = state.taken, _VARIANTS[spec.variant]
        self.run.depth, self.run.columns = depth, panels * lanes
        self.run.heads, self.run.key_dim = (
            (1, spec.budget) if spec.variant == "sum" else (spec.heads, spec.key_dim)
        )
        self.run.width = self._task.rows.shape[1]
        for name in ("items", "degree", "length", "sharpness"):
            setattr(self.run, name, getattr(spec, name))

    def will_evaluate(self, which: Literal["validation", "test"]) -> None:
        """Point the record at the contexts of the next evaluation."""
        contexts = self._task.validation if which == "validation" else self._task.test
        self.run.contexts, self.run.context_count = contexts.data_ptr(), len(contexts)
        # Under max and sum a decision does not depend on the context: with many contexts count pairs instead.
        counted = (
            self.spec.variant in ("max", "sum")
            and self.spec.items**2 <= contexts.numel() * self.spec.length
        )
        self.run.stride = self.spec.items + -self.spec.items % _ROW if counted else 0
        self.run.counts = (
            self._task.validation_counts(self.run).data_ptr()
            if counted and which == "validation"
            else 0
        )

    def state(self, taken: int) -> State:
        weights, first, second = (_unpanelled(part, self.spec) for part in self._state)
        return State(weights, first, second, self._threshold.clone(), taken)


@dataclass(eq=False)
class _TaskArrays:
    """A task as the kernels read it; runs that share the task share it."""

    rows: Float[Tensor, "items padded"]
    messages: Float[Tensor, "items padded"]
    targets: Int[Tensor, "items degree"]
    validation: Int[Tensor, "validation length"]
    test: Int[Tensor, "test length"]
    counts: Int[Tensor, "rows rows"] | None = None

    def validation_counts(self, run: _Run) -> Int[Tensor, "rows rows"]:
        """How often each pair stands in the validation contexts; counted once, read at every check."""
        if self.counts is None:
            self.counts = torch.zeros(run.stride, run.stride, dtype=torch.int32)
            _library().headcount_count(ctypes.byref(run), self.counts.data_ptr())
        return self.counts


_ARRAYS: WeakKeyDictionary[Task, _TaskArrays] = WeakKeyDictionary()


def _arrays(task: Task) -> _TaskArrays:
    if task not in _ARRAYS:
        rows, messages = (
            pad(part, (0, -part.shape[1] % _ROW)).contiguous()
            for part in (task.rows, task.messages)
        )
        _ARRAYS[task] = _TaskArrays(
            rows, messages, task.targets.int(), task.validation.int(), task.test.int()
        )
    return _ARRAYS[task]


def _panels(
    part: Float[Tensor, "2 heads d_model key_dim"], lanes: int
) -> Float[Tensor, "panels depth {lanes}"]:
    """[W_Q W_K] in panels of `lanes` columns. Padding is zero and stays zero: its gradient is."""
    flat = part.permute(2, 0, 1, 3).flatten(1)
    flat = pad(flat, (0, -flat.shape[1] % lanes, 0, -flat.shape[0] % _DEPTH))
    return flat.unflatten(1, (-1, lanes)).transpose(0, 1).contiguous()


def _apart(parts: list[Tensor]) -> list[Tensor]:
    """The parts a third of a page off each other: where low address bits agree, loads wait for stores."""
    page, size = 1024, parts[0].numel()
    room = torch.zeros(len(parts), size + -size % page + page // 3 // 16 * 16)
    for place, part in zip(room, parts, strict=True):
        place[:size] = part.flatten()
    return [place[:size].view_as(part) for place, part in zip(room, parts, strict=True)]


def _unpanelled(
    panels: Float[Tensor, "panels depth lanes"], spec: RunSpec
) -> Float[Tensor, "2 heads d_model key_dim"]:
    flat = panels.transpose(0, 1).flatten(1)[: spec.d_model, : 2 * spec.budget]
    return flat.unflatten(1, (2, spec.heads, spec.key_dim)).permute(1, 2, 0, 3).contiguous()


@cache
def _library() -> ctypes.CDLL:
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_native{suffix}")
        if path.exists():
            try:
                return _declared(ctypes.CDLL(str(path)))
            except OSError as error:
                raise InputError(
                    f"the native engine cannot be loaded ({error}); reinstall headcount."
                ) from error
    raise InputError(
        "the native engine was not built; install a C++ compiler (g++ or clang) and reinstall headcount."
    )


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions, if it was built from these sources."""
    if not hasattr(library, "headcount_run_size") or library.headcount_run_size() != ctypes.sizeof(
        _Run
    ):
        raise InputError("the native engine was built from other sources; reinstall headcount.")
    pointer, short, long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    library.headcount_run.argtypes = (short, pointer, short, long, short, pointer, long, pointer)
    library.headcount_bytes.argtypes = (short, pointer)
    library.headcount_bytes.restype = long
    library.headcount_count.argtypes = (pointer, pointer)
    library.headcount_count.restype = None
    return library
