"""Names of items: vocabularies, edge lists of names, and graphs that carry them."""

from __future__ import annotations

import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    Graph,
    InputError,
    Vocabulary,
    as_graph,
    construct,
    read_graph,
    read_names,
    read_problem,
    save_embeddings,
    write_graph,
)
from headcount.problem.vocabulary import write_names
from tests.strategies import graphs

WORDS = ["hot", "cold", "warm", "cool"]
# Anything of one line, the marks that a CSV file quotes included.
names = st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), min_size=1, max_size=5)
names = names.filter(str.strip)


@st.composite
def named_graphs(draw):
    graph = draw(graphs(max_items=6))
    listed = st.lists(names, min_size=graph.items, max_size=graph.items, unique_by=str.strip)
    return graph.with_names(draw(listed))


@settings(deadline=None, max_examples=60)
@given(named_graphs())
def test_edge_lists_of_names_round_trip(tmp_path_factory, graph):
    folder = tmp_path_factory.mktemp("graphs")
    write_names(graph.names, folder / "names.txt")
    vocabulary = read_names(folder / "names.txt")
    assert vocabulary == graph.names
    for name in ("g.csv", "g.tsv"):
        write_graph(graph, folder / name)
        again = read_graph(folder / name, names=vocabulary)
        assert again == graph
        assert again.names == graph.names


def test_names_are_labels_and_change_nothing():
    graph = Graph.from_edges(3, [(0, 1), (2, 1)])
    named = graph.with_names(WORDS[:3])
    assert named == graph
    assert hash(named) == hash(graph)
    assert named.with_names(None).names is None
    assert [graph.name(1), named.name(1)] == ["1", "cold"]
    assert pickle.loads(pickle.dumps(named)).names == named.names
    assert "hot" in repr(named)
    assert repr(graph) == "Graph(items=3, edges=2)"


def test_a_file_of_names_numbers_them_as_they_come(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("source,target\nhot,cold\n\n cold , hot\n,\nwarm,cool\n")
    graph = read_graph(path)
    assert (graph.items, graph.pairs.tolist()) == (4, [[0, 1], [1, 0], [2, 3]])
    assert list(graph.names) == WORDS
    assert read_graph(path, names=WORDS[::-1]).pairs.tolist() == [[1, 0], [2, 3], [3, 2]]


def test_columns_are_found_by_the_header(tmp_path):
    path = tmp_path / "g.tsv"
    path.write_text('weight\ttarget\tsource\tnote\n1.5\t2\t0\t"a\tb"\n\n2.5\t1\t2\tc\n')
    assert read_graph(path).pairs.tolist() == [[0, 2], [2, 1]]


def test_items_without_edges(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("source,target\nhot,cold\n")
    graph = read_graph(path, names=[*WORDS, "tepid"])
    assert (graph.items, graph.out_degrees.tolist()) == (5, [1, 0, 0, 0, 0])


def test_numbers_are_ids_unless_words_are_among_them(tmp_path):
    path, years = tmp_path / "g.csv", ["2000", "1984", "novel"]
    path.write_text("source,target\n0,1\n")
    assert read_graph(path, names=years).pairs.tolist() == [[0, 1]]
    path.write_text("source,target\n1984,novel\n")
    assert read_graph(path, names=years).pairs.tolist() == [[1, 2]]


def test_numbers_that_could_be_ids_or_names_are_refused(tmp_path):
    path, digits = tmp_path / "g.csv", ["2", "1", "0"]
    path.write_text("source,target\n1,1\n0,1\n")
    with pytest.raises(InputError, match=r"line 3: '0,1' could be ids or names; title the columns"):
        read_graph(path, names=digits)
    assert read_graph(path, names=["0", "1"]).pairs.tolist() == [[0, 1], [1, 1]]
    path.write_text("source_name,target_name\n1,1\n0,1\n")
    assert read_graph(path, names=digits).pairs.tolist() == [[1, 1], [2, 1]]
    assert list(read_graph(path).names) == ["1", "0"]
    with pytest.raises(InputError, match="the items have no names"):
        read_graph(path, items=2)
    path.write_text("source,target\n007,010\n")
    with pytest.raises(InputError, match="could be ids or names"):
        read_graph(path, names=["010", *map(str, range(9)), "007"])


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("hot,cold\nhot,clod\n", {"names": WORDS}, r"line 3: 'clod' is not among the 4 names "),
        ("hot,clod\n", {"names": WORDS}, r"the nearest is 'cold'"),
        ("hot,cold\n\nhot,cold\n", {"names": WORDS}, r"line 4: edge \(hot, cold\) is in line 2"),
        ("hot,cold\n", {"items": 2}, r"line 2: 'hot,cold' is not two ids.*--names FILE"),
        ("0,1\n1,two\n", {}, r"line 3: '1,two' mixes names with ids"),
        ("one,two\ntwo,3\n", {}, r"line 3: 'two,3' mixes names with ids"),
        ("hot,\n", {}, r"line 2: 'hot,' does not fit the header"),
        ("hot\n", {}, r"line 2: 'hot' does not fit the header"),
        ("0,1\n\n1,7\n", {"items": 3}, r"line 4: edge \(1, 7\) has an id outside 0…2"),
        ("0,1\n", {"names": WORDS, "items": 3}, "4 names do not fit 3 items"),
    ],
)
def test_bad_lines_of_names_are_named(tmp_path, text, options, sentence):
    path = tmp_path / "g.csv"
    path.write_text(f"source,target\n{text}")
    with pytest.raises(InputError, match=sentence):
        read_graph(path, **options)


