"""How `headcount plan` shows what a published model's key–query channel can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.cli.tables import print_table, short

if TYPE_CHECKING:
    from headcount.theory.architectures import Audit
    from headcount.theory.model_config import Architecture


def show_audit(audit: Audit) -> None:
    """The channel, what it holds by each law, and its key cache."""
    shape = audit.architecture
    layers = "" if shape.layers == 1 else f", one of {shape.layers} layers"
    print_table(
        f"{shape.name}{layers}: d_model = {shape.d_model:,}, "
        f"{shape.heads} heads × {shape.key_dim}{_keys(shape)}, "
        f"{short(audit.parameters)} key–query parameters",
        audit.advice,
        ("law", "relations", "between", "for each item"),
        [
            (
                holding.law,
                f"{holding.sense} {holding.edges:,}"
                if holding.sure
                else f"({holding.sense} {holding.edges:,})",
                "" if holding.interval is None else "{:,} … {:,}".format(*holding.interval),
                f"{holding.edges / holding.items:,.1f}",
            )
            for holding in audit.holdings
        ],
        [
            *((holding.law, holding.reason) for holding in audit.holdings),
            ("key cache", _cache(audit)),
            ("published ablation", _ablation(audit)),
        ],
    )


def _keys(shape: Architecture) -> str:
    if shape.latent is not None:
        return f" on one shared latent key of width {shape.latent.rank}"
    if shape.kv_heads == shape.heads:
        return ""
    if shape.kv_heads == 1:
        return " that share one key"
    return f" in {shape.kv_heads} groups that share keys"


def _cache(audit: Audit) -> str:
    """What the keys of a token take, and what fewer keys would take at equal freedom."""
    shape = audit.architecture
    text = f"{audit.key_cache_bytes:,g} bytes per token and layer"
    if shape.latent is not None:
        return (
            f"{text}, for {shape.latent.rank} numbers of the latent, which serves values too, and "
            f"{shape.latent.position_dim} for positions, which are not modelled. With the "
            "up-projection absorbed into the queries, all heads share the latent as one key, and "
            f"the form of a head has rank {shape.key_dim} at most; degrees of freedom are counted "
            "so."
        )
    fewer = [one for one in audit.shared_keys if one.cache_bytes < audit.key_cache_bytes]
    shown = ", ".join(f"{one.cache_bytes:,g} for {one.kv_heads} × {one.key_dim:,}" for one in fewer)
    if not fewer:
        return f"{text}."
    return f"{text}. Fewer and wider keys with as many degrees of freedom would take {shown}."


def _ablation(audit: Audit) -> str:
    rows = ", ".join(f"{h} × {k} {bleu}" for h, k, bleu in audit.published_ablation)
    return (
        f"Vaswani et al. 2017, Table 3, d_model 512, heads × width and BLEU: {rows}. Whole models "
        "on another task; our laws do not predict it."
    )
