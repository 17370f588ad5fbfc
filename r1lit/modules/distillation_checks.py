"""Checks of a distillation's settings, and of the data that each of them needs."""

from __future__ import annotations

import math
from typing import Any

from r1lit.objectives import Divergence, SampledReverseKL
from r1lit.policy import Teacher
from r1lit.rollout import Sampling


def check_settings(
    *,
    teacher: Teacher | None,
    divergence: Divergence | SampledReverseKL,
    sft_weight: float,
    logit_weight: float,
    temperature: float,
    on_policy: float,
    sampling: Sampling | None,
) -> None:
    """Check settings that do not depend on the data.

    Raises:
        ValueError: naming the key, its value and what would be right.
    """
    for key, weight in (("sft_weight", sft_weight), ("logit_weight", logit_weight)):
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"{key}: {weight} is not 0 or above; 1 is usual")
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature: {temperature} is not above 0; 1 leaves distributions as is")
    if not 0 <= on_policy <= 1:
        raise ValueError(f"on_policy: {on_policy} is not a share from 0 to 1")
    if not (sft_weight or logit_weight):
        raise ValueError("sft_weight and logit_weight are both 0: there is nothing to learn from")
    if logit_weight and teacher is None:
        raise ValueError(
            f"teacher: null, but logit_weight: {logit_weight} needs its distributions; name one,"
            " such as r1lit.policy.ModelTeacher, or set logit_weight: 0"
        )
    if on_policy and not logit_weight:
        raise ValueError(
            f"logit_weight: 0 leaves nothing to learn from the student's own responses (on_policy:"
            f" {on_policy}); 1 is usual"
        )
    if on_policy and sampling is None:
        raise ValueError(f"sampling: null, but on_policy: {on_policy} generates responses: say how")
    if logit_weight and teacher is not None and not teacher.full_distributions and temperature != 1:
        raise ValueError(
            f"temperature: {temperature} needs the teacher's whole distributions;"
            f" {type(teacher).__name__} returns those of temperature 1"
        )
    if isinstance(divergence, SampledReverseKL) and logit_weight:
        _check_sampled(temperature, on_policy, sampling)


def _check_sampled(temperature: float, on_policy: float, sampling: Sampling | None) -> None:
    if on_policy != 1 or sampling is None:
        raise ValueError(
            f"divergence: SampledReverseKL is right at tokens that the student sampled, not with"
            f" on_policy: {on_policy}; set it to 1, or take ReverseKL"
        )
    if sampling.temperature != temperature or sampling.top_p != 1 or sampling.top_k:
        raise ValueError(
            f"sampling: temperature {sampling.temperature}, top_p {sampling.top_p} and top_k"
            f" {sampling.top_k} are not the distribution of SampledReverseKL: temperature"
            f" {temperature}, top_p 1 and top_k 0"
        )


def check_data(data: Any, on_policy: float) -> None:
    """Check that the data module has what ``on_policy`` learns from.

    Raises:
        ValueError: naming the key to fill.
    """
    if not on_policy and not data.documents.get("train"):
        raise ValueError(
            "data.documents: null, but on_policy: 0 learns from responses that are there already;"
            " give documents, or set on_policy above 0 to learn from data.train's prompts"
        )
    if on_policy and not data.problems.get("train"):
        raise ValueError(
            f"data.train: null, but with on_policy: {on_policy} the student generates responses to"
            " problems; give problems, or set on_policy: 0 to learn from data.documents"
        )
    rollout = data.rollout
    if 0 < on_policy < 1 and rollout.group_size > 1:
        raise ValueError(
            f"data.rollout.group_size: {rollout.group_size} with on_policy: {on_policy} would learn"
            f" each stored response {rollout.group_size} times; set it to 1"
        )
    if on_policy and rollout.num_reserve_prompts:
        raise ValueError(
            f"data.rollout.num_reserve_prompts: {rollout.num_reserve_prompts} are for dynamic"
            " sampling, which distillation has not; set it to 0"
        )
