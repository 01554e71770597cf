"""Weights of one's own in the explorer, in a real browser."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headcount as hc
from tests.browser_pages import drop_file

pytestmark = pytest.mark.browser


def test_dropped_files_are_shown(explorer, own_files):
    page = explorer("#view=weights")
    page.set_input_files("input[type=file]", [str(own_files[".csv"]), str(own_files[".npy"])])
    needed = "Still needed: weights (.safetensors)."  # at first the page asks for all three
    page.locator("#weights .told", has_text=needed).wait_for()
    drop_file(page, own_files[".safetensors"])
    page.wait_for_selector("#weights.filled")
    assert page.inner_text("#weights .told").startswith("Exact: every edge")
    assert "F1 on all pairs\n1.000" in page.inner_text("#weights .facts")
    assert page.locator("#weights .heads figure").count() == page.evaluate(
        "Number(document.querySelector('#weights .facts dd').textContent.split(' ')[0])"
    )


BAD = {
    "weights.safetensors": (b"\x10", "not a whole .safetensors file"),
    "table.npy": (b"nothing", "is not a .npy file"),
    "graph.csv": (b"source,target\n3\n", "line 2: “3” is not a pair"),
    "notes.txt": (b"hello", "unknown kind of file"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_gets_a_sentence(explorer, tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    page = explorer("#view=weights")
    page.set_input_files("input[type=file]", str(tmp_path / name))
    page.wait_for_selector("#weights .told.bad")
    told = page.inner_text("#weights .told")
    assert message in told
    assert told.startswith(name)
    assert told.endswith(".")


@pytest.mark.parametrize(
    ("aggregation", "notes", "message"),
    [("softmax", {}, "are for softmax"), ("max", {"decide": "top"}, "have no threshold")],
)
def test_weights_without_a_threshold_get_a_sentence(
    explorer, tmp_path, aggregation, notes, message
):
    ones = torch.ones(1, 12, 2)
    weights = hc.KeyQuery(ones, ones, 0.5, aggregation, notes=notes)
    weights.save(tmp_path / "some.safetensors")
    page = explorer("#view=weights")
    page.set_input_files("input[type=file]", str(tmp_path / "some.safetensors"))
    page.wait_for_selector("#weights .told.bad")
    assert message in page.inner_text("#weights .told")


def test_names_are_those_of_the_tables_rows(explorer, tmp_path, own_files):
    words = [f"word-{n}" for n in range(24)][::-1]
    table = hc.load_embeddings(own_files[".npy"])
    hc.save_embeddings(table, tmp_path / "named.safetensors", names=words)
    graph = hc.permutation_graph(24, seed=0)
    rows = [f"{words[a]},{words[b]}" for a, b in graph.pairs.tolist()]
    (tmp_path / "named.csv").write_text("source,target\n" + "\n".join(rows) + "\n")
    page = explorer("#view=weights")
    given = [str(own_files[".safetensors"]), str(tmp_path / "named.csv")]
    page.set_input_files("input[type=file]", [*given, str(tmp_path / "named.safetensors")])
    page.wait_for_selector("#weights.filled")
    assert page.inner_text("#weights .told").startswith("Exact: every edge")
    page.set_input_files("input[type=file]", str(own_files[".npy"]))
    page.wait_for_selector("#weights .told.bad")
    assert "the rows of the table have none" in page.inner_text("#weights .told")


def test_files_that_do_not_fit_get_a_sentence(explorer, tmp_path, own_files):
    np.save(tmp_path / "wide.npy", np.ones((24, 5), dtype=np.float32))
    page = explorer("#view=weights")
    given = [str(own_files[".safetensors"]), str(own_files[".csv"]), str(tmp_path / "wide.npy")]
    page.set_input_files("input[type=file]", given)
    page.wait_for_selector("#weights .told.bad")
    assert "the weights take d_model 12, the table has 5" in page.inner_text("#weights .told")


def test_the_command_embeds_files(explorer, own_files, command_in, tmp_path):
    given = [own_files[suffix] for suffix in (".safetensors", ".csv", ".npy")]
    code, out, _ = command_in(tmp_path, "explore", *given, "--out", "own.html", "--json")
    assert code == 0
    assert '"page": "own.html"' in out
    page = explorer(page=tmp_path / "own.html")
    page.wait_for_selector("#weights.filled")
    assert page.inner_text("#weights .told").startswith("Exact: every edge")


def test_weights_with_fewer_heads_replace_others(explorer, tmp_path, own_files):
    page = explorer("#view=weights&seed=7")
    page.set_input_files("input[type=file]", [str(own_files[".csv"]), str(own_files[".npy"])])
    for heads in (2, 1):
        ones = torch.ones(heads, 12, 2)
        hc.KeyQuery(ones, ones, 0.5).save(tmp_path / "own.safetensors")
        drop_file(page, tmp_path / "own.safetensors")
        page.wait_for_function(
            f"document.querySelectorAll('#weights .heads figure').length === {heads}"
        )
        assert page.inner_text("#weights .told").startswith("Not exact: ")
    assert page.evaluate("explorer.state.seed") == 7  # a dropped file leaves the sliders alone
    (tmp_path / "bad.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"[]")
    drop_file(page, tmp_path / "bad.safetensors")
    page.wait_for_selector("#weights .told.bad")
    assert page.inner_text("#weights .told").startswith("bad.safetensors: ")
    assert page.is_hidden("#weights .circle")  # it shows other weights than the sentence is about


def test_a_page_with_weights_is_left_and_found_again(explorer, own_files, tmp_path):
    graph, table = hc.read_problem(own_files[".csv"], own_files[".npy"])
    weights = hc.load_weights(own_files[".safetensors"])
    own = hc.explore(tmp_path / "own.html", weights, graph, table)
    page = explorer(page=own)
    page.click("text=Watch")
    page.wait_for_function("location.hash === '#view=watch'")
    assert explorer("#view=watch", page=own).is_visible("#watch")
    assert explorer("#seed=3", page=own).is_visible("#weights")


def test_scores_are_not_rounded_to_float32(explorer, tmp_path):
    """The edge scores 0.1, which is not above a threshold of 0.1, and above it in float32."""
    queries = torch.tensor([[[1.0], [0.0]]], dtype=torch.float64)
    keys = torch.tensor([[[0.0], [0.1]]], dtype=torch.float64)
    page = explorer("#view=weights")
    (tmp_path / "graph.csv").write_text("source,target\n0,1\n")
    hc.save_embeddings(torch.eye(2), tmp_path / "table.npy")
    expected = {0.1: "Too close to the threshold", 0.1 + 1e-8: "Not exact: 1 of 1 edges"}
    for threshold, told in (expected | {0.1 - 1e-8: "Exact: "}).items():
        hc.KeyQuery(queries, keys, threshold).save(tmp_path / "weights.safetensors")
        names = ("weights.safetensors", "graph.csv", "table.npy")
        page.set_input_files("input[type=file]", [str(tmp_path / name) for name in names])
        page.wait_for_function(
            f"document.querySelector('#weights .told').textContent.startsWith('{told}')"
        )
