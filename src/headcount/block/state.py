"""StackState: all that a stack of block runs carries from step to step, in memory and on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headcount.block.model import Block
from headcount.block.spec import BlockSpec
from headcount.block.weights import Weights, plain_block, stacked
from headcount.errors import InputError
from headcount.files import existing_file, save_tensors
from headcount.shapes import Float, Int

_WEIGHTS = ("weights", "first", "second", "best")
_PER_RUN = ("best_accuracy", "best_step", "diverged")


@dataclass
class StackState:
    """Runs in lockstep.

    A state that `train_blocks` hands out is the trainer's own memory: write or copy it before
    returning.
    """

    specs: list[BlockSpec]
    weights: Weights
    first: Weights  # Adam's moments
    second: Weights
    best: Weights  # the weights at each run's best check
    best_accuracy: Float[Tensor, " runs"]  # −1 before the first check
    best_step: Int[Tensor, " runs"]
    diverged: Int[Tensor, " runs"]  # the first check with weights that are not finite; 0: none
    taken: int = 0  # steps
    seconds: float = 0.0  # of the whole stack
    # (step, every run's validation accuracy)
    history: list[tuple[int, list[float]]] = field(default_factory=list)

    @classmethod
    def initial(cls, specs: Sequence[BlockSpec]) -> StackState:
        """Before the first step."""
        weights, count = stacked(specs), len(specs)
        zeros = [{name: torch.zeros_like(part) for name, part in weights.items()} for _ in range(3)]
        return cls(
            list(specs),
            weights,
            first=zeros[0],
            second=zeros[1],
            best=zeros[2],
            best_accuracy=torch.full((count,), -1.0, dtype=torch.float64),
            best_step=torch.zeros(count, dtype=torch.int64),
            diverged=torch.zeros(count, dtype=torch.int64),
        )

    def copied(self, device: str) -> StackState:
        """The same state in new memory on a device."""
        parts: dict[str, Any] = {
            group: {name: part.to(device, copy=True) for name, part in getattr(self, group).items()}
            for group in _WEIGHTS
        }
        parts |= {name: getattr(self, name).to(device, copy=True) for name in _PER_RUN}
        history = [(step, list(values)) for step, values in self.history]
        return replace(self, specs=list(self.specs), history=history, **parts)

    def block(self, run: int, best: bool = True) -> Block:
        """One run as a plain module: its best check's weights, or the present ones."""
        return plain_block(self.specs[run], self.best if best else self.weights, run)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.safetensors` file, whole or not at all."""
        tensors = {
            f"{group}.{name}": part
            for group in _WEIGHTS
            for name, part in getattr(self, group).items()
        }
        tensors |= {name: getattr(self, name) for name in _PER_RUN}
        about = {
            "specs": json.dumps([spec.to_json() for spec in self.specs]),
            "progress": json.dumps(
                {"taken": self.taken, "seconds": self.seconds, "history": self.history}
            ),
        }
        save_tensors(path, tensors, about)

    @staticmethod
    def runs_in(path: str | os.PathLike[str]) -> list[BlockSpec]:
        """The runs of a file that `save` wrote, without its tensors."""
        try:
            with safe_open(existing_file(path), framework="pt") as file:
                return [
                    BlockSpec.from_json(text)
                    for text in json.loads((file.metadata() or {})["specs"])
                ]
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{path}: is not a state of block runs ({error}); remove it to start them again"
            ) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StackState:
        """Read what `save` wrote."""
        path = existing_file(path)
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
            parts: dict[str, Any] = json.loads(about["progress"]) | {
                name: tensors[name] for name in _PER_RUN
            }
            parts["history"] = [(step, values) for step, values in parts["history"]]
            for group in _WEIGHTS:
                start = f"{group}."
                parts[group] = {
                    name.removeprefix(start): part
                    for name, part in tensors.items()
                    if name.startswith(start)
                }
            return cls(specs=cls.runs_in(path), **parts)
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{path}: is not a state of block runs ({error}); remove it to start them again"
            ) from None
