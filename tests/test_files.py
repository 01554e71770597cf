"""Edge lists and tables: what is written is read back, and a failed write changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from safetensors.torch import save_file

import headcount.problem.edge_list as edge_list
from headcount import (
    InputError,
    binary_embeddings,
    gaussian_embeddings,
    load_embeddings,
    one_hot_embeddings,
    read_graph,
    save_embeddings,
    write_graph,
)
from headcount.files import replacing
from tests.strategies import graphs


@settings(deadline=None, max_examples=40)
@given(graphs())
def test_edge_lists_round_trip(tmp_path_factory, graph):
    folder = tmp_path_factory.mktemp("graphs")
    edge_list._BLOCK, before = 3, edge_list._BLOCK  # several blocks
    try:
        for name in ("g.csv", "g.tsv"):
            write_graph(graph, folder / name)
            assert read_graph(folder / name, graph.items) == graph
    finally:
        edge_list._BLOCK = before


def test_edge_list_text(tmp_path):
    (tmp_path / "g.csv").write_text("source,target\r\n2,0\r\n0,1\r\n")
    graph = read_graph(tmp_path / "g.csv")
    assert (graph.items, graph.pairs.tolist()) == (3, [[0, 1], [2, 0]])
    write_graph(graph, tmp_path / "g.csv")
    assert (tmp_path / "g.csv").read_text() == "source,target\n0,1\n2,0\n"


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_tables_round_trip(tmp_path, suffix):
    for table in (
        gaussian_embeddings(5, 3),
        binary_embeddings(5, 8),
        one_hot_embeddings(4).double(),
    ):
        save_embeddings(table, tmp_path / f"t{suffix}")
        assert torch.equal(load_embeddings(tmp_path / f"t{suffix}"), table)


def test_half_precision_and_integers_are_widened(tmp_path):
    np.save(tmp_path / "t.npy", np.array([[1, 0], [0, 1]], dtype=np.int8))
    assert load_embeddings(tmp_path / "t.npy").dtype == torch.float32
    save_file(
        {"embeddings": torch.ones(2, 2, dtype=torch.bfloat16), "null": torch.ones(2)},
        tmp_path / "t.safetensors",
    )
    assert load_embeddings(tmp_path / "t.safetensors").dtype == torch.float32


def test_a_table_can_be_named(tmp_path):
    save_file({"a": torch.zeros(2, 2), "b": torch.ones(2, 2)}, tmp_path / "t.safetensors")
    assert load_embeddings(tmp_path / "t.safetensors", key="b").sum() == 4
    with pytest.raises(InputError, match="choose the key from a, b"):
        load_embeddings(tmp_path / "t.safetensors")


def test_gaussian_rows_have_norm_one_and_binary_rows_the_density():
    rows = gaussian_embeddings(400, 30, seed=1).double()
    assert (rows.norm(dim=1) - 1).abs().max() < 1e-6
    cosines = (rows @ rows.T)[~torch.eye(400, dtype=torch.bool)]
    assert abs(float(cosines.mean())) < 0.005
    assert float(cosines.var()) == pytest.approx(1 / 30, rel=0.05)
    share = float(binary_embeddings(400, 100, seed=1).mean())
    assert share == pytest.approx(2 * np.log(400) / 100, rel=0.05)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_half()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_blank_line_at_the_end_is_no_edge(tmp_path):
    (tmp_path / "g.csv").write_text("source,target\n0,1\n\n\n")
    assert read_graph(tmp_path / "g.csv").pairs.tolist() == [[0, 1]]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_graph(read_graph(_edge(tmp_path)), tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "source,target\n0,1\n"


def _edge(folder):
    (folder / "edge.csv").write_text("source,target\n0,1\n")
    return folder / "edge.csv"


def test_devices_are_not_replaced():
    with pytest.raises(InputError, match="not a regular file"), replacing("/dev/null"):
        pass


def test_new_files_may_be_read_by_whom_the_umask_lets(tmp_path):
    """The writer of safetensors makes its files private."""
    save_embeddings(torch.eye(3), tmp_path / "t.safetensors")
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_sign_too_many_is_a_name(tmp_path):
    (tmp_path / "g.csv").write_text("source,target\n-+1,2\n")
    with pytest.raises(InputError, match=r"line 2: '-\+1,2' is not two ids"):
        read_graph(tmp_path / "g.csv", items=3)


def test_a_header_may_go_on_in_the_next_line(tmp_path):
    (tmp_path / "g.csv").write_text('source,target,"a\nnote"\n0,1,\nx,y,\n')
    with pytest.raises(InputError, match="line 4: 'x,y' is not two ids"):
        read_graph(tmp_path / "g.csv", items=2)