def test_names_that_are_not_utf8_are_refused(tmp_path):
    (tmp_path / "g.csv").write_bytes(b"source,target\nhot,k\xe4lt\n")
    with pytest.raises(InputError, match=r"g\.csv: is not UTF-8 text"):
        read_graph(tmp_path / "g.csv")
    (tmp_path / "names.txt").write_bytes(b"hot\nk\xe4lt\n")
    with pytest.raises(InputError, match=r"names\.txt, line 2: is not UTF-8 text"):
        read_names(tmp_path / "names.txt")


def test_a_vocabulary_in_text(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffhot\r\n\u2028cold\r\n\r\n".encode())
    assert list(read_names(path)) == ["hot", "\u2028cold"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hot\ncold\nhot\n", r"line 3: the name 'hot' is in line 1 already"),
        ("hot\n\ncold\n", r"line 2: '' is not a name"),
        ("", "holds no names"),
    ],
)
def test_bad_vocabularies_are_refused(tmp_path, text, sentence):
    (tmp_path / "names.txt").write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_names(tmp_path / "names.txt")


def test_a_problem_takes_its_names_from_the_table_or_a_file(tmp_path):
    graph, rows = tmp_path / "g.csv", torch.eye(4)
    graph.write_text("source,target\nhot,cold\n")
    save_embeddings(rows, tmp_path / "t.safetensors", names=WORDS)
    pd.DataFrame({"word": WORDS, **{f"x{k}": rows[:, k].numpy() for k in range(4)}}).to_csv(
        tmp_path / "t.csv", index=False
    )
    np.save(tmp_path / "t.npy", rows.numpy())
    (tmp_path / "names.txt").write_text("\n".join(WORDS))
    for table, listed in (("t.safetensors", None), ("t.csv", None), ("t.npy", "names.txt")):
        read, found = read_problem(graph, tmp_path / table, names=listed and tmp_path / listed)
        assert (read.items, read.pairs.tolist(), list(read.names)) == (4, [[0, 1]], WORDS)
        assert torch.equal(found.float(), rows)
    with pytest.raises(InputError, match="the items have no names"):
        read_problem(graph, tmp_path / "t.npy")
    (tmp_path / "names.txt").write_text("\n".join([*WORDS, "tepid"]))
    with pytest.raises(InputError, match=r"5 names are more than the 4 rows of .*t\.npy"):
        read_problem(graph, tmp_path / "t.npy", names=tmp_path / "names.txt")


def test_vocabularies_find_and_refuse():
    words = Vocabulary.of(WORDS)
    assert (words.id(" hot "), words.find("hit"), words[1], len(words)) == (0, None, "cold", 4)
    with pytest.raises(InputError, match=r"'wram' is not among the 4 names \(the nearest is 'wa"):
        words.id("wram")
    with pytest.raises(InputError, match="3 names do not fit 2 items"):
        Graph.from_edges(2, [(0, 1)], names=WORDS[:3])
    with pytest.raises(InputError, match=r"edge \(hot, cold\) is given twice"):
        Graph.from_edges(2, [(0, 1), (0, 1)], names=WORDS[:2])
    with pytest.raises(InputError, match="name 2: the name 'hot' is in name 0 already"):
        Vocabulary.of(["hot", "cold", "hot"])


