"""A piece of work, given in the same form to r1lit and to a peer.

P prompts   G responses per prompt   B = P*G rows   T response tokens

Standard library only: vLLM's own Python imports this file too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Precision = Literal["fp32", "bf16-mixed", "bf16"]


def weights_dtype(precision: Precision) -> str:
    """Return the dtype of the weights, by its name in torch."""
    return "bfloat16" if precision == "bf16" else "float32"


@dataclass(frozen=True, kw_only=True)
class Training:
    """What both kinds of work have.

    ``model`` is a Hugging Face directory. ``precision`` is that of weights and arithmetic: "fp32",
    "bf16-mixed" (float32 weights under autocast) or "bf16" (weights too). ``decay_updates`` lets
    the learning rate fall to a tenth over so many updates.
    """

    model: str
    precision: Precision = "fp32"
    learning_rate: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    decay_updates: int = 0
    max_grad_norm: float = 1.0
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Work(Training):
    """P prompts of G responses, whose lengths are given, and the update that follows.

    ``lengths`` holds one forced length a row, EOS included, prompt-major; None lets responses end
    by themselves. ``problems`` says which are asked; see ``problems.py``.
    """

    num_prompts: int
    group_size: int
    max_tokens: int
    lengths: tuple[int, ...] | None
    problems: Literal["small world", "sums"] = "small world"
    temperature: float = 1.0
    train_batch_size: int = 64
    beta: float = 0.0
    epsilon: float = 0.2

    def __post_init__(self) -> None:
        if self.lengths is not None:
            if len(self.lengths) != self.num_rows:
                raise ValueError(f"lengths: {len(self.lengths)} of them for {self.num_rows} rows")
            if not all(1 <= length <= self.max_tokens for length in self.lengths):
                raise ValueError(f"lengths: not all are from 1 to max_tokens, {self.max_tokens}")
        if self.num_rows % self.train_batch_size:
            raise ValueError(
                f"train_batch_size: {self.train_batch_size} does not divide {self.num_rows} rows"
            )

    @property
    def num_rows(self) -> int:
        """B, the responses of an iteration."""
        return self.num_prompts * self.group_size

    @property
    def forced(self) -> tuple[int, ...]:
        """The forced lengths, where there are some."""
        assert self.lengths is not None
        return self.lengths

    @property
    def updates_per_iteration(self) -> int:
        """Optimiser steps of an iteration."""
        return self.num_rows // self.train_batch_size

    def describe(self) -> dict[str, Any]:
        """Return what an entry of the results says about the work."""
        names = ("num_prompts", "group_size", "max_tokens", "precision", "train_batch_size", "beta")
        mean = round(sum(self.lengths) / self.num_rows, 1) if self.lengths else None
        return {**{name: getattr(self, name) for name in names}, "mean_tokens": mean}


@dataclass(frozen=True, kw_only=True)
class SupervisedWork(Training):
    """Documents of given lengths, BOS and EOS included, all of them in every update.

    So both sides train on the same tokens in each step, whether they pack them into rows of
    ``max_seq_len`` or not.
    """

    lengths: tuple[int, ...]
    max_seq_len: int
    precision: Precision = "bf16-mixed"

    def __post_init__(self) -> None:
        if not all(3 <= length <= self.max_seq_len for length in self.lengths):
            raise ValueError(f"lengths: not all are from 3 to max_seq_len, {self.max_seq_len}")

    def describe(self) -> dict[str, Any]:
        """Return what an entry of the results says about the work."""
        return {
            "num_documents": len(self.lengths),
            "mean_tokens": round(sum(self.lengths) / len(self.lengths), 1),
            "max_seq_len": self.max_seq_len,
            "precision": self.precision,
        }
