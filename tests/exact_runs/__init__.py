"""Short runs that a change of the code alone must leave as they are, to the bit.

    PYTHONPATH=.:tests python -m exact_runs --against HEAD~1

runs each YAML of this folder over ``base.yaml``, on the tree as it is and on a commit in a folder
of its own, and compares what both log, sample and save. The numbers of two machines differ, so
nothing is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

OF_ROLLOUT = ("response_BT", "loss_mask_BT", "logp_sampler_BT", "logp_old_BT", "reward_PG",
              "advantage_BT")  # fmt: skip


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a digest of the tensors' bytes."""
    found = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(str((tensor.dtype, *tensor.shape)).encode())
        found.update(whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b"")
    return found.hexdigest()[:16]


class Digests(Callback):
    """Keeps digests of each iteration's rollout, and at the end of all weights."""

    def __init__(self) -> None:
        self.iterations: list[dict[str, str]] = []
        self.weights: dict[str, str] = {}

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Keep those of a rollout."""
        rollout = outputs["rollout"]
        self.iterations.append({name: digest([getattr(rollout, name)]) for name in OF_ROLLOUT})

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Keep those of the models, by the first part of their names."""
        by_model: dict[str, list[Tensor]] = {}
        for name, tensor in sorted(module.state_dict().items()):
            by_model.setdefault(name.split(".")[0], []).append(tensor)
        self.weights = {name: digest(tensors) for name, tensors in by_model.items()}
