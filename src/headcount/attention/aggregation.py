"""How the scores of the heads are joined (Sections 3 and 8); apart from KeyQuery, which needs torch."""

from typing import Literal

Aggregation = Literal["max", "softmax", "sum"]
