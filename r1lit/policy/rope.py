"""The length up to which rotary positions are the same in any call."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig


def rope_limit(config: PretrainedConfig) -> int | None:
    """Return up to how many tokens a policy's rotary frequencies are the same for every row.

    Beyond it ``longrope`` takes its long factors and ``dynamic`` a base of its own for each length,
    for all rows of a call and from that call on: log-probs would depend on a row's neighbours, and
    a rollout's, computed token by token, would not be those of training. None: there is no limit.
    """
    text = config.get_text_config(decoder=True)
    limits = [_limit(text, parameters) for parameters in _parameters(text)]
    return min((limit for limit in limits if limit is not None), default=None)


def beyond_rope_limit(length: int, limit: int) -> str:
    """Return the message about rows that are longer than the limit."""
    return (
        f"policy: a row of {length} tokens is longer than {limit}, where the frequencies of its"
        " rotary embeddings change with the length of a row, so that log-probs would depend on"
        " other rows and rollouts would differ from training; stay within it, or make the"
        " frequencies constant in the policy's config.json (longrope: short_factor equal to"
        " long_factor; dynamic: rope_type linear or yarn)"
    )


def _parameters(text: PretrainedConfig) -> list[dict[str, Any]]:
    """Return the settings of all layers: one dict, or one for each kind of layer."""
    found = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    return [found, *(value for value in found.values() if isinstance(value, dict))]


def _limit(text: PretrainedConfig, parameters: dict[str, Any]) -> int | None:
    kind = str(parameters.get("rope_type", parameters.get("type", "")))
    declared = getattr(text, "max_position_embeddings", None)
    if "dynamic" in kind:
        return declared
    if kind != "longrope" or parameters.get("short_factor") == parameters.get("long_factor"):
        return None
    before = getattr(text, "original_max_position_embeddings", None)
    return parameters.get("original_max_position_embeddings") or before or declared
