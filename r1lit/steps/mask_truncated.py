"""Responses cut at the limit are left out of the loss."""

from __future__ import annotations

from dataclasses import replace

import torch

from r1lit.batches import Rollout
from r1lit.steps.base import Run, Step


class MaskTruncated(Step):
    """Leaves responses that were cut at the limit out of the loss.

    DAPO's overlong filtering (2503.14476, §3.4). They still enter their group's advantages, and
    still count as rows.
    """

    reads = ("loss_mask_BT",)
    writes = ("loss_mask_BT",)

    def __call__(self, rollout: Rollout, run: Run) -> tuple[Rollout, dict[str, float]]:
        """Return the rollout with the tokens of such responses masked out."""
        finished = [response.finished for response in rollout.responses]
        finished_B1 = torch.tensor(finished, device=rollout.loss_mask_BT.device)[:, None]
        return replace(rollout, loss_mask_BT=rollout.loss_mask_BT & finished_B1), {}
