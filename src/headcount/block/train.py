"""`train_blocks`: many runs of the block, stacked, checked, returned in order (Section 7.3)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from functools import partial

import torch
from torch import Tensor

from headcount.block.evaluate import ANSWERS, evaluate
from headcount.block.spec import BlockResult, BlockResults, BlockSpec
from headcount.block.stack import BlockStack, capacity, group
from headcount.block.state import StackState
from headcount.errors import InputError
from headcount.interrupts import stoppable
from headcount.problem.token_tables import TokenTable
from headcount.progress import Lines, duration, notice
from headcount.provenance import cores, versions
from headcount.shapes import Float
from headcount.threads import torch_threads

OnCheck = Callable[[StackState], None]
OnResults = Callable[[list[BlockResult]], None]
Begin = Callable[[], StackState]  # a stack that takes memory only when its turn comes
_STATE_EVERY = 20.0  # seconds
_FIRST_STATE = 3.0  # seconds to the first, then twice as long each time
_STATE_SHARE = 0.02  # of the time, at most, goes into handing out states


def train_blocks(
    specs: Sequence[BlockSpec],
    table: TokenTable | Float[Tensor, "items d_model"],
    null_row: Float[Tensor, " d_model"] | None = None,
    *,
    device: str = "auto",
    progress: bool = True,
    on_check: OnCheck | None = None,
    on_results: OnResults | None = None,
    resume: Iterable[StackState] | None = None,
    time_limit: float | None = None,
) -> BlockResults:
    """Train every spec on the table's first rows and return the results in the order of the specs.

    Runs that can share a stack do. There is no early stopping: a run may stay near 0 for thousands
    of steps and then learn. An interrupt (Ctrl-C) and `time_limit` stop between two steps; runs
    that are not finished then have no result.

    Args:
        specs: The runs to train; a spec that is given twice is trained once.
        table: The frozen embeddings: a token table, or its rows.
        null_row: The embedding of NULL, if `table` holds rows only.
        device: `auto`, `cpu` or `cuda`.
        progress: Whether to report progress on standard error.
        on_check: Called with a stack's state at a check about every 20 seconds (less often if
            writing it takes long) and when a stack ends or is stopped.
        on_results: Called with a stack's results when it ends.
        resume: States that `on_check` gave. On the same kind of device they end bit for bit as if
            they had never stopped.
        time_limit: Seconds.

    >>> from headcount.problem.token_tables import token_table
    >>> sizes = {"items": 16, "d_model": 8, "heads": 2, "key_dim": 2, "length": 3, "batch": 8}
    >>> spec = BlockSpec(**sizes, steps=4, check_every=2, validation=20, test=20)
    >>> (result,) = train_blocks([spec], token_table("gaussian", 16, 8), progress=False)
    >>> [step for step, accuracy in result.history]
    [2, 4]
    """
    chosen = choose_device(device)
    distinct, results = list(dict.fromkeys(specs)), {}
    table, null_row = _rows_of(table, null_row, distinct)
    deadline = time.monotonic() + time_limit if time_limit is not None else float("inf")
    failed = threading.Event()  # somewhere: the other stacks stop too
    with stoppable() as interrupt:

        def stop() -> bool:
            return failed.is_set() or interrupt.asked or time.monotonic() > deadline

        def trained(begin: Begin) -> list[BlockResult]:
            if stop():
                return []
            state = begin()
            rows = torch.cat([table[: state.specs[0].items].float(), null_row.float()[None]])
            return _trained(state, rows, chosen, stop, progress, on_check)

        with closing(
            _as_they_end(
                trained, _stacks_to_do(distinct, list(resume or ()), chosen), chosen, failed
            )
        ) as ended:
            for found in ended:
                results |= {result.spec: result for result in found}
                if on_results and found:
                    on_results(found)
                if progress and found:
                    notice(f"{len(results)} of {len(distinct)} runs are finished")
    if progress and len(results) < len(distinct):
        notice(f"stopped: {len(results)} of {len(distinct)} runs are finished")
    return BlockResults(results[spec] for spec in specs if spec in results)


def choose_device(device: str) -> str:
    """`auto` is CUDA where torch sees it."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise InputError(f"device {device!r} is unknown; use auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device; use device='cpu' (--device cpu)")
    return device


