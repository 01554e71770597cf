"""`headcount export`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.common import Json, TableKey, WeightsFile, check_output, emit
from headcount.cli.items import NamesFile
from headcount.errors import InputError
from headcount.progress import notice


def export(
    weights: WeightsFile,
    graph: Annotated[
        Path | None, typer.Argument(help="Edge list; max and sum weights need it.")
    ] = None,
    table: Annotated[
        Path | None, typer.Argument(help="Embedding table; max and sum weights need it.")
    ] = None,
    context_length: Annotated[
        int, typer.Option(help="The longest context, in items; not for softmax.")
    ] = 64,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path(
        "mha.safetensors"
    ),
    grouped: Annotated[
        bool,
        typer.Option(
            "--grouped", help="For scaled_dot_product_attention(enable_gqa=True): shared keys once."
        ),
    ] = False,
    key: TableKey = None,
    names: NamesFile = None,
    json: Json = False,
) -> None:
    """Write the weights as the state dict of a stock torch.nn.MultiheadAttention.

    Each head attends to a target in the context, and falls back to an
    extra key (add_bias_kv) when there is none. The temperature follows from the
    margin on the graph and the table, and from the context length.
    Softmax weights are written as they are and need only themselves.

    Values are zero and the output projection is the identity: put yours
    in their place. In Python:

    \b
      from headcount import load_attention, padded
      attention = load_attention("mha.safetensors")
      rows = padded(table, attention)[None]
      _, shares = attention(rows, rows, rows, average_attn_weights=False)

    That module has a key for each head, and repeats keys that heads share. With
    --grouped they are written once, for PyTorch's grouped-query attention
    (hc.load_grouped): attention.shares(rows), or attention(rows, values).

    \b
    Examples:
      headcount export weights.safetensors graph.csv table.npy
      headcount export shared.safetensors graph.csv table.npy --grouped --out gqa.safetensors
      headcount export softmax.safetensors --out softmax_mha.safetensors
    """
    from headcount.attention.export import to_torch
    from headcount.attention.grouped_export import to_grouped
    from headcount.attention.reading import read_weights_and_problem
    from headcount.attention.storage import load_weights

    check_output(out, ".safetensors")
    if out.resolve() == weights.resolve():
        raise InputError(f"{out}: would replace the weights themselves; choose another file")
    loaded, read, rows = load_weights(weights), None, None
    if loaded.aggregation == "softmax":
        if graph is not None:
            notice("graph and table are not needed: softmax weights are written as they are")
    elif graph is None or table is None:
        raise InputError(
            f"{weights}: {loaded.aggregation} weights need the graph and the table that they were "
            "made for, since the temperature follows from both; add the two files: "
            f"headcount export {weights} GRAPH TABLE --out FILE"
        )
    else:
        loaded, read, rows = read_weights_and_problem(weights, graph, table, key, names)
    make = to_grouped if grouped else to_torch
    attention = make(loaded, read, rows, context_length=context_length)
    attention.save(out, source=hashlib.sha256(weights.read_bytes()).hexdigest())
    kind = "a grouped-query attention" if grouped else "a torch.nn.MultiheadAttention"
    emit({**attention.facts, "file": str(out)}, json, f"written as {kind}")
