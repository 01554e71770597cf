"""RunResult: the outcome of one training run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError
from headcount.notebook import html_table
from headcount.training.spec import RunSpec


@dataclass(frozen=True)
class RunResult:
    """One finished run.

    All but `seconds` and `versions` follows from the spec, the engine and the kind of machine.
    """

    spec: RunSpec
    value: float  # test micro-F1, or mean squared error for `value`; nan where the run diverged
    steps: int  # taken
    threshold: float  # τ learned
    history: tuple[tuple[int, float], ...]  # (step, validation metric) at every check
    diverged: int | None  # the first step with a number that is not finite
    engine: str
    device: str
    seconds: float  # its share of the wall time
    versions: dict[str, str] = field(default_factory=dict)
    weights: KeyQuery | None = field(default=None, compare=False, repr=False)  # on request

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Write the weights to a `.safetensors` file, with notes on the run that trained them."""
        if self.weights is None:
            raise InputError(
                f"{path}: the run kept no weights; train with weights=True, and if it diverged, "
                "with another seed or learning rate"
            )
        notes = {
            "method": "train",
            "seed": str(self.spec.seed),
            "items": str(self.spec.items),
            "variant": self.spec.variant,
            "context_length": str(self.spec.length),
            "steps": str(self.steps),
        }
        replace(self.weights, notes=notes).save(path)


class RunResults(list[RunResult]):
    """A list of results that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        names = ("variant", "degree", "items", "d_model", "heads", "key_dim", "seed")
        rows = [
            [getattr(run.spec, name) for name in names] + [run.value, run.steps] for run in self
        ]
        return html_table((*names, self[0].spec.metric if self else "value", "steps"), rows)
