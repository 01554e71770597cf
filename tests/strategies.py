"""Random problems for property tests."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import strategies as st

from headcount import Graph, KeyQuery


@st.composite
def graphs(draw, max_items=10):
    items = draw(st.integers(1, max_items))
    codes = draw(st.sets(st.integers(0, items * items - 1), max_size=items * items))
    return Graph.from_edges(items, [divmod(code, items) for code in codes])


@st.composite
def problems(draw, aggregations=("max", "sum"), max_items=10, scales=(0,)):
    """(weights, graph, table) with uneven heads; coarse entries make ties at the threshold common.

    Up to three heads share a key.
    `scales` are exponents: table, queries and keys are multiplied by powers of two drawn from them,
    τ accordingly.
    """
    graph = draw(graphs(max_items))
    d_model = draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**32 - 1))
    coarse = draw(st.booleans())
    generator = torch.Generator().manual_seed(seed)
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))

    def entries(*shape):
        if coarse:
            return torch.randint(-2, 3, shape, generator=generator).to(dtype)
        return torch.randn(shape, generator=generator, dtype=dtype)

    sizes = [draw(st.sampled_from(scales)) for _ in range(3)]
    if any(sizes):
        dtype = torch.float64
    table = entries(graph.items, d_model) * 2.0 ** sizes[0]
    widths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    sharing = draw(st.sampled_from([1, 1, 2, 3]))
    widths = [width for width in widths for _ in range(sharing)]
    heads = [
        (entries(d_model, width) * 2.0 ** sizes[1], entries(d_model, width) * 2.0 ** sizes[2])
        for width in widths
    ]
    threshold = float(draw(st.integers(-3, 3))) if coarse else draw(st.floats(-2, 2))
    threshold *= 2.0 ** (2 * sizes[0] + sizes[1] + sizes[2])
    weights = KeyQuery.from_heads(heads, threshold, draw(st.sampled_from(aggregations)))
    return replace(weights, keys=weights.keys[::sharing]), graph, table
