"""Settings that may stand in several places of a configuration, asked for by name.

A key is looked for in the whole of ``model``: the rules do not know whether it is the module's own,
or that of something that the module is given, as a collector. Lists of steps and of terms are
searched by class. Run folders of earlier versions have the module's own keys, and are read too.
Only this file names such keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from r1lit.doctor.run import Run

RATIO_OF_RESPONSE = ("GSPO", "GSPOToken", "GRPOSequence")
"""Objectives whose clip is of a whole response's ratio."""
TOKEN_RATIOS = ("GRPO", "DrGRPO", "DAPO", "PPO", "GMPO")
"""Objectives whose clip is of each token's ratio, published with 0.1 and more."""


def places(node: Any, name: str, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each place of a key in a part of a configuration, and its value, outermost first."""
    if not isinstance(node, dict):
        return
    node = node.get("init_args") or {} if "class_path" in node else node
    if name in node:
        yield f"{path}.{name}", node[name]
    for key, value in node.items():
        yield from places(value, name, f"{path}.{key}")


def place(run: Run, name: str) -> tuple[str, Any]:
    """Return where a key of the model is set to something, and its value; None where it is not."""
    run.asked["config.yaml"] = bool(run.config)
    found = places(run.config.get("model"), name, "model")
    return next((at for at in found if at[1]), (f"model.{name}", None))


def parts(run: Run, key: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of a class in a list of the configuration: its place, and its settings."""
    listed = run.setting(key)
    for entry in listed if isinstance(listed, list) else []:
        path = entry if isinstance(entry, str) else entry.get("class_path", "")
        if path.rsplit(".", 1)[-1] == name:
            yield f"{name} in {key}", {} if isinstance(entry, str) else entry.get("init_args") or {}


def max_staleness(run: Run) -> tuple[str, int]:
    """Return how many iterations old a rollout may be, with its key."""
    key, value = place(run, "max_staleness")
    return key, int(value or 0)


def correction(run: Run) -> bool:
    """Return whether tokens are weighed by how much sampler and policy differ."""
    step = next(parts(run, "model.steps", "Correction"), None)
    return step is not None or bool(place(run, "correction")[1])


def is_corrected(run: Run) -> bool:
    """Return whether the run weighs, or leaves out, tokens whose sampler is not the policy."""
    threshold = run.setting("model.objective.off_policy_threshold")  # 0.0 is one too
    return correction(run) or threshold is not None


def kl_weights(run: Run) -> list[tuple[str, float]]:
    """Return the weights of KL penalties to a reference, in the loss and in the reward."""
    if re.search("DPO|Distillation|SFT|Reward", run.class_of("model")):  # another beta
        return []
    beta = "model.objective.beta", run.setting("model.objective.beta")
    steps = [(key, own.get("beta")) for key, own in parts(run, "model.steps", "KLInReward")]
    found = [beta, place(run, "kl_in_reward"), *steps]
    return [(key, float(value or 0.0)) for key, value in found]


def entropy_bonus(run: Run) -> tuple[str, float]:
    """Return the weight of a bonus for entropy as it is set, with its key; 0 without one."""
    for key, own in parts(run, "model.objective.terms", "EntropyBonus"):
        return f"weight of {key}", float(own.get("weight", 1e-3))
    key, value = place(run, "entropy")
    options = value.get("init_args", value) if isinstance(value, dict) else {}
    return f"{key}.weight", float(options.get("weight", 1e-3)) if value else 0.0


def has_critic(run: Run) -> bool:
    """Return whether a critic gives the baseline, so that groups need none."""
    step = next(parts(run, "model.steps", "Critic"), None)
    return (
        step is not None
        or "PPO" in run.class_of("model")
        or bool(run.values("train/explained_variance"))
    )


def ratio_of_response(run: Run) -> bool:
    """Return whether the objective clips whole responses."""
    return run.class_of("model.objective") in RATIO_OF_RESPONSE


def ratio_of_token(run: Run) -> bool:
    """Return whether the objective clips each token, as published with 0.1 and more."""
    return run.class_of("model.objective") in TOKEN_RATIOS
