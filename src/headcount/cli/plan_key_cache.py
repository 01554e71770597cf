"""How `headcount plan` shows shared keys and the cache that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.cli.tables import print_table, short

if TYPE_CHECKING:
    from headcount.theory.key_cache import KeyCachePlan


def show_key_cache(answer: KeyCachePlan) -> None:
    """The advice, and the smallest cache for each number of keys."""
    graph = f"{answer.items:,} items, {answer.edges:,} edges, d_model = {answer.d_model:,}"
    print_table(
        f"{graph}: keys shared by heads",
        answer.text,
        ("keys", "h × d_k", "D_Q", "D_KV", "bytes/\ntoken", "threshold d_k", "chance", "params"),
        [
            (
                f"{split.kv_heads:,}" + (" (own)" if split.kv_heads == split.heads else ""),
                f"{split.heads:,} × {split.key_dim:,}",
                f"{split.query_columns:,}",
                f"{split.key_columns:,}",
                f"{split.cache_bytes:,g}",
                "{:g} … {:g}".format(*split.interval),
                f"{100 * split.chance:.0f} %",
                short(split.parameters),
            )
            for split in answer.choices
        ],
        [
            (
                "assumes",
                "The law of steps at equal degrees of freedom, D_Q + D_KV for narrow heads "
                "(docs/shared-keys.md). Bytes are those of one layer; values take theirs.",
            )
        ],
    )
