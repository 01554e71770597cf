"""Exit code 70 says that we are wrong: no input may lead to it."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from headcount import Graph, KeyQuery, permutation_graph, verify
from headcount.attention.softmax_certificate import softmax_certificate
from headcount.problem.edge_list import write_graph
from headcount.store.store import Store
from headcount.store.sweeps import SweepRecord

METADATA = {
    "format": "headcount-key-query",
    "version": "1",
    "aggregation": "softmax",
    "threshold": "0.5",
    "widths": "[1]",
    "notes": "{}",
}
DEEP = "[" * 100_000


@pytest.fixture
def problem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(Graph.from_edges(2, [(0, 1)]), "g.csv")
    np.save("t.npy", np.eye(2, dtype=np.float32))
    return tmp_path


def written(**changes: str) -> None:
    ones = torch.ones(1, 2, 1)
    save_file({"queries": ones, "keys": ones.clone()}, "w.safetensors", METADATA | changes)


@pytest.mark.parametrize("noted", ["abc", "-3", "1e3", "9" * 5000, "٣", "0", "", "1_0", "\x1b[2J"])
def test_a_note_that_is_not_a_context_length_is_refused_where_it_is_needed(noted, problem, command):
    written(notes=json.dumps({"context_length": noted}))
    code, _, err = command("verify", "w.safetensors", "g.csv", "t.npy")
    assert (code, err.count("\n")) == (2, 1)
    assert "the weights' note context_length is '" in err
    assert "\x1b" not in err
    for words in (
        ("verify", "w.safetensors", "g.csv", "t.npy", "--context-length", "2"),
        ("show", "w.safetensors"),
    ):
        code, _, err = command(*words)
        assert code in (0, 1), err


@pytest.mark.parametrize("noted", ["Top", "", "\u202etop"])
def test_a_note_of_what_decides_is_known_or_refused(noted, problem, command):
    written(notes=json.dumps({"decide": noted}), aggregation="max")
    code, _, err = command("verify", "w.safetensors", "g.csv", "t.npy")
    assert (code, err.count("\n")) == (2, 1)
    assert "the weights' note decide is '" in err
    assert command("verify", "w.safetensors", "g.csv", "t.npy", "--decide", "top")[0] in (0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"notes": DEEP},
        {"notes": "3"},
        {"notes": "{"},
        {"widths": DEEP},
        {"widths": "[1.5e400]"},
        {"widths": "3"},
        {"widths": '["a"]'},
        {"threshold": "much"},
        {"threshold": "nan"},
        {"threshold": "9" * 5000},
        {"version": "two"},
        {"version": "9" * 5000},
        {"version": "١"},
        {"threshold": "٣"},
        {"threshold": "1_0"},
        {"temperature": "1_0"},
        {"temperature": "hot"},
        {"aggregation": "\0"},
        {"aggregation": "\x1b[2J"},
    ],
)
def test_weights_with_odd_metadata(changes, problem, command, unchecked):
    written(**changes)
    for words in (("verify", "w.safetensors", "g.csv", "t.npy"), ("show", "w.safetensors")):
        code, _, err = command(*words)
        assert code == 2, err
        assert "error: w.safetensors: " in err
        assert "\x1b" not in err


@pytest.mark.parametrize(
    "certificate", [DEEP, "3", "{}", '{"margin": "wide"}', json.dumps({"pairs": "many"})]
)
def test_a_certificate_that_somebody_changed(certificate, problem, command):
    written(notes=json.dumps({"certificate": certificate, "certificate_json": certificate}))
    assert command("show", "w.safetensors")[0] == 0


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int16, torch.uint16, torch.int64, torch.bfloat16]
)
def test_tensors_of_any_type(dtype, problem, command):
    ones = torch.ones(1, 2, 1).to(dtype)
    save_file({"queries": ones, "keys": ones.clone()}, "w.safetensors", METADATA)
    save_file({"embeddings": torch.eye(2).to(dtype)}, "t.safetensors")
    assert command("verify", "w.safetensors", "g.csv", "t.safetensors")[0] in (0, 1)


@pytest.mark.parametrize("name", ["a\\u0000b", "a\\u001bb", "a/b", " "])
def test_names_that_cannot_name_a_file(name, problem, command):
    grid = "[grid]\nitems = 16\nd_model = 8\nheads = 1\nkey_dim = 1\n"
    (problem / "s.toml").write_text(f'name = "{name}"\n{grid}')
    code, _, err = command("sweep", "s.toml")
    assert code == 2
    assert "cannot name a file" in err
    for field in ("graph", "table", "names", "key"):
        (problem / "s.toml").write_text(f'{grid}{field} = "a\\u0000.csv"\n')
        assert command("sweep", "s.toml")[0] == 2
    (problem / "s.toml").write_text(f'store = "a\\u0000"\n{grid}')
    assert command("sweep", "s.toml")[0] == 2


@pytest.mark.parametrize(
    "text", [DEEP, '{"hidden_size": ' + "9" * 5000 + "}"], ids=["deep", "long"]
)
def test_a_config_with_deep_lists_or_long_numbers(text, problem, command):
    (problem / "config.json").write_text(text)
    code, _, err = command("plan", "--hf-config", "config.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "error: config.json: " in err


def test_a_record_from_the_future_does_not_keep_watch_up(problem, command):
    with Store("s.sqlite") as store:
        store.sweeps.begin("ahead", 1, 1)
        with store._database.transaction() as connection:
            connection.execute(
                "UPDATE sweeps SET updated = ?, started = ?, pid = 4194999, host = host || ?",
                (time.time() + 1e8, time.time() + 1e8, "-other"),
            )
        (record,) = store.sweeps
    assert record.state_at(time.time()) == "died"
    code, out, _ = command("watch", "s.sqlite")
    assert code == 0
    assert "died" in out


@pytest.mark.parametrize(
    ("ahead", "says"), [(1e8, "ahead of this machine's clock"), (-1e3, "for 16")]
)
def test_watch_does_not_wait_for_a_sweep_that_may_never_write_again(ahead, says, problem, command):
    """Its process seems to live; so does any process that was given its number since."""
    with Store("s.sqlite") as store:
        store.sweeps.begin("a\u202eb", 1, 1)
        with store._database.transaction() as connection:
            connection.execute(
                "UPDATE sweeps SET updated = ?, started = ?",
                (time.time() + ahead, time.time() + max(ahead, 0)),
            )
    code, out, err = command("watch", "s.sqlite")
    assert (code, err.count("\n")) == (0, 1)
    assert "silent" in out
    assert says in err
    assert f"process {os.getpid()} of this machine" in err
    assert "\u202e" not in out + err


def test_a_process_that_began_after_its_sweep_is_another_one():
    now = time.time()
    here = (os.getpid(), socket.gethostname())
    for started, state in ((now - 1e6, "died"), (now, "silent")):
        record = SweepRecord(1, "a", "running", *here, started, now - 1e3, *[1] * 6, 1.0)
        assert record.state_at(now) == state


@given(st.floats(allow_nan=False, allow_infinity=True))
def test_the_state_of_a_sweep_at_any_time(updated):
    record = SweepRecord(1, "a", "running", 4194999, "other", updated, updated, *[1] * 6, 1.0)
    assert record.state_at(1e9) in ("running", "silent", "died")
    assert record.state_at(1e9) == ("died" if abs(updated - 1e9) >= 120 else "running")


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-2, 2, width=32), min_size=8, max_size=8),
    st.floats(-2, 2) | st.floats(-1e-6, 1e-6) | st.floats(1e6, 1e9),
)
def test_score_error_covers_the_distance_to_the_threshold(numbers, threshold):
    rows = torch.tensor(numbers, dtype=torch.float64).view(4, 2)
    weights = KeyQuery(torch.eye(2).double()[None], torch.eye(2).double()[None], threshold)
    graph = permutation_graph(4)
    found = verify(weights, graph, rows)
    whole = [[Fraction(number) for number in row] for row in rows.tolist()]
    exact = [[a * c + b * d for c, d in whole] for a, b in whole]
    edges = set(map(tuple, graph.pairs.tolist()))
    tau = Fraction(threshold)
    margin = min(
        exact[i][j] - tau if (i, j) in edges else tau - exact[i][j]
        for i in range(4)
        for j in range(4)
    )
    assert abs(Fraction(found.margin) - margin) <= Fraction(found.score_error)


@pytest.mark.parametrize("gap", [590, 601, 700, 900])
@pytest.mark.parametrize("exponent", [-850, -866, -867, -870, -900, -1020])
def test_thresholds_near_the_end_of_exponents_are_never_certified_wrongly(gap, exponent):
    """Exponents end at 600: what lies beyond looks like e^−600 = 2^−865.6, and must not count."""
    graph, rows = Graph.from_edges(3, [(0, 1)]), torch.eye(3).double()
    logits = torch.zeros(3, 3).double()
    logits[0, 1] = -gap
    keys = (logits.T * math.sqrt(3))[None].contiguous()
    weights = KeyQuery(torch.eye(3).double()[None], keys, 2.0**exponent, "softmax")
    found = softmax_certificate(weights, graph, rows, 3, search=20)
    assert found.verdict != "certified"  # the other pairs are non-edges with A_ij near 1/3
    everything = Graph.from_edges(3, [(i, j) for i in range(3) for j in range(3)])
    found = softmax_certificate(weights, everything, rows, 3, search=20)
    if gap + math.log(3) > -exponent * math.log(2):  # A_01 ≤ τ
        assert found.verdict != "certified"


def test_score_error_covers_scores_that_underflow():
    """Scores of 2⁻¹²⁰⁰ are 0 in float64; the margin of 0 is off by as much."""
    tiny = torch.full((1, 1, 1), 2.0**-400, dtype=torch.float64)
    rows = torch.full((1, 1), 2.0**-200, dtype=torch.float64)
    found = verify(KeyQuery(tiny, tiny, 0.0), Graph.from_edges(1, [(0, 0)]), rows)
    assert found.exact
    assert abs(Fraction(found.margin) - Fraction(1, 2**1200)) <= Fraction(found.score_error)
