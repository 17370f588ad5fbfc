"""The cost of the arithmetic alone: model FLOPs of an update, and the roofline of decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PretrainedConfig


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of an architecture that decide about its cost; tied embeddings count once."""

    num_parameters: int
    num_layers: int
    attention_size: int
    kv_size: int

    @staticmethod
    def of(config: PretrainedConfig) -> Shape:
        """Return the shape of a configuration, without making its weights."""
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        head = getattr(config, "head_dim", None)
        head = head or config.hidden_size // config.num_attention_heads
        return Shape(
            num_parameters=sum(parameter.numel() for parameter in model.parameters()),
            num_layers=config.num_hidden_layers,
            attention_size=config.num_attention_heads * head,
            kv_size=config.num_key_value_heads * head,
        )


def training_flops(shape: Shape, lengths: Sequence[int]) -> float:
    """Return the FLOPs of forward and backward over sequences of these lengths.

    6 N a token, and causal attention: scores and values are 2 d L^2 each in the forward, of which
    half is masked, and twice that in the backward: 6 d L^2 a layer. Only real tokens are counted;
    padding, recomputation, the reference and the old policy are not useful work.
    """
    tokens = sum(lengths)
    squares = sum(length * length for length in lengths)
    attention = 6 * shape.num_layers * shape.attention_size * squares
    return 6.0 * shape.num_parameters * tokens + attention


def update_flops(shape: Shape, prompt_lengths: Sequence[int], lengths: Sequence[int]) -> float:
    """Return the FLOPs of forward and backward over groups of responses, prompt-major.

    As ``training_flops``, each prompt counted once: what a group shares need not be computed again.
    """
    group = len(lengths) // len(prompt_lengths)
    responses = [
        training_flops(shape, [prompt_lengths[row // group] + length])
        - training_flops(shape, [prompt_lengths[row // group]])
        for row, length in enumerate(lengths)
    ]
    return training_flops(shape, prompt_lengths) + sum(responses)


def decode_seconds(
    shape: Shape,
    prompt_lengths: Sequence[int],
    lengths: Sequence[int],
    *,
    bytes_per_number: int,
    bytes_per_second: float,
    flops_per_second: float,
) -> float:
    """Return the roofline of a rollout: the least seconds that memory or arithmetic allow.

    Each step reads all weights once and the keys and values of the rows still alive, and computes
    2 N a row; the slower of the two counts. Each prompt is prefilled once for its group.
    """
    group = len(lengths) // len(prompt_lengths)
    prompt_B = np.repeat(np.asarray(prompt_lengths, dtype=np.float64), group)
    length_B = np.asarray(lengths)
    weights = float(shape.num_parameters)
    context = 2 * shape.num_layers * shape.kv_size
    seconds = 2 * weights * float(np.sum(prompt_lengths)) / flops_per_second
    # the first token comes with the prefill, each later one from a step of its own
    for step in range(1, int(length_B.max())):
        alive_B = length_B > step
        seen = float((prompt_B[alive_B] + step).sum())
        num_bytes = bytes_per_number * (weights + context * seen)
        flops = 2 * weights * float(alive_B.sum())
        flops += 4 * shape.num_layers * shape.attention_size * seen
        seconds += max(num_bytes / bytes_per_second, flops / flops_per_second)
    return seconds
