"""Checks that an engine can be trained with."""

from __future__ import annotations

from r1lit.rollout.engine import RolloutEngine
from r1lit.rollout.sampling import Sampling


def check_trains(
    engine: RolloutEngine, sampling: Sampling, keep_sampling_mask: bool = False
) -> None:
    """Check that a policy can be trained on what the engine generates.

    Raises:
        ValueError: if completions have no tokens, new weights do not reach the sampler, or
            log-probs would not be those of the policy.
    """
    can, name = engine.capabilities, type(engine).__name__
    instead = "use r1lit.rollout.InProcessEngine"
    if not can.tokens:
        raise ValueError(
            f"engine: {name} returns no token ids and log-probs, which training needs; {instead}"
        )
    if can.weights == "fixed":
        raise ValueError(
            f"engine: {name} cannot be given the weights that each update makes, which training"
            f" needs; {instead}"
        )
    if can.log_probs == "constrained":
        raise ValueError(
            f"engine: {name} leaves tokens out by a schema, so its log-probs are not the policy's:"
            f" it is for r1lit test, validate and predict; in training {instead}"
        )
    for key, value in sampling.cuts.items():
        if keep_sampling_mask and can.log_probs != "whole or kept":
            raise ValueError(
                f"sampling.{key}: {value} leaves tokens out, and {name} does not say which ones, as"
                f" keep_sampling_mask needs; {instead}, or leave it out in training"
            )
        if can.log_probs == "kept":
            raise ValueError(
                f"sampling.{key}: {value} leaves tokens out, and {name} returns"
                " log-probs among the others alone, not the policy's; leave it out in training"
            )
