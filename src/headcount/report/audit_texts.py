"""One sentence or two on what each part of an audit's page means."""

from __future__ import annotations

from math import isnan
from typing import Any

from headcount.auditing.compressibility import RANDOM_HEADS
from headcount.auditing.redundancy import measured_removal
from headcount.auditing.result import ModelAudit
from headcount.report.formatting import num, range_text


def rank_text(audit: ModelAudit) -> str:
    """How many directions heads spread over, beside random weights."""
    heads: Any = audit.heads
    rank, width = heads["entropy_rank"], audit.sizes.key_dim
    random = audit.random["entropy_rank"]
    few = int((rank < random / 2).sum())
    return (
        f"The entropy rank says how many directions a head's form spreads over: {range_text(rank)} "
        f"of {width}, mean {num(rank.mean())}, compared with {num(random)} for random weights. "
        f"{few:,} of {len(rank):,} heads use less than half of what random weights do."
    )


def spectrum_text(audit: ModelAudit) -> str:
    """How many singular values hold the energy."""
    heads: Any = audit.heads
    energy = heads["energy_rank"]
    return (
        f"The {range_text(energy)} largest singular values of a head hold 90 % of its energy, Σ s² "
        f"(median {num(energy.median())}); random weights take {num(audit.random['energy_rank'])}. "
        "A curve above the dashed one is a head that relies on few directions."
    )


def overlap_text(audit: ModelAudit) -> str:
    """How far heads of a layer read the same directions."""
    heads: Any = audit.heads
    queries, keys = heads["query_overlap"].mean(), heads["key_overlap"].mean()
    if isnan(queries):
        return "A layer has one head, which no other overlaps."
    shared = "all heads share one key" if isnan(keys) else f"{num(keys)} for keys"
    return (
        "The overlap is how much of a head's energy lies in the query or key space of another "
        f"head, averaged over the others: {num(queries)} for queries, {shared}; random heads have "
        f"{num(audit.random['overlap'])}. A larger value means that the heads of a layer read the "
        "same directions of the residual stream."
    )


def choice_text(audit: ModelAudit) -> str:
    """What a head's choices need of its own directions."""
    heads: Any = audit.heads
    kept = heads["kept_rank_90"]
    return (
        "A head's choice is the word that it scores highest for a word. To keep 90 % of its "
        f"choices, a head needs its {range_text(kept)} largest singular values (median "
        f"{num(kept.median())} of {audit.sizes.key_dim}); {RANDOM_HEADS} random heads need "
        f"{num(audit.random['kept_rank_90'])} on average."
    )


def column_text(audit: ModelAudit) -> str:
    """What other weights need to make the same choices."""
    heads: Any = audit.heads
    columns, random = heads["compiled_columns"].dropna(), audit.random["compiled_columns"]
    return (
        f"Weights compiled to make all of a head's choices have {range_text(columns)} columns, "
        f"where the head owns {audit.sizes.key_dim}; for {RANDOM_HEADS} random heads it is "
        f"{num(random)} on average. {len(columns):,} of {len(heads):,} heads were compiled, each "
        "for a limited time, so these are upper bounds. A head near the dashed line is no easier "
        "to compress than a random one."
    )


def table_text(audit: ModelAudit) -> str:
    """How far the token table is from a Gaussian one."""
    table: Any = audit.table
    own, gaussian = table.iloc[0], table.iloc[-1]
    return (
        f"{int(own['items']):,} random words as the first layer reads them. Their mean cosine is "
        f"{num(own['mean_cosine'])}, and they spread over {num(own['participation'])} directions, "
        f"compared with {num(gaussian['participation'])} for Gaussian rows. ρ is the leakage of "
        "Definition B.4; a block of 0 means that the theorem guarantees no head anything on this "
        "table."
    )


def relation_text(audit: ModelAudit) -> str:
    """How many heads know each relation."""
    rows: Any = audit.relations.itertuples()
    parts = [
        f"{row.relation}: {row.heads_that_know:,} heads know it, "
        f"{row.heads_beyond_similarity:,} beyond similarity"
        for row in rows
    ]
    return (
        "AUC is how often a head scores an edge above a non-edge of the same source; 0.5 is "
        "chance, and an edge whose source has no non-edge counts as 0.5. "
        f"{'; '.join(parts)}. Related words have similar embeddings, so compare with the AUC of "
        "plain cosines in the next table."
    )


def removal_text(audit: ModelAudit) -> str:
    """What half of the heads keep."""
    frame: Any = audit.removal
    heads = audit.sizes.heads
    kept = max(heads // 2, 1)
    half = frame[frame["kept"] == kept]["left"]
    study: Any = measured_removal()
    ends = study[study["ratio"].isin((1.0, 2.0)) & (2 * study["kept"] == study["heads"])]
    by = ends.set_index(["kind", "ratio"])["left"].map(num)
    return (
        f"With {kept} of its {heads} heads a layer keeps {range_text(half)} of "
        "its choices (the words that some head scores highest). On the diagonal no choice is made "
        "twice; above it heads repeat each other. Coloured curves are weights for a known graph, "
        "and their F1: with half of the heads, trained weights keep "
        f"{by['trained', 1.0]} at the smallest budget that works (D_K*) and {by['trained', 2.0]} "
        f"at twice that, compiled ones {by['compiled', 1.0]} and {by['compiled', 2.0]}."
    )
