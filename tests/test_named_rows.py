"""Graphs of names beside tables with names: an edge always means the rows that it names."""

from __future__ import annotations

import networkx as nx
import pandas as pd
import pytest
import torch

import headcount as hc
from headcount import InputError, RunSpec, as_graph
from headcount.problem.contents import registered_graph

FRAME = pd.DataFrame({"name": ["b", "a", "c"], "x": [1.0, 2.0, 3.0], "y": [3.0, 1.0, 2.0]})
SIZES = {"heads": 1, "key_dim": 1, "length": 2}


@pytest.mark.parametrize("edges", [[("a", "b")], nx.DiGraph([("a", "b")])])
def test_a_run_finds_the_rows_of_a_frame_by_name(edges):
    spec = RunSpec.on(edges, FRAME, **SIZES)
    assert registered_graph(spec.graph).pairs.tolist() == [[1, 0]]
    assert registered_graph(spec.graph).items == 3


def test_a_graph_whose_names_differ_from_the_rows_is_refused():
    graph = as_graph([("a", "b"), ("b", "c")])
    sentence = "item 0 of the graph is 'a', row 0 of the table 'b'; number the graph by the table"
    for call in (hc.compile, hc.construct, lambda *pair: RunSpec.on(*pair, **SIZES)):
        with pytest.raises(InputError, match=sentence):
            call(graph, FRAME)
    weights = hc.compile(graph, torch.eye(3)).weights
    with pytest.raises(InputError, match=sentence):
        hc.verify(weights, graph, FRAME.assign(z=1.0))
    fitting = as_graph(graph, names=FRAME["name"].tolist())
    assert RunSpec.on(fitting, FRAME, **SIZES).items == 3


def test_names_beside_rows_without_names_are_refused():
    with pytest.raises(InputError, match="the rows of the table have none; give a pandas frame"):
        RunSpec.on([("a", "b")], torch.eye(2), **SIZES)
    # A graph that was made before has settled its numbering.
    assert RunSpec.on(as_graph([("a", "b")]), torch.eye(2), **SIZES).items == 2
    assert RunSpec.on([("a", "b")], "gaussian", d_model=2, **SIZES).items == 2


def test_a_named_graph_is_renumbered_whether_or_not_items_are_given():
    edges = nx.DiGraph([("a", "b")])
    for items in (None, 3):
        assert as_graph(edges, items, ["b", "a", "c"]).pairs.tolist() == [[1, 0]]


def test_a_graph_without_edges_is_not_trained():
    with pytest.raises(InputError, match="has no edges; there is nothing to learn"):
        RunSpec.on(hc.Graph.from_edges(4, []), "gaussian", d_model=2, **SIZES)
