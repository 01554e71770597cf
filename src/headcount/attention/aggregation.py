"""How the scores of the heads are joined (Sections 3 and 8), where torch is not needed."""

from typing import Literal

Aggregation = Literal["max", "softmax", "sum"]
