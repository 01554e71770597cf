"""`headcount plan`: a budget for a graph, or the graph that a published model's budget holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli import common, sizes
from headcount.cli.plan_key_cache import show_key_cache
from headcount.cli.plan_models import show_audit
from headcount.cli.tables import budget_cell, describe, print_table, short
from headcount.errors import InputError

if TYPE_CHECKING:
    from headcount.theory.planner import Plan, Row


def plan(
    items: sizes.Items = None,
    edges: sizes.Edges = None,
    degree: sizes.Degree = None,
    d_model: sizes.Width = None,
    variant: Annotated[
        sizes.Variant | None, typer.Option(help="Aggregation over heads; max unless given.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps to plan for; 50,000 unless given.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Most columns D_K; the steps are then found.")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="Heads h, fixed.")] = None,
    chance: Annotated[
        float | None, typer.Option(help="Chance of success to plan for; 0.95 unless given.")
    ] = None,
    max_degree: sizes.MaxDegree = None,
    bits: sizes.Bits = 8,
    margin: sizes.Margin = None,
    hf_config: Annotated[
        Path | None, typer.Option(help="A Hugging Face config.json to judge.")
    ] = None,
    example: Annotated[
        str | None, typer.Option(help="A shipped model to judge, such as llama-3-8b.")
    ] = None,
    key_dim: Annotated[
        int | None, typer.Option(help="Width of a head to judge, with --d-model and --heads.")
    ] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="Keys g that the heads share; as many as heads unless given.")
    ] = None,
    key_cache_bytes: Annotated[
        float | None, typer.Option(help="Most bytes of a token's keys; shared keys are planned.")
    ] = None,
    bytes_per_number: Annotated[
        float | None, typer.Option(help="Bytes of a number in the key cache; 2 unless given.")
    ] = None,
    context_length: Annotated[
        int | None, typer.Option(help="Tokens ℓ of a context: adds its flops.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Plan heads, width and steps for a graph, or say what a model's key–query channel can hold.

    \b
    Example:
      headcount plan --items 256 --d-model 32
      headcount plan --items 128 --degree 8 --d-model 32 --steps 20000 --json
      headcount plan --items 500 --d-model 64 --budget 80
      headcount plan --items 256 --d-model 32 --kv-heads 1
      headcount plan --items 256 --d-model 32 --key-cache-bytes 40
      headcount plan --example deepseek-v2
      headcount plan --d-model 768 --heads 12 --key-dim 64 --items 50257
    """
    from headcount.theory.adviser import USUAL_CHANCE
    from headcount.theory.footprint import CACHE_BYTES
    from headcount.theory.key_cache import plan_key_cache
    from headcount.theory.planner import plan as make_plan

    if hf_config is not None or example is not None or key_dim is not None:
        named = {
            "--edges": edges, "--degree": degree, "--max-degree": max_degree, "--margin": margin,
            "--steps": steps, "--budget": budget, "--context-length": context_length,
            "--variant": variant, "--chance": chance, "--key-cache-bytes": key_cache_bytes,
        }  # fmt: skip
        if key_dim is None:
            named |= {"--d-model": d_model, "--heads": heads, "--kv-heads": kv_heads}
        _refuse_with_model(hf_config, example, key_dim, named)
        channel = d_model, heads, key_dim, kv_heads
        cost = bits, bytes_per_number or CACHE_BYTES
        _judge_model(hf_config, example, channel, items, cost, as_json)
        return
    if kv_heads is not None or key_cache_bytes is not None or bytes_per_number is not None:
        named = {
            "--budget": budget, "--max-degree": max_degree, "--margin": margin,
            "--context-length": context_length, "--variant softmax": variant == "softmax" or None,
        }  # fmt: skip
        if given := [name for name, value in named.items() if value is not None]:
            raise InputError(f"{', '.join(given)}: not planned for shared keys; leave it out")
        items, edges, d_model, _ = sizes.resolve(items, edges, degree, d_model, None)
        found = plan_key_cache(
            items,
            edges,
            d_model=d_model,
            kv_heads=kv_heads,
            heads=heads,
            key_cache_bytes=key_cache_bytes,
            bytes_per_number=CACHE_BYTES if bytes_per_number is None else bytes_per_number,
            steps=steps,
            chance=USUAL_CHANCE if chance is None else chance,
        )
        common.emit(asdict(found), True) if as_json else show_key_cache(found)
        return
    items, edges, d_model, max_degree = sizes.resolve(items, edges, degree, d_model, max_degree)
    answer = make_plan(
        items,
        edges,
        d_model=d_model,
        variant="max" if variant is None else variant.value,
        max_degree=max_degree,
        bits_per_parameter=bits,
        margin=margin,
        context_length=context_length,
        steps=steps,
        budget=budget,
        heads=heads,
        chance=USUAL_CHANCE if chance is None else chance,
    )
    common.emit(asdict(answer), True) if as_json else _show_plan(answer)


def _refuse_with_model(
    hf_config: Path | None, example: str | None, key_dim: int | None, named: dict[str, object]
) -> None:
    if sum(given is not None for given in (hf_config, example, key_dim)) > 1:
        raise InputError("--hf-config, --example and --key-dim name models; give one of them")
    if given := [name for name, value in named.items() if value is not None]:
        raise InputError(
            f"{', '.join(given)}: a model fixes its own sizes and softmax; beside it give only "
            "--items, --bits and --bytes-per-number"
        )


def _judge_model(
    hf_config: Path | None,
    example: str | None,
    channel: tuple[int | None, int | None, int | None, int | None],
    items: int | None,
    cost: tuple[float, float],
    as_json: bool,
) -> None:
    from headcount.theory import model_config
    from headcount.theory.architectures import audit_architecture

    if hf_config is not None:
        shape = model_config.read_config(hf_config)
    elif example is not None:
        shape = model_config.example(example)
    else:
        shape = model_config.by_hand(*channel)
    bits, cached = cost
    audit = audit_architecture(shape, items, bits_per_parameter=bits, bytes_per_number=cached)
    common.emit(asdict(audit), True) if as_json else show_audit(audit)


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
        _notes((_label(row), row.reason) for row in answer.rows),
    )


def _notes(reasons: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Reasons with the rows that share them."""
    rows: dict[str, list[str]] = {}
    for label, reason in reasons:
        rows.setdefault(reason, []).append(label)
    return [(", ".join(labels), reason) for reason, labels in rows.items()]


def _split(row: Row) -> str:
    if row.heads and row.key_dim:
        return f"{row.heads:,} × {row.key_dim:,}"
    return "found" if row.kind == "compiled" else "any"


def _label(row: Row) -> str:
    """The advised rows are named by their steps, the paper's fits by what they were fitted to."""
    if row.kind != "trained law" or row.name.endswith("steps"):
        return row.name
    papers = {"permutations": "paper's fit", "wide": "paper, wide", "regular": "paper, regular"}
    return papers.get(row.name, row.name)