def _as_they_end(
    work: Callable[[Begin], list[BlockResult]],
    begins: Iterator[Begin],
    device: str,
    failed: threading.Event,
) -> Generator[list[BlockResult], None, None]:
    """Each stack's results as it ends: one stack after the other on a GPU, one per core on the CPU.

    On the CPU each runs on one thread: threads that share a step wait for each other whenever
    something else uses a core, and one thread's sums have a fixed order.
    """
    if device == "cuda":
        yield from map(work, begins)
        return
    pool = ThreadPoolExecutor(cores(), initializer=partial(torch.set_num_threads, 1))
    with torch_threads(None):  # a thread of the pool also sets the number for threads to come
        try:
            for ended in as_completed([pool.submit(work, begin) for begin in begins]):
                yield ended.result()
        except BaseException:
            failed.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _trained(
    state: StackState,
    rows: Tensor,
    device: str,
    stop: Callable[[], bool],
    progress: bool,
    on_check: OnCheck | None,
) -> list[BlockResult]:
    """One stack's results, or none if it was stopped. Its memory is free when this returns."""
    run = _StackRun(BlockStack(state, rows, device), progress, on_check)
    results = run.results() if run.finish(stop) else []
    if device == "cuda":
        del run
        torch.cuda.empty_cache()
    return results


