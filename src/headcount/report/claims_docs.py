"""The rules and verdicts as a document: `make docs` writes docs/reproduction.md from our runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill

from headcount.files import replacing
from headcount.report.agreement import shipped_claims
from headcount.report.figures.base import Claim
from headcount.report.formatting import listed
from headcount.report.rules import Rule, rules, rules_version
from headcount.report.statements import statements
from headcount.reproduction.shipped import measured_evidence

PAGE = Path("docs/reproduction.md")
_COLUMNS = 100
_SPLIT_PROGRAM = """```python
import time

import torch

torch.set_num_threads(1)
budget, width, counts = 512, 768, (1, 2, 4, 8, 16, 32, 64)
queries, keys = torch.randn(2, width, budget).unbind()
for length, repeats in ((16, 200), (1024, 5)):
    rows = torch.randn(length, width)
    best = dict.fromkeys(counts, float("inf"))
    for heads in counts * repeats:
        start = time.process_time()
        q, k = ((rows @ w).view(length, heads, -1).transpose(0, 1) for w in (queries, keys))
        (q @ k.transpose(1, 2) / (budget // heads) ** 0.5).softmax(-1)
        best[heads] = min(best[heads], 1000 * (time.process_time() - start))
    print(length, {heads: round(best[heads], 2) for heads in counts})
```"""

# Compared with reproduction/measured/runs.parquet as it is in commit 552abf6, the earlier grid.
_MEASURED_AGAIN = (
    "The runs of 2026-11-15, those of release 0.1.0, drew the permutation π and the table X of a "
    "seed from one random stream, so the two were not independent (at (64, 16) the rank "
    "correlation of π(m − 1) and the size of the table's first entry was 0.14 over 4,000 seeds; "
    "it is −0.02 now). Since then each has a stream of its own, and all 20,630 runs were trained "
    "again on 2026-11-16 (one H200, commit 552abf6). A spec names its way of drawing (`draws`), "
    "and results of release 0.1.0 keep theirs. Figure 7 was not trained again: its token tables "
    "do not come from a seed, except the Gaussian control of 12 runs, which all have seed 0 and "
    "share its stream with their π.",
    "No verdict changed. Of the 104 thresholds by head count that both grids have, 80 are the "
    "same; the ratio of new to old has mean 0.995 and standard deviation 0.06. The mean F1 of a "
    "configuration rose by 0.0035 on average (mean absolute change 0.0067, 2,794 configurations), "
    "and the error of value retrieval fell by 3 % (137 configurations). Of the 29 points under "
    "max, softmax and sum, these changed their D_K* or h* (old, then new):",
    """| model | point | D_K* | h* |
|---|---|---|---|
| max | (64, 16) | 18, 20 | 2, 4 |
| max | (256, 16) | 160, 160 | 16, 32 |
| max | (512, 32) | 144, 160 | 16, 16 |
| max | (512, 64) | 52, 56 | 4, 4 |
| max | (1024, 32) | 288, 256 | 32, 32 |
| max | (1024, 128) | 44, 40 | 4, 2 |
| max | (4096, 512) | 66, 72 | 2, 2 |
| max | (128, 32), r = 32 | 208, 192 | 16, 16 |
| softmax | (128, 16) | 160, 144 | 16, 16 |
| sum | (128, 32) | 19, 18 | 1, 2 |""",
)


def write_page(root: Path) -> bool:
    """Write the page into a checkout of the repository; whether it changed."""
    path, text = root / PAGE, reproduction_page()
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return True


def _brief(claim: Claim) -> str:
    return f"{claim.brief}; thin evidence" if claim.thin else claim.brief


def reproduction_page() -> str:
    """The text of docs/reproduction.md."""
    made = measured_evidence().provenance
    parts = [
        "# Claims, rules and verdicts",
        f"This page is written by `make docs` from the runs that are shipped with headcount "
        f"({made['runs']:,} runs, {made['date']}, {made['machine']}; Figure 7 has its own) and "
        "from the rules in `src/headcount/report/claims.toml`, version "
        f"{rules_version()}. A test fails if it is out of date.",
        "A verdict follows from the rule alone. A claim is not confirmed if the first condition of "
        "its rule fails, partly confirmed if only the first holds, and confirmed if all hold. Each "
        "rule states how much evidence it needs: with less the evidence is called thin, and the "
        "verdict is “partly” at most. The rules were not registered before the runs. The first of "
        "them were committed together with the results, and each later change is listed below with "
        "the verdict before and after. C15 to C24 were written after the results were known. C8 is "
        "not in use (see K1).",
        "## Verdicts",
        _table(
            ("claim", "verdict", "measured", "date of the rule"),
            [
                (f"{c.id} {rules()[c.id].title}", c.verdict, _brief(c), rules()[c.id].date)
                for c in shipped_claims()
            ],
        ),
        "## The grid measured again",
        *_MEASURED_AGAIN,
        "## Rules changed after the runs",
        "Verdicts before and after a change are those on the runs of 2026-11-15.",
        _table(
            ("claim", "earlier rule", "date, commit", "before", "after", "why it was changed"),
            _changes(rules().values()),
        ),
        "The least evidence that a rule needs was added to all of them on 2026-11-16 (ac8a16c), "
        "also to those with an earlier date. It changed no verdict at the scale of the paper. In "
        "the quick preset C11 fell from “confirmed” to “partly”.",
        "## Rules",
        *(line for claim in shipped_claims() for line in _rule_lines(claim)),
        "## Theorems and lemmas",
        "These follow from arguments and tests, not from runs. The numbers are those of "
        "[deviations.md](deviations.md). The table is kept in "
        "`src/headcount/report/statements.toml`.",
        _table(
            ("statement", "what it says", "verdict", "why", "deviation"),
            [(one.id, one.text, one.verdict, one.why, one.where) for one in statements()],
        ),
        "## The time of a split",
        "The times of C23, in milliseconds of processor time by head count "
        f"({rules()['C23'].measured['machine']}, {rules()['C23'].measured['date']}), come from:",
        _SPLIT_PROGRAM,
    ]
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _changes(found: Iterable[Rule]) -> list[tuple[str, ...]]:
    return [
        (one.id, old.rule, f"{old.date}, {old.commit}", old.before, old.after, old.why)
        for one in found
        for old in one.earlier
    ]


def _rule_lines(claim: Claim) -> list[str]:
    """What the page says of one claim."""
    by = rules()[claim.id]
    needs = listed([f"{least} {name}" for name, least in by.least.items()])
    thin = f" Thin evidence: {claim.thin}." if claim.thin else ""
    return [
        f"### {by.id} {by.title}",
        f"{by.text} ({by.place})",
        f"*Rule of {by.date}:* {by.rule}",
        f"*Evidence it needs:* {needs}." if by.least else f"*Evidence:* {by.without_runs}.",
        f"**{claim.verdict}**: {claim.number}.{thin}",
    ]


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |".replace(
            "| --- ", "|---"
        ).replace("|--- |", "|---|")
        for line in lines
    )


def _wrapped(part: str) -> str:
    """A paragraph in lines of at most 100 columns; tables, titles and programs as they are."""
    if part.startswith(("|", "#", "```")):
        return part
    return fill(part, _COLUMNS, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    if write_page(Path.cwd()):
        print(PAGE)
