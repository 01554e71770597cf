"""Claims on costs, which are counted rather than trained: C22 (Appendix B), C23 (Appendix C)."""

from __future__ import annotations

from math import sqrt

from headcount.paper import data as paper
from headcount.report.figures.base import Check, Claim, judged
from headcount.report.formatting import counted, listed, num
from headcount.report.readings.frames import rows
from headcount.report.readings.paper_numbers import paper_value
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence
from headcount.theory.footprint import (
    ALGORITHMS,
    construction_flops,
    footprint,
    score_flops,
    training_flops,
)
from headcount.theory.laws import BUDGET_WIDE

_BUILD, _SPLIT = rule("C22"), rule("C23")


def construction_cost(evidence: Evidence) -> Claim:
    """C22: judged by counts of multiplications and additions, so it needs no runs."""
    spreads = {algorithm: _cost_spread(algorithm) for algorithm in ALGORITHMS}
    wrong = [algorithm for algorithm, spread in spreads.items() if spread > _BUILD["spread"]]
    shares = [_training_share(m, d, steps) for m, d, steps in _points()]
    times = f"Algorithm 1 costs 1/{1 / max(shares):,.0f} to 1/{1 / min(shares):,.0f} of training "
    times += f"at the {counted(len(shares), 'point')} of Table 2"
    over = [f"Algorithm {algorithm} × {num(spreads[algorithm])}" for algorithm in wrong]
    right = listed([str(algorithm) for algorithm in ALGORITHMS if algorithm not in wrong])
    grows = f"over m d_model log m the count of Algorithms {right} does not grow, that of "
    grows += f"{listed(over)} does"
    ends = f"from m = {_BUILD['least_items']:,} to {_BUILD['largest_items']:,}"
    checks = [
        Check(max(shares) <= 1 / _BUILD["less"], times),
        Check(
            not wrong,
            f"{grows} {ends}: Algorithm 2 is m d_model log² m, Algorithm 5 m' d_model log m plus "
            "the colouring",
        ),
    ]
    brief = f"true of Algorithms {right}, not of {listed([str(name) for name in wrong])}; "
    return judged("C22", checks, brief=f"{brief}{times}")


def _points() -> list[tuple[int, int, int]]:
    """(m, d_model, steps) of Table 2."""
    return list(rows(paper.table_2(), "items", "d_model", "steps"))


def _cost_spread(algorithm: int) -> float:
    """By how much the count over m d_model log m grows from the least m to the largest."""
    least, largest = (int(_BUILD[name]) for name in ("least_items", "largest_items"))

    def cost(items: int) -> float:
        # Construction I has one-hot rows, hence d_model = m. Algorithm 5 is for general graphs.
        width = items if algorithm == 3 else items // int(_BUILD["compressed"])
        edges = round(items * sqrt(items)) if algorithm == 5 else items
        return construction_flops(algorithm, items, width, edges)

    def law(items: int) -> float:
        return construction_flops(1, items, items // int(_BUILD["compressed"]), items)

    return (cost(largest) / law(largest)) / (cost(least) / law(least))


def _training_share(items: int, d_model: int, steps: int) -> float:
    """The cost of Algorithm 1 over that of one run of training, at the D_K of the paper's law."""
    budget, heads = BUDGET_WIDE(items, items, d_model), max(1, items // d_model)
    length = int(paper_value("protocol.length"))
    built = construction_flops(1, items, d_model, items, key_dim=budget / heads)
    return built / training_flops(d_model, round(budget), length, steps)


def split_cost(evidence: Evidence) -> Claim:
    """C23: judged by the count, and by the times in the file of rules."""
    measured = _SPLIT.measured
    heads, budget, width = measured["heads"], measured["budget"], measured["d_model"]
    counts, times, parts = [], [], []
    for name in ("short", "long"):
        length = measured[name]["length"]
        channel = footprint(width, budget).context_flops(length)
        flops = [channel + score_flops(count, length) for count in heads]
        taken = measured[name]["milliseconds"]
        counts.append(max(flops) / min(flops))
        times.append(max(taken) / min(taken))
        parts.append(f"× {num(times[-1])} at ℓ = {length:,}")
    count = f"the count varies at most × {num(max(counts))} from h = {heads[0]} to {heads[-1]}"
    time = f"the time {listed(parts)} ({measured['machine']}, {measured['date']})"
    spread = _SPLIT["spread"]
    checks = [Check(max(counts) <= spread, count), Check(max(times) <= spread, time)]
    brief = f"{count}, the time {listed(parts)}"
    return judged("C23", checks, brief=brief)
