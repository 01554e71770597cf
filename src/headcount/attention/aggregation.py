"""How the scores of the heads are joined (Sections 3 and 8), where torch is not needed."""

from typing import Literal

Aggregation = Literal["max", "softmax", "sum"]  # of the paper, for which bounds are stated
# Section 9 asks for others too: t·log Σ_k exp(s_k/t) is max for t → 0, and for large t the mean of
# the scores plus t·log h.
AnyAggregation = Literal["max", "softmax", "sum", "logsumexp"]
