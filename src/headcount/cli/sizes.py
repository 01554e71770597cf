"""The options of `plan` and `bounds` that give the sizes of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from headcount.errors import InputError

Items = Annotated[int | None, typer.Option(help="Items m: the vertices of the graph.")]
Edges = Annotated[
    int | None, typer.Option(help="Relations m'; without them the graph is a permutation.")
]
Degree = Annotated[
    int | None, typer.Option(help="Degree r of a regular graph, in place of --edges: m' = r·m.")
]
Width = Annotated[int | None, typer.Option("--d-model", help="Width of the embeddings.")]
MaxDegree = Annotated[
    int | None, typer.Option(help="Largest in- or out-degree Δ, for graphs with hubs.")
]
Bits = Annotated[float, typer.Option(help="Bits that one parameter carries, for the bit budget.")]
Margin = Annotated[
    float | None,
    typer.Option(
        help="Margin over N(U)·N(V), N(U) = max ‖x_v U_k‖; by default what the constructions keep."
    ),
]


class Variant(StrEnum):
    """Aggregations that the compiler and the laws of training know."""

    max = "max"
    softmax = "softmax"


Name = TypeVar("Name", bound=str)


def one_of(option: str, value: str, allowed: Sequence[Name]) -> Name:
    """The allowed value that an option was given; any other is refused."""
    if value not in allowed:
        raise InputError(f"{option} {value}: not known; choose one of {', '.join(allowed)}")
    return allowed[allowed.index(value)]


def resolve(
    items: int | None,
    edges: int | None,
    degree: int | None,
    d_model: int | None,
    max_degree: int | None,
) -> tuple[int, int | None, int, int | None]:
    """Check that the sizes are given; a degree gives the edges and the largest degree."""
    if items is None or d_model is None:
        missing = "--items" if items is None else "--d-model"
        raise InputError(
            f"{missing} is missing: give --items and --d-model, or --example for `plan`"
        )
    if degree is None:
        return items, edges, d_model, max_degree
    if edges is not None or max_degree is not None:
        raise InputError(
            "--degree fixes the edges and the largest degree; leave out --edges and --max-degree"
        )
    if not 1 <= degree < items:
        raise InputError(
            f"--degree {degree}: {items} items allow 1 to {items - 1}; choose one of these"
        )
    return items, degree * items, d_model, degree
