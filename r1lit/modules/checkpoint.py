"""What a checkpoint holds of a policy: all of it, or what is trained beside frozen weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from r1lit.evaluation.provenance import policy_fingerprint
from r1lit.policy.adapter import base_of

BASE = "base_policy"


def leave_out_frozen(module: Any, checkpoint: dict[str, Any]) -> None:
    """Take weights that an adapter leaves as they are out, and put a digest of their files in."""
    if module.adapter is None:
        return
    for name in module.adapter.frozen_names:
        del checkpoint["state_dict"][f"policy.model.{name}"]
    checkpoint[BASE] = policy_fingerprint(base_of(module.policy_path))


def put_back_frozen(module: Any, checkpoint: dict[str, Any]) -> None:
    """Put them back, as they have been loaded, and make room for a reference that was refreshed.

    Raises:
        ValueError: if they are others than the adapter was trained on, as far as files tell.
    """
    if module.adapter is None:
        return
    base = base_of(module.policy_path)
    if checkpoint.get(BASE) not in (None, policy_fingerprint(base)):
        raise ValueError(
            f"ckpt_path: the adapter was trained on other weights than {base} has now; put those"
            " back, or begin again in another folder"
        )
    own, saved = module.adapter.model.state_dict(), checkpoint["state_dict"]
    frozen = {f"policy.model.{name}": own[name] for name in module.adapter.frozen_names}
    checkpoint["state_dict"] = saved | frozen
    if hasattr(module, "reference") and any(name.startswith("reference.") for name in saved):
        module.refresh_reference()


def refuse_another_policy(
    saved_state: Mapping[str, Tensor], own_state: Mapping[str, Tensor], path: str
) -> None:
    """Raise a ValueError that names a weight that differs, and how many others do."""
    own = {name: tuple(value.shape) for name, value in own_state.items()}
    saved = {name: tuple(value.shape) for name, value in saved_state.items()}
    differ = [n for n in sorted({*own, *saved}) if own.get(n) != saved.get(n)]
    if differ:
        name = differ[0]
        was, now = saved.get(name, "not there"), own.get(name, "not there")
        raise ValueError(
            f"ckpt_path: the checkpoint is of another policy than {path}: {name} was {was} and is"
            f" {now}, {len(differ) - 1} others differ; resume with the policy and objective that it"
            " was written with, or begin again in another folder"
        )
