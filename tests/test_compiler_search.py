"""The compiler's search: the sign of τ, no descent twice, Ctrl-C at any time, what it accepts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

from headcount.attention.verification import verify
from headcount.compiler import max_search
from headcount.compiler.certificate import table_hash
from headcount.compiler.compile import compile
from headcount.compiler.head_counts import levels_of
from headcount.compiler.layout import Layout
from headcount.compiler.max_search import MaxSearch
from headcount.compiler.search import Attempt
from headcount.compiler.trial import Descended, start
from headcount.compiler.whitened import WhitenedProblem
from headcount.errors import InputError, NoSolution
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph, random_graph

REAL = max_search.descend_in_stages
Calls = list[tuple[float, tuple[int, ...], int]]


def zero_row(graph_edges: list[tuple[int, int]]) -> tuple[Graph, torch.Tensor]:
    table = gaussian_embeddings(8, 8)
    table[0] = 0
    return Graph.from_edges(8, graph_edges), table


ALL_EDGES = zero_row([(0, j) for j in range(8)] + [(j, 0) for j in range(1, 8)] + [(1, 2), (3, 4)])
NO_EDGES = zero_row([(i, j) for i in range(1, 8) for j in range(1, 8) if (i * j) % 7 != 5])


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calls]:
    """Descents fail where the level does not pass, or below a budget; the list of all of them."""

    def watch(passes: Callable[[float], bool], least: int = 0) -> Calls:
        calls: Calls = []

        def descend(problem: WhitenedProblem, layout: Layout, seed: int, *rest: Any) -> Descended:
            calls.append((problem.level, layout.widths, seed))
            if passes(problem.level) and sum(layout.widths) >= least:
                return REAL(problem, layout, seed, *rest)
            return Descended(start(problem, layout.widths, seed), -1.0, 5, 1)

        monkeypatch.setattr(max_search, "descend_in_stages", descend)
        return calls

    return watch


# The sign of τ


@pytest.mark.usefixtures("counted_time")
@pytest.mark.parametrize(("problem", "budget", "sign"), [(ALL_EDGES, 4, -1), (NO_EDGES, 3, 1)])
def test_a_zero_row_fixes_the_sign_for_the_search(
    problem: tuple[Graph, torch.Tensor], budget: int, sign: int, watched: Callable[..., Calls]
) -> None:
    calls = watched(lambda level: True)
    assert levels_of(*problem) == (sign,)
    found = compile(*problem, time_limit=2)
    assert verify(found.weights, *problem).exact
    assert found.weights.budget <= compile(*problem, budget=budget).weights.budget <= budget
    assert {level for level, _, _ in calls} == {sign}


def test_a_dense_graph_soon_tries_both_signs_and_keeps_the_one_that_succeeds(
    watched: Callable[..., Calls],
) -> None:
    calls = watched(lambda level: level > 0, least=2)
    found = compile(random_graph(5, 18), gaussian_embeddings(5, 5))
    reached = next(n for n, attempt in enumerate(found.frontier) if attempt.exact)
    assert len({sum(widths) for _, widths, _ in calls[: reached + 1]}) <= 6
    assert {level for level, _, _ in calls[reached:]} == {1.0}
    assert found.frontier[reached].budget == max(attempt.budget for attempt in found.frontier)
    assert found.weights.budget < found.frontier[reached].budget


def test_both_signs_come_from_the_second_budget_on_unless_the_graph_is_sparse(
    watched: Callable[..., Calls],
) -> None:
    calls = watched(lambda level: False)
    for edges, both_early in ((44, True), (8, False)):
        calls.clear()
        with suppress(NoSolution):
            compile(random_graph(8, edges), gaussian_embeddings(8, 8))
        hasty = [level for level, _, seed in calls if seed == 0]
        assert (len(set(hasty[:3])) == 2) is both_early
        assert {level for level, _, _ in calls} == {1.0, -1.0}


@pytest.mark.parametrize("heads", [1, 2])
def test_no_descent_is_made_twice_nor_beyond_the_rank(
    heads: int, watched: Callable[..., Calls]
) -> None:
    calls = watched(lambda level: False)
    with pytest.raises(NoSolution):
        compile(permutation_graph(16), gaussian_embeddings(16, 3), heads=heads)
    assert len(calls) == len(set(calls))
    assert max(sum(widths) for _, widths, _ in calls) <= 3 * heads


# Ctrl-C


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ctrl-C in the first call alone."""
    calls: list[None] = []

    def called(*words: Any, **options: Any) -> Any:
        calls.append(None)
        return interrupted() if len(calls) == 1 else function(*words, **options)

    return called


