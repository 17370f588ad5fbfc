"""Gradient checkpointing of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def only_checkpoint(layer: Any) -> None:
    """Let a layer be in training mode, which makes it checkpoint, but not while it computes."""
    layer.training = True
    checkpoint = layer._gradient_checkpointing_func
    if getattr(checkpoint, "only_checkpoints", False):
        return

    def checkpoint_in_evaluation(compute: Callable[..., Any], *args: Any) -> Any:
        def in_evaluation(*args: Any) -> Any:
            training, layer.training = layer.training, False
            try:
                return compute(*args)
            finally:
                layer.training = training

        return checkpoint(in_evaluation, *args)

    checkpoint_in_evaluation.only_checkpoints = True  # type: ignore[attr-defined]
    layer._gradient_checkpointing_func = checkpoint_in_evaluation
