"""Keys and classes that were renamed: an old name is an error that gives the new one.

CHANGELOG.md lists the same.
"""

from __future__ import annotations

import importlib
from typing import Any

_GRADES = {"judge": "grader"}
_FORMAT = {"opened": "think_prefilled"}

KEYS: dict[str, dict[str, str]] = {
    "R1DataModule": {
        "template": "prompts.template",
        "wording": "prompts.wording",
        "max_prompt_tokens": "prompts.max_tokens",
        "prompts_per_iteration": "rollout.prompts_per_iteration",
        "group_size": "rollout.group_size",
        "num_reserve_prompts": "rollout.num_reserve_prompts",
        "max_seq_len": "packing.max_seq_len",
        "row_length": "packing.max_seq_len",
        "train_batch_size": "packing.train_batch_size",
        "rows_per_update": "packing.train_batch_size",
        "loss_on": "packing.loss_on",
        "too_long": "packing.too_long",
        "num_samples": "evaluation.num_samples",
        "validation_group_size": "evaluation.num_samples",
        "validation_prompts_per_batch": "evaluation.prompts_per_batch",
    },
    "PreferenceDataModule": {"sees": "score_on", "examples_per_update": "train_batch_size"},
    "GRPOModule": {
        **_GRADES,
        "rows_per_update": "train_batch_size",
        "micro_batch_size": "micro_batch_tokens",
    },
    "SFTModule": {"micro_batch_size": "micro_batch_tokens"},
    "DistillationModule": _GRADES,
    "EvaluationModule": {**_GRADES, "measures": "eval_metrics"},
    "RejectionSampling": {"form": "response_template"},
    "ServerTeacher": {"form": "logprobs_format"},
    "Format": _FORMAT,
    "SpecialTokenFormat": _FORMAT,
    "LanguageConsistency": _FORMAT,
    "RewardModel": {**_FORMAT, "sees": "score_on"},
}
"""Old key -> new key, both of a class's arguments."""

_WORLD = (
    "InstructionFollowing",
    "TrueHelpfulness",
    "TrueSafety",
    "WorldChain",
    "WorldConversations",
    "WorldCorpus",
    "WorldCountdown",
    "WorldRequests",
)
CLASSES = {
    "r1lit.curation.JudgedRight": "r1lit.curation.CorrectByJudge",
    "r1lit.curation.Readable": "r1lit.curation.LanguageConsistent",
    "r1lit.curation.ToR1Form": "r1lit.curation.ToR1Template",
    "r1lit.rewards.Only": "r1lit.rewards.ConditionalReward",
    "r1lit.verifiers.Judge": "r1lit.verifiers.Grader",
    "r1lit.optimizers.OffloadedAdamW": "torch.optim.AdamW with fused: true",
    "r1lit.rollout.PolicyEngine": "r1lit.rollout.InProcessEngine",
    "r1lit.data.world.WorldJudge": "r1lit.worlds.WorldGrader",
    **{f"r1lit.data.world.{name}": f"r1lit.worlds.{name}" for name in _WORLD},
}
"""Old class path -> new one. An old path that can be imported still is taken."""


def refuse_old_names(config: Any, where: str = "") -> None:
    """Look for old class paths and keys anywhere in a configuration.

    Raises:
        ValueError: naming where it is, the old name and the new one.
    """
    if isinstance(config, list):
        for index, item in enumerate(config):
            refuse_old_names(item, f"{where}[{index}]")
    if not isinstance(config, dict):
        return
    class_path, arguments = config.get("class_path"), config.get("init_args")
    if isinstance(class_path, str):
        refuse_old_class(where, class_path)
        for key in arguments if isinstance(arguments, dict) else ():
            refuse_old_key(where, class_path, key)
    for key, value in config.items():
        inner = where if key == "init_args" else f"{where}.{key}".lstrip(".")
        refuse_old_names(value, inner)


def refuse_old_class(where: str, class_path: str) -> None:
    """Check one class path.

    Raises:
        ValueError: naming the new one.
    """
    new = CLASSES.get(class_path)
    if new is not None and not _can_be_imported(class_path):
        raise ValueError(f"{where}: {class_path} is now {new}")


def refuse_old_key(where: str, class_path: str, key: str) -> None:
    """Check one key of a class's arguments.

    Raises:
        ValueError: naming the new one.
    """
    new = KEYS.get(class_path.split(".")[-1], {}).get(key)
    if new is not None:
        raise ValueError(f"{where}.{key}: this key is now {where}.{new}")


def _can_be_imported(class_path: str) -> bool:
    module, _, name = class_path.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False