@pytest.mark.parametrize("during", ["widen_in_stages", "certified_weights"])
@pytest.mark.parametrize("budget", [8, None])
def test_weights_that_separate_survive_an_interruption(
    during: str, budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(max_search, during, once(getattr(max_search, during)))
    graph, table = permutation_graph(16), gaussian_embeddings(16, 8)
    found = compile(graph, table, budget=budget)
    assert verify(found.weights, graph, table).exact
    assert [attempt.exact for attempt in found.frontier][-1:] == [True]
    assert sum(attempt.exact for attempt in found.frontier) == 1


def test_an_interrupted_descent_says_how_far_it_got() -> None:
    def interrupt(line: str) -> None:
        if "step 20" in line:
            raise KeyboardInterrupt

    said = r"before the interruption in 1 attempt; .* had \d+ violations? among 1,024 pairs"
    with pytest.raises(NoSolution, match=said):
        compile(permutation_graph(32), gaussian_embeddings(32, 8), budget=2, progress=interrupt)


def test_an_interruption_ends_a_search_on_a_grid() -> None:
    def interrupt(line: str) -> None:
        lines.append(line)
        if (
            "step" in line
            and any("exact" in other for other in lines)
            and "interrupted" not in lines
        ):
            lines.append("interrupted")
            raise KeyboardInterrupt

    lines: list[str] = []
    with suppress(NoSolution):
        compile(permutation_graph(32), gaussian_embeddings(32, 16), bits=3, progress=interrupt)
    before, after = (
        lines[: lines.index("interrupted")],
        lines[lines.index("interrupted") + 1 :],
    )
    assert not any("step" in line for line in after)
    assert any("bits" in line for line in before)  # what was found is rounded, and no more
    assert not any("bits" in line for line in after)


# What is accepted


def test_a_certificate_is_for_the_table_with_its_smallest_entries() -> None:
    table = gaussian_embeddings(6, 6)
    table[0, 0] = 1e-40
    assert compile(permutation_graph(6), table, budget=6).certificate.table_hash == table_hash(
        table
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_tables(dtype: torch.dtype) -> None:
    graph, table = permutation_graph(8), gaussian_embeddings(8, 8).to(dtype)
    found = compile(graph, table, budget=8)
    assert verify(found.weights, graph, table.double()).exact
    assert found.certificate.table_hash == table_hash(table)


def test_small_directions_of_a_float64_table_count() -> None:
    graph, table = permutation_graph(16), 1e-4 * gaussian_embeddings(16, 8).double() + 1e4
    assert verify(compile(graph, table, budget=12).weights, graph, table).exact


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_very_large_and_small_tables(size: float) -> None:
    graph, table = permutation_graph(16), size * gaussian_embeddings(16, 8).double()
    assert verify(compile(graph, table, budget=8).weights, graph, table).exact


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variant": "sum"}, "variant 'sum' is unknown"),
        ({"device": "tpu"}, "device 'tpu' is unknown"),
        ({"device": "cuda"}, "no CUDA device"),
        ({"device": "cuda", "variant": "softmax", "context_length": 2}, "on the CPU"),
    ],
)
def test_unknown_variants_and_devices_are_refused(
    options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=said):
        compile(permutation_graph(4), torch.eye(4), **options)


def test_the_widest_margin_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def reach(self: MaxSearch, *_: Any, **__: Any) -> bool:
        self.frontier += [
            Attempt(n, (n,), False, 0, margin, 9, 0.1)
            for n, margin in ((1, 0.2), (2, 0.4), (3, 0.3))
        ]
        return False

    monkeypatch.setattr(MaxSearch, "reach", reach)
    with pytest.raises(NoSolution, match=r"D_K = 2 in 1 head reached a relative margin of 0\.4"):
        compile(permutation_graph(4), torch.eye(4), budget=4, margin=0.9)


# The command


@pytest.fixture
def files(tmp_path: Any) -> None:
    from headcount.problem.edge_list import write_graph
    from headcount.problem.tables import save_embeddings

    write_graph(permutation_graph(12), tmp_path / "graph.csv")
    save_embeddings(gaussian_embeddings(12, 8), tmp_path / "table.npy")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "weights.pt"), "give the file that suffix"),
        (("--out", "absent/weights.safetensors"), "its folder does not exist"),
        (("--device", "tpu"), "'tpu' is not one of 'auto', 'cpu', 'cuda'"),
    ],
)
def test_the_command_refuses_before_it_searches(
    words: tuple[str, ...], said: str, files: None, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(max_search, "descend_in_stages", interrupted)
    code, _, err = command("compile", "graph.csv", "table.npy", *words)
    assert code == 2
    assert said in err


@pytest.mark.parametrize(("budget", "line"), [(7, "widths 3, 2, 2"), (6, "key dim 2")])
def test_the_command_tells_the_widths(budget: int, line: str, files: None, command: Any) -> None:
    words = ("--budget", budget, "--heads", 3, "--device", "cpu")
    code, out, err = command("compile", "graph.csv", "table.npy", *words)
    assert code == 0, err
    assert line in " ".join(out.split())
