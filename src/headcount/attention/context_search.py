"""Does some context of ℓ items break a pair? Branch and bound over sets of contexts.

Beyond the paper. `context_cuts` says what a case and a cut are. A case that a cut does not close is
split in two, until all are closed, a context breaks its pair, or the allowance is spent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from headcount.attention.context_cuts import Cases, Cut, rival_sums, weigh
from headcount.attention.softmax_bounds import Logits
from headcount.shapes import Bool, Float, Int

# A pair is closed this share of the way from τ to the worst context found: the margin it keeps.
_SHARE = 0.125
_CLIMB = 4  # contexts of a pair that are looked at first
# So many pairs of a batch, the nearest to breaking, have so many items exchanged.
_NEAREST, _SLOTS = 16, 16
_CHUNK = 2**20  # numbers (cases × heads × items) worked on at once
_LARGEST = 600.0  # exponents of a_t end here, so that no sum overflows; `_slack` covers the change
_LOOSE = 1e-9  # ranges of s are widened by this share, more than the rounding of any sum


@dataclass
class ContextSearch(ABC):
    """The search on pairs of one kind, all edges or all non-edges.

    A computed score on the right side of `sure` is truly right, one on the wrong side of `clear`
    is truly wrong; τ is between the two, and they are as far apart as rounding can move a score.
    """

    rivals: Float[Tensor, "pairs heads items"]  # a_t of every pair and head
    inside: Bool[Tensor, "pairs items"]  # i and j
    length: int
    sure: float
    clear: float
    worst: Float[Tensor, " pairs"]  # the worst A_ij found
    broken: Int[Tensor, " length"] | None = None  # a context that breaks a pair
    cases: int = 0  # looked into

    edges: ClassVar[bool]
    steps: ClassVar[int]  # cuts of a case before it is split

    @classmethod
    def of(
        cls,
        logits: Logits,
        sources: Int[Tensor, " pairs"],
        targets: Int[Tensor, " pairs"],
        threshold: float,
        length: int,
    ) -> ContextSearch:
        """Set up the pairs (sources[p], targets[p])."""
        pair = torch.arange(len(sources), device=sources.device)
        scores = torch.stack([logits.rows(head, sources) for head in range(logits.heads)], 1)
        own = scores[pair, :, targets]
        # Relative to the pair's own logit: A_ij is then Σ_k 1/s_k, and s_k ≥ 1 since j is inside.
        rivals = (scores - own[:, :, None]).clamp_(-_LARGEST, _LARGEST).exp_()
        inside = torch.zeros(len(pair), logits.items, dtype=torch.bool, device=sources.device)
        inside[pair, sources] = inside[pair, targets] = True
        sure, clear = logits.above(threshold), logits.below(threshold)
        lines = (sure, clear) if cls.edges else (clear, sure)
        unknown = torch.full_like(own[:, 0], torch.inf if cls.edges else -torch.inf)
        return cls(rivals, inside, length, *lines, unknown)

    def run(self, allowance: int) -> Bool[Tensor, " pairs"]:
        """Which pairs stay open after a few contexts each and up to `allowance` cases."""
        waiting = self.climb()
        chunk = max(1, _CHUNK // self.rivals[0].numel())
        while len(waiting) and self.broken is None:
            if self.cases + len(waiting[:chunk]) > allowance:
                break
            now, waiting = waiting[:chunk], waiting[chunk:]
            self.cases += len(now)
            waiting = waiting.joined(*self.split(self.narrow(now)))
            # A pair with a context in the band that rounding leaves open can never be closed.
            waiting = waiting[self._right(self.worst, self.sure)[waiting.pair]]
        still_open = ~self._right(self.worst, self.sure)
        still_open[waiting.pair] = True
        return still_open

    def levels(self) -> Float[Tensor, " pairs"]:
        """Where each pair is closed: at τ, and a share of the way to the worst context found."""
        return self.sure + _SHARE * (self.worst - self.sure)

    def climb(self) -> Cases:
        """One case per pair, with all its contexts, and a first look at a few bad ones.

        Each context looked at is the worst to first order at the sums s_k of the last.
        """
        total = self.rivals.sum(2)
        sums = total * (self.length / self.rivals.shape[2])
        pair = torch.arange(len(total), device=total.device)
        contexts = torch.empty(len(total), self.length, dtype=torch.int64, device=total.device)
        for _ in range(_CLIMB):
            weights = weigh(sums**-2, self.rivals).masked_fill_(
                self.inside, torch.inf if self.edges else -torch.inf
            )
            contexts = weights.topk(self.length, largest=self.edges).indices
            sums = self.look(pair, contexts, self.rivals)
        nearest = self.worst.topk(min(_NEAREST, len(self.worst)), largest=not self.edges).indices
        self.exchange(nearest, contexts[nearest])
        whole = torch.zeros_like(self.inside)
        return Cases(
            pair, self.inside, whole, torch.ones_like(total), total * (1 + _LOOSE), contexts
        )

    def exchange(self, pair: Int[Tensor, " some"], contexts: Int[Tensor, "some length"]) -> None:
        """Replace each of the last few items of a context by the worst item there is."""
        rivals = self.rivals[pair]
        for slot in range(self.length - 1, max(0, self.length - _SLOTS), -1):
            others = torch.cat([contexts[:, :slot], contexts[:, slot + 1 :]], 1)
            scores = (rival_sums(rivals, others)[:, :, None] + rivals).reciprocal_().sum(1)
            scores.scatter_(1, others, torch.inf if self.edges else -torch.inf)
            item = scores.argmin(1) if self.edges else scores.argmax(1)
            given = self.inside[pair].gather(1, contexts[:, slot, None])[:, 0]
            contexts[:, slot] = torch.where(given, contexts[:, slot], item)
        self.look(pair, contexts, rivals)

    def look(
        self,
        pair: Int[Tensor, " some"],
        contexts: Int[Tensor, "some length"],
        rivals: Float[Tensor, "some heads items"],
    ) -> Float[Tensor, "some heads"]:
        """Score pairs in one context each and return the sums s_k.

        The worst score of each pair is kept, and the first context that breaks one.
        """
        sums = rival_sums(rivals, contexts)
        scores = sums.reciprocal().sum(1)
        self.worst = self.worst.scatter_reduce(0, pair, scores, "amin" if self.edges else "amax")
        wrong = (~self._right(scores, self.clear)).nonzero()
        if len(wrong) and self.broken is None:
            self.broken = contexts[int(wrong[0])]
        return sums

    def narrow(self, cases: Cases) -> Cases:
        """Cut each case a few times; those that stay."""
        rivals = self.rivals[cases.pair]
        for step in range(self.steps):
            cases, cuts = self.cut(cases, rivals, step)
            stays = (cases.low <= cases.high).all(1)
            for cut in cuts:
                closed, inside, outside = cut.by_case()
                cases.inside, cases.outside = cases.inside | inside, cases.outside | outside
                stays &= ~closed
            stays &= ~(cases.inside & cases.outside).any(1) & (cases.inside.sum(1) <= self.length)
            cases, rivals = cases[stays], rivals[stays]
        return cases

    def _right(self, scores: Float[Tensor, " n"], line: float) -> Bool[Tensor, " n"]:
        return scores > line if self.edges else scores <= line

    @abstractmethod
    def cut(
        self, cases: Cases, rivals: Float[Tensor, "cases heads items"], step: int
    ) -> tuple[Cases, list[Cut]]:
        """Cuts that every breaking context obeys; the context of the last one is scored."""

    @abstractmethod
    def split(self, cases: Cases) -> tuple[Cases, Cases]:
        """Two cases for each, which cover it."""


class EdgeSearch(ContextSearch):
    """Edges, which break when A_ij ≤ level."""

    edges, steps = True, 12

    def cut(
        self, cases: Cases, rivals: Float[Tensor, "cases heads items"], step: int
    ) -> tuple[Cases, list[Cut]]:
        """The tangent; its point takes Frank–Wolfe steps to the least A_ij over mixed contexts."""
        point = cases.high
        budget = self.levels()[cases.pair] - 2 * point.reciprocal().sum(1)
        weights = -weigh(point**-2, rivals)
        tangent = Cut.of(weights, budget + _slack(rivals), cases.inside, cases.outside, self.length)
        sums = self.look(cases.pair, tangent.chosen, rivals)
        point = point + (sums - point) * (2 / (step + 2))
        return replace(cases, high=point, context=tangent.chosen), [tangent]

    def split(self, cases: Cases) -> tuple[Cases, Cases]:
        """With and without the free item of the last context that weighs most."""
        weights = weigh(cases.high**-2, self.rivals[cases.pair]).gather(1, cases.context)
        free = weights.masked_fill(cases.inside.gather(1, cases.context), -torch.inf)
        item = cases.context.gather(1, free.argmax(1, keepdim=True))
        inside, outside = cases.inside.scatter(1, item, True), cases.outside.scatter(1, item, True)
        return replace(cases, inside=inside), replace(cases, outside=outside)


class NonEdgeSearch(ContextSearch):
    """Non-edges, which break when A_ij > level."""

    edges, steps = False, 2

    def cut(
        self, cases: Cases, rivals: Float[Tensor, "cases heads items"], step: int
    ) -> tuple[Cases, list[Cut]]:
        """Each head's own range, then the chords over it."""
        slack, level = _slack(rivals), self.levels()[cases.pair]
        inside, outside = (
            part[:, None].expand_as(rivals) for part in (cases.inside, cases.outside)
        )
        ranges = Cut.of(rivals, cases.high, inside, outside, self.length)
        low = torch.maximum(cases.low, ranges.least * (1 - _LOOSE))
        # A_ij > level needs 1/s_k > level − Σ of the other heads' 1/low: an upper end for s_k.
        others = low.reciprocal().sum(1, keepdim=True) - low.reciprocal()
        share = level[:, None] - others - slack
        high = torch.where(
            share > 0, torch.minimum(cases.high, share.reciprocal() * (1 + _LOOSE)), cases.high
        )
        budget = (low.reciprocal() + high.reciprocal()).sum(1) - level
        weights = weigh((low * high).reciprocal(), rivals)
        chord = Cut.of(weights, budget + slack, cases.inside, cases.outside, self.length)
        self.look(cases.pair, chord.chosen, rivals)
        return replace(cases, low=low, high=high, context=chord.chosen), [ranges, chord]

    def split(self, cases: Cases) -> tuple[Cases, Cases]:
        """Divide the range of the head whose chord is furthest from 1/s_k.

        The cut is half-way between the range's geometric middle and s_k: the chord then touches
        1/s near the context that was chosen, and neither part stays as wide as before.
        """
        low, high, sums = cases.low, cases.high, rival_sums(self.rivals[cases.pair], cases.context)
        gap = low.reciprocal() + high.reciprocal() - sums / (low * high) - sums.reciprocal()
        head = gap.argmax(1, keepdim=True)
        at = (((low * high).sqrt() + sums.clamp(low, high)) / 2).gather(1, head)
        below, above = high.scatter(1, head, at), low.scatter(1, head, at)
        return replace(cases, high=below), replace(cases, low=above)


def _slack(rivals: Float[Tensor, "cases heads items"]) -> float:
    """More than rounding and the end of exponents can move A_ij = Σ_k 1/s_k.

    A cut closes a case only where all its contexts keep A_ij this far on the right side of `level`.

    Rounding: 1/s_k ≤ 1 since j is inside, and the sum over h heads is off by less than h²·2⁻⁵².
    Exponents: let s be the true sum and s' the one with each a_t moved into e^±600. Where some
    a_t > e^600, both sums are at least e^600, and 1/s and 1/s' at most e^−600. Otherwise s' exceeds
    s by at most ℓ·e^−600, and as both are at least 1, so do 1/s and 1/s' differ at most. Over heads
    that is h·ℓ·e^−600 < h·ℓ·2⁻⁸⁶⁵: far below h·2⁻⁴⁰, but not below `TINY` = 2⁻⁹⁰⁰, so that a τ
    near e^−600 is decided by this slack alone.
    """
    return rivals.shape[1] * 2.0**-40
