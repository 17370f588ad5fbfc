"""Contents of a policy's checkpoint, and checks of one that is loaded.

All of a policy, or only what is trained if others are frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from r1lit.policy.adapter import Adapter
from r1lit.policy.source import ModelSource, policy_fingerprint
from r1lit.protocols import RefreshesReference

BASE = "base_policy"


def skip_frozen_weights(module: nn.Module, adapter: Adapter | None) -> None:
    """Leave the weights that an adapter freezes out of a module's state, saved or loaded."""
    if adapter is None:
        return
    names = {f"policy.model.{name}" for name in adapter.frozen_names}

    def leave_out(_: nn.Module, state: dict[str, Any], prefix: str, __: Any) -> None:
        for name in names:
            del state[prefix + name]

    def ask_for_none(_: nn.Module, incompatible: Any) -> None:
        missing = incompatible.missing_keys
        missing[:] = [name for name in missing if name not in names]

    module.register_state_dict_post_hook(leave_out)
    module.register_load_state_dict_post_hook(ask_for_none)


def base_digest(source: ModelSource) -> dict[str, Any]:
    """Return a checkpoint's digest of the files of the policy under an adapter."""
    return {BASE: policy_fingerprint(source.base)}


def check_same_base(source: ModelSource, checkpoint: Mapping[str, Any]) -> None:
    """Raise a ValueError if an adapter was trained on other weights, as far as files tell."""
    base = source.base
    if checkpoint.get(BASE) not in (None, policy_fingerprint(base)):
        raise ValueError(
            f"ckpt_path: the adapter was trained on other weights than {base} has now; restore"
            " them, or start a new run in another folder"
        )


def prepare_refreshed_reference(module: nn.Module, saved_state: Mapping[str, Tensor]) -> None:
    """Make a refreshed reference of an adapter, so that a saved one can be loaded into it."""
    has_one = any(name.startswith("reference.") for name in saved_state)
    if has_one and isinstance(module, RefreshesReference):
        module.refresh_reference()


def check_same_policy(
    saved_state: Mapping[str, Tensor], own_state: Mapping[str, Tensor], path: str
) -> None:
    """Raise a ValueError that names a weight that differs, and how many others do."""
    own = {name: tuple(value.shape) for name, value in own_state.items()}
    saved = {name: tuple(value.shape) for name, value in saved_state.items()}
    differ = [n for n in sorted({*own, *saved}) if own.get(n) != saved.get(n)]
    if differ and all(name.startswith("reference.") for name in differ):
        change = (
            "has a reference, and this run none: objective.beta was above 0, or a step read it"
            if differ[0] in saved
            else "has no reference, and this run one: objective.beta was 0, and no step read it"
        )
        raise ValueError(
            f"ckpt_path: the checkpoint {change} when it was written; keep it so, or begin again in"
            " another folder"
        )
    if differ:
        name = differ[0]
        was, now = saved.get(name, "not there"), own.get(name, "not there")
        raise ValueError(
            f"ckpt_path: the checkpoint is of another policy than {path}: {name} was {was} and is"
            f" {now}, {len(differ) - 1} others differ; resume with the policy and objective that it"
            " was written with, or begin again in another folder"
        )