class _StackRun:
    """One stack from its present step to its last one."""

    def __init__(self, stack: BlockStack, progress: bool, on_check: OnCheck | None) -> None:
        self._stack, self._progress, self._on_check = stack, progress, on_check
        self._handed_out, self._pause = time.monotonic(), _FIRST_STATE
        self._lines = Lines()

    def finish(self, stop: Callable[[], bool]) -> bool:
        """Take the remaining steps and checks; whether the last one was reached."""
        state, spec = self._stack.state, self._stack.spec
        while state.taken < spec.steps:
            began, before = time.monotonic(), state.taken
            goal = min(spec.steps, (before // spec.check_every + 1) * spec.check_every)
            self._stack.advance(goal - before, stop)
            if state.taken < goal:
                state.seconds += time.monotonic() - began
                break
            self._check()
            state.seconds += time.monotonic() - began
            self._say((state.taken - before) * len(state.specs) / (time.monotonic() - began))
            if time.monotonic() - self._handed_out > self._pause and state.taken < spec.steps:
                self._hand_out()
        self._hand_out()
        return state.taken >= spec.steps

    @torch.no_grad()
    def _check(self) -> None:
        """Validation accuracy; a run that reached a new best keeps a copy of its weights."""
        state = self._stack.state
        count = self._stack.spec.validation
        accuracy = evaluate(self._stack, state.weights, "validation", count).accuracy
        finite = [part.flatten(1).isfinite().all(1) for part in state.weights.values()]
        finite = torch.stack(finite).all(0)
        better = accuracy > state.best_accuracy
        state.best_accuracy = torch.where(better, accuracy, state.best_accuracy)
        state.best_step = torch.where(better, state.taken, state.best_step)
        state.diverged = torch.where(~finite & (state.diverged == 0), state.taken, state.diverged)
        for name, part in state.weights.items():
            best = state.best[name]
            best.copy_(torch.where(better.view(-1, *[1] * (part.ndim - 1)), part, best))
        state.history.append((state.taken, accuracy.tolist()))

    def _hand_out(self) -> None:
        self._stack.wait()
        began = time.monotonic()
        if self._on_check:
            self._on_check(self._stack.state)
        self._handed_out = time.monotonic()
        # Writing a large state may take minutes: the pause then grows with it.
        usual = min(2 * self._pause, _STATE_EVERY)
        self._pause = max(usual, (self._handed_out - began) / _STATE_SHARE)

    def _say(self, rate: float) -> None:
        if self._progress:
            self._lines(lambda: self._status(rate))

    def _status(self, rate: float) -> str:
        stack, found = self._stack, sorted(self._stack.state.history[-1][1])
        left = (stack.spec.steps - stack.state.taken) * len(found) / rate
        return (
            f"{stack.ops.name} on {stack.device}: h = {stack.heads}, {len(found)} stacked, "
            f"step {stack.state.taken:,} of {stack.spec.steps:,}, {rate:,.0f} run-steps/s, "
            f"validation accuracy {found[0]:.3f} … {found[-1]:.3f}, "
            f"about {duration(left)} left of this stack"
        )

    def results(self) -> list[BlockResult]:
        """Each run's test at its best check and after the last step."""
        stack, state = self._stack, self._stack.state
        best = evaluate(stack, state.best, "test", stack.spec.test).accuracy.tolist()
        last = evaluate(stack, state.weights, "test", stack.spec.test)
        return [
            BlockResult(
                spec=spec,
                best_validation=float(state.best_accuracy[run]),
                best_step=int(state.best_step[run]),
                test=best[run],
                final_test=float(last.accuracy[run]),
                history=tuple((step, values[run]) for step, values in state.history),
                answers=dict(zip(ANSWERS, last.answers[run].tolist(), strict=True)),
                barred_test=float(last.barred[run]),
                attention=last.attention(run),
                loss=float(last.loss[run]),
                diverged=int(state.diverged[run]) or None,
                engine=stack.ops.name,
                device=stack.device,
                seconds=state.seconds / len(state.specs),
                versions=versions(),
            )
            for run, spec in enumerate(state.specs)
        ]


def _stacks_to_do(specs: list[BlockSpec], resume: list[StackState], device: str) -> Iterator[Begin]:
    """The resumed stacks, then the other runs by group, split where they would not fit."""
    under_way = [spec for state in resume for spec in state.specs]
    if len(set(under_way)) < len(under_way) or not set(under_way) <= set(specs):
        raise InputError(
            "the given states hold runs twice or runs that were not asked for; give each run's own"
        )
    for state in resume:
        yield lambda state=state: state
    groups: dict[Hashable, list[BlockSpec]] = defaultdict(list)
    for spec in specs:
        if spec not in under_way:
            groups[group(spec)].append(spec)
    for runs in groups.values():
        runs.sort(key=lambda spec: spec.key_dim)  # of like width: less padding in each piece
        size = min(capacity(spec, device) for spec in runs)
        pieces = -(-len(runs) // size)
        for piece in range(pieces):
            part = runs[piece * len(runs) // pieces : (piece + 1) * len(runs) // pieces]
            yield partial(StackState.initial, part)


def _rows_of(
    table: TokenTable | Tensor, null_row: Tensor | None, specs: Sequence[BlockSpec]
) -> tuple[Float[Tensor, "items d_model"], Float[Tensor, " d_model"]]:
    """The table's rows and NULL's, if they fit every spec."""
    if isinstance(table, TokenTable):
        for spec in specs:
            if spec.table_hash and spec.table_hash != table.hash:
                raise InputError(
                    f"a run is described on the table {spec.table!r} ({spec.table_hash}), not on "
                    f"{table.name!r} ({table.hash}); give the table it names"
                )
        table, null_row = table.embeddings, table.null
    if null_row is None:
        raise InputError("a table of rows has no NULL; give null_row too, or a TokenTable")
    rows, width = table.shape
    for spec in specs:
        if rows < spec.items or width != spec.d_model or len(null_row) != width:
            raise InputError(
                f"a table of {rows} × {width} with a NULL row of {len(null_row)} does not fit "
                f"{spec.items} items of {spec.d_model}; give a table with enough rows and set "
                "d_model to its width"
            )
    return table, null_row