@given(graphs())
def test_other_libraries_hold_the_same_graph(graph):
    pairs = [tuple(pair) for pair in graph.pairs.tolist()]
    matrix = sp.coo_matrix(
        (np.ones(graph.edges), (graph.sources, graph.targets)), shape=(graph.items, graph.items)
    )
    frame = pd.DataFrame({"weight": 1.0, "target": graph.targets, "source": graph.sources})
    for value in (graph, graph.to_networkx(), matrix, matrix.tocsr(), pairs, frame, graph.pairs):
        assert as_graph(value, items=graph.items) == graph
    assert as_graph(torch.tensor(graph.pairs), items=graph.items) == graph
    listed = [f"item {item}" for item in range(graph.items)]
    named = graph.with_names(listed)
    assert Graph.from_networkx(named.to_networkx()).names == named.names
    by_name = [(listed[source], listed[target]) for source, target in pairs]
    for value in (by_name, pd.DataFrame(by_name, columns=["from", "to"]), named.to_networkx()):
        assert as_graph(value, names=listed) == graph


def test_entries_of_a_sparse_matrix_are_summed_and_zeros_are_no_edges():
    matrix = sp.coo_matrix(([1.0, -1.0, 2.0, 0.0], ([0, 0, 1, 1], [1, 1, 0, 1])), shape=(2, 2))
    assert as_graph(matrix).pairs.tolist() == [[1, 0]]
    assert as_graph(sp.csr_array(matrix)).pairs.tolist() == [[1, 0]]


def test_more_items_than_the_edges_have():
    assert as_graph([(0, 1)], items=5).items == 5
    assert as_graph(nx.DiGraph([("hot", "cold")]), names=WORDS).pairs.tolist() == [[0, 1]]
    assert as_graph(Graph.from_edges(2, [(0, 1)]), items=4, names=WORDS).name(3) == "cool"
    assert as_graph([]).items == 1


@pytest.mark.parametrize(
    ("value", "options", "sentence"),
    [
        (5, {}, "a int is not a graph"),
        ([(0, 1, 2)], {}, "give .source, target. pairs"),
        ([(0, "cold")], {}, r"edge \(0, 'cold'\) mixes names with ids"),
        ([(0.5, 1)], {}, "pairs of integers or of names"),
        (np.zeros((3, 3)), {}, r"shape \(3, 3\) are not"),
        ([("hot", "clod")], {"names": WORDS}, "'clod' is not among the 4 names"),
        (sp.csr_array(np.ones((2, 3))), {}, "the matrix is 2 × 3"),
        (pd.DataFrame({"a": [0], "b": [1], "c": [2]}), {}, "no columns source and target"),
        (nx.DiGraph([(5, 7)]), {}, "convert_node_labels_to_integers"),
        (nx.DiGraph([("a", 7)]), {}, "convert_node_labels_to_integers"),
        (Graph.from_edges(3, [(0, 1)]), {"items": 2}, "has 3 items, not 2"),
    ],
)
def test_what_is_not_a_graph_is_refused(value, options, sentence):
    with pytest.raises(InputError, match=sentence):
        as_graph(value, **options)


def test_a_column_of_names_needs_the_title_name(tmp_path):
    (tmp_path / "names.csv").write_text("hot\ncold\n")
    with pytest.raises(InputError, match="line 1: 'hot' could be a title or a name"):
        read_names(tmp_path / "names.csv")
    (tmp_path / "names.csv").write_text("name\nhot\ncold\n")
    assert list(read_names(tmp_path / "names.csv")) == ["hot", "cold"]


@pytest.mark.parametrize("edges", ["0,1\r1,2\r", "hot,cold\rcold,cool\r"])
def test_lines_may_end_by_a_carriage_return_alone(tmp_path, edges):
    (tmp_path / "g.csv").write_text("source,target\r" + edges, newline="")
    assert read_graph(tmp_path / "g.csv").pairs.tolist() == [[0, 1], [1, 2]]


def test_a_construction_names_the_row_that_it_refuses():
    graph = as_graph([("hot", "cold"), ("cold", "hot")], names=["hot", "cold"])
    with pytest.raises(InputError, match=r"needs rows of norm 1, row 1 \(cold\) has 3;"):
        construct(graph, np.diag([1.0, 3.0]), "general-graph")
