"""`headcount audit`: look into a real model's key–query channels."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import Json, Quiet, Seed, emit
from headcount.errors import InputError
from headcount.files import made_folder
from headcount.progress import progress_line

if TYPE_CHECKING:
    from headcount.auditing.result import ModelAudit

_DIGITS = 4  # of a layer's number, at most


def audit(
    model: Annotated[
        str,
        typer.Argument(
            help="A folder or file of safetensors with its config.json, a GGUF file, minilm, "
            "smollm2, or a hub name.",
            show_default=False,
        ),
    ],
    layers: Annotated[
        str | None, typer.Option(help="Layers, such as 0-3,8.", show_default="all")
    ] = None,
    relations: Annotated[
        str | None,
        typer.Option(
            help="antonyms, hypernyms, meronyms, synonyms or .csv files of words, separated by "
            "commas; none for none.",
            show_default="antonyms,hypernyms",
        ),
    ] = None,
    offsets: Annotated[
        str, typer.Option(help="Distances of query and key, for rotary models.")
    ] = "0",
    edges: Annotated[
        int, typer.Option(help="Most edges of a relation; of more a random part is used.")
    ] = 2_000,
    permutations: Annotated[int, typer.Option(help="Permutations of the p-values.")] = 999,
    random_heads: Annotated[int, typer.Option(help="Random heads to compare with.")] = 200,
    level: Annotated[float, typer.Option(help="Chance of a false finding per relation.")] = 0.05,
    compile_seconds: Annotated[
        float, typer.Option(help="Time to compile each relation; 0 leaves it out.")
    ] = 30.0,
    compress_seconds: Annotated[
        float,
        typer.Option(
            help="Time in total to compile some heads' own choices, 4 s or more for each; 0 leaves "
            "it out."
        ),
    ] = 60.0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the page and its tables here.")
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Look into a model's key-query channels: spectra, overlap, relations, redundancy.

    Entropy ranks, overlaps, choices and the AUCs of relations are compared with
    those of random weights of the same shape; norms, MRR, F1 and redundancy are
    not. Scores are of content alone, without positions; layers after the first
    are on the direct path. Only the tensors of one layer are in memory at a time.

    \b
    Examples:
      headcount audit minilm --out results/minilm
      headcount audit smollm2 --layers 0-3 --relations antonyms,meronyms
      headcount audit path/to/model --relations my.csv --json
    """
    from headcount.auditing.audit import audit as run

    if out is not None:
        made_folder(out)  # refused now, not after minutes of work
    with progress_line(quiet=quiet or json) as tell:
        found = run(
            model,
            layers=None if layers is None else _numbers(layers),
            relations=_named(relations),
            offsets=_offsets(offsets),
            most_edges=edges,
            level=level,
            permutations=permutations,
            random_heads=random_heads,
            compile_seconds=compile_seconds,
            compress_seconds=compress_seconds,
            seed=seed,
            progress=tell,
        )
        page = None if out is None else found.save(out)
    if json:
        emit({**found.to_dict(), "page": None if page is None else str(page)}, True)
        return
    emit(_in_words(found, page), False, f"{found.model}: key–query channels")


def _numbers(text: str) -> list[int]:
    """Read `0-3,8` as 0, 1, 2, 3, 8.

    >>> _numbers("0-3, 8")
    [0, 1, 2, 3, 8]
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"--layers {text!r}: write numbers and ranges, such as 0-3,8")
        for number in (first, last):  # before a range is written out
            if len(number) > _DIGITS:
                raise InputError(f"--layers {number[:40]}: no model has that layer; choose others")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def _offsets(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--offsets {text!r}: write numbers, such as 0,1,16") from None


def _named(text: str | None) -> list[str] | None:
    if text is None or text.strip() == "none":
        return None if text is None else []
    return [part.strip() for part in text.split(",") if part.strip()]


def _in_words(found: ModelAudit, page: Path | None) -> dict[str, Any]:
    from headcount.report.formatting import range_text

    heads: Any = found.heads
    sizes = found.sizes
    rank, random = heads["entropy_rank"], found.random
    told: dict[str, Any] = {
        "model": f"{sizes.name}, {len(found.layers)} of {sizes.layers} layers, {sizes.heads} heads "
        f"of width {sizes.key_dim} on {sizes.kv_heads} key heads, d_model {sizes.d_model:,}",
        "capacity": found.capacity.advice,
        "entropy rank": f"{range_text(rank)}, mean {rank.mean():.1f}; random "
        f"weights {random['entropy_rank']:.1f}",
        "overlap": f"queries {_mean(heads['query_overlap'])}, keys {_mean(heads['key_overlap'])}; "
        f"random heads {random['overlap']:.3f}",
    }
    columns, kept = heads["compiled_columns"].dropna(), heads["kept_rank_90"]
    told["choices"] = (
        f"90 % of a head's choices need {range_text(kept)} of its {sizes.key_dim} "
        f"directions; random heads {random['kept_rank_90']:.1f}"
    )
    if len(columns):
        told["choices"] += (
            f"; compiled, all of them need at most {range_text(columns)} columns ({len(columns)} "
            f"heads tried); random heads {random['compiled_columns']:.1f}"
        )
    for row in found.relations.to_dict("records"):
        told[row["relation"]] = (
            f"{row['heads_that_know']} heads know it, {row['heads_beyond_similarity']} beyond "
            f"similarity; best is head {row['best_head']} of layer {row['best_layer']}: AUC "
            f"{_between(row, 'best_auc')}, MRR {row['best_mrr']:.3f}, F1 {row['best_f1']:.3f}; "
            f"plain cosines: AUC {_between(row, 'cosine_auc')}; compiled D_K: {row['compiled']}"
        )
    if found.relations.empty:
        told["relations"] = "none looked for"
    told["page"] = None if page is None else str(page)
    return told


def _mean(values: Any) -> str:
    """The mean; "none" where heads have nothing to be compared with."""
    return "none" if values.isna().all() else f"{values.mean():.3f}"


def _between(row: dict[str, Any], name: str) -> str:
    """A number with its 95 % interval, where there is one."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.3f}" + ("" if isnan(low) else f" ({low:.3f} to {high:.3f})")
