"""`headcount plan`: a budget for a graph, or the graph that a published model's budget holds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from headcount.cli import common, sizes
from headcount.cli.tables import budget_cell, describe, print_table, short
from headcount.errors import InputError

if TYPE_CHECKING:
    from headcount.theory.architectures import Audit
    from headcount.theory.planner import Plan, Row


def plan(
    items: sizes.Items = None,
    edges: sizes.Edges = None,
    degree: sizes.Degree = None,
    d_model: sizes.Width = None,
    variant: Annotated[
        str | None, typer.Option(help="Aggregation over heads: max (default) or softmax.")
    ] = None,
    max_degree: sizes.MaxDegree = None,
    bits: sizes.Bits = 8,
    margin: sizes.Margin = None,
    hf_config: Annotated[
        Path | None, typer.Option(help="A Hugging Face config.json to judge.")
    ] = None,
    example: Annotated[
        str | None, typer.Option(help="gpt2, gpt3-175b or llama-3-8b, to judge.")
    ] = None,
    context_length: Annotated[
        int | None, typer.Option(help="Tokens ℓ of a context: adds its flops.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Plan heads and width for a graph, or say what a model's key–query channel can hold.

    \b
    Example:
      headcount plan --items 256 --d-model 32
      headcount plan --items 128 --degree 8 --d-model 32 --json
      headcount plan --example llama-3-8b
    """
    if hf_config is not None or example is not None:
        _refuse_with_model(
            hf_config, example, edges, degree, d_model, variant, max_degree, margin, context_length
        )
        from headcount.theory import architectures

        shape = (
            architectures.read_config(hf_config)
            if hf_config
            else architectures.example(str(example))
        )
        audit = architectures.audit_architecture(shape, items, bits_per_parameter=bits)
        common.emit(asdict(audit), True) if as_json else _show_audit(audit)
        return
    from headcount.theory.laws import PlannedAggregation
    from headcount.theory.planner import plan as make_plan

    items, edges, d_model, max_degree = sizes.resolve(items, edges, degree, d_model, max_degree)
    answer = make_plan(
        items,
        edges,
        d_model=d_model,
        variant=sizes.one_of("--variant", variant or "max", get_args(PlannedAggregation)),
        max_degree=max_degree,
        bits_per_parameter=bits,
        margin=margin,
        context_length=context_length,
    )
    common.emit(asdict(answer), True) if as_json else _show_plan(answer)


def _refuse_with_model(hf_config: Path | None, example: str | None, *given: object) -> None:
    if hf_config is not None and example is not None:
        raise InputError("--hf-config and --example name two models; give one")
    if any(value is not None for value in given):
        raise InputError(
            "a model fixes its own sizes and softmax; beside it give only --items and --bits"
        )


def _show_plan(answer: Plan) -> None:
    family = describe(answer.items, answer.edges, answer.family, answer.max_degree, answer.bits)
    whole = [] if answer.rows[0].context_flops is None else ["flops/\ncontext"]
    signs = {"lower bound": "≥", "compiled": "≈", "trained law": "≈", "construction": "≤"}
    fitted = ("compiled", "trained law") if answer.edges <= answer.items else ("trained law",)
    print_table(
        f"{family}, d_model = {answer.d_model:,}",
        answer.advice,
        ("law", "D_K", "h × d_k", "params", "flops/\ntoken", *whole, "bytes", "bits/\nparam"),
        [
            (
                _label(row),
                budget_cell(signs[row.kind], row.budget, row.sure or row.kind in fitted),
                _split(row),
                short(row.parameters),
                short(row.flops_per_token),
                *([] if row.context_flops is None else [short(row.context_flops)]),
                short(row.bytes),
                f"{row.bits_per_parameter:.2g}",
            )
            for row in answer.rows
        ],
        [(_label(row), row.reason) for row in answer.rows],
    )


def _split(row: Row) -> str:
    if row.heads and row.key_dim:
        return f"{row.heads:,} × {row.key_dim:,}"
    return "found" if row.kind == "compiled" else "any"


def _label(row: Row) -> str:
    others = {"wide": "trained, wide", "regular": "trained, regular", "measured": "measured law"}
    return others.get(row.name, row.kind) if row.kind == "trained law" else row.name


def _show_audit(audit: Audit) -> None:
    shape = audit.architecture
    keys = "" if shape.kv_heads == shape.heads else f" in {shape.kv_heads} groups that share keys"
    print_table(
        f"{shape.name}, one of {shape.layers} layers: d_model = {shape.d_model:,}, "
        f"{shape.heads} heads × {shape.key_dim}{keys}, "
        f"{short(audit.parameters)} key–query parameters",
        audit.advice,
        ("law", "relations", "for each item"),
        [
            (
                holding.law,
                f"{holding.sense} {holding.edges:,}"
                if holding.sure
                else f"({holding.sense} {holding.edges:,})",
                f"{holding.edges / holding.items:,.1f}",
            )
            for holding in audit.holdings
        ],
        [(holding.law, holding.reason) for holding in audit.holdings],
    )
