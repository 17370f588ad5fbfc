"""Supervised fine-tuning and pretraining on packed rows."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from r1lit.batches import PackedRows
from r1lit.modules.base import PolicyModule


class SFTModule(PolicyModule):
    """Cross-entropy on responses, or on everything for pretraining; the data decides which.

    One ``training_step`` is one iteration is one update, over all of the batch's rows in
    micro-batches. The loss is the mean over the batch's target tokens, however they are split.
    Documents of a row do not see each other (``position_ids_RL`` restarts at each), which softmax
    attention respects and recurrent layers would not.
    """

    def setup(self, stage: str) -> None:
        """Refuse policies in whose layers packed documents would run into each other."""
        super().setup(stage)
        kinds = set(
            getattr(self.policy_config.get_text_config(decoder=True), "layer_types", None) or ()
        )
        leaking = sorted(kind for kind in kinds if "attention" not in kind or "linear" in kind)
        if leaking:
            raise ValueError(
                f"policy: {self.policy_path!r} has {', '.join(leaking)} layers, in which packed"
                " documents would run into each other; softmax attention keeps them apart"
            )

    def training_step(self, batch: PackedRows, batch_idx: int) -> dict[str, Tensor]:
        """Make one update."""
        self.check_iteration(batch.iteration)
        num_tokens = batch.loss_mask_RL.sum()
        starts = range(0, len(batch.input_ids_RL), self.micro_batch_size)
        loss, norm = self.make_update(
            [partial(self._share_of_loss, batch, start, num_tokens) for start in starts]
        )
        self.iteration += 1
        self.log_dict(
            {
                "train/loss": loss,
                "train/grad_norm": norm,
                "train/num_tokens": float(num_tokens),
                "train/learning_rate": self.learning_rate(),
            },
            prog_bar=False,
            batch_size=1,
        )
        return {"loss": torch.tensor(loss)}

    def validation_step(self, batch: PackedRows, batch_idx: int) -> None:
        """Measure the loss of held-out rows."""
        num_tokens = int(batch.loss_mask_RL.sum())
        loss = self.summed_loss(batch) / num_tokens
        self.log("val/loss", loss, batch_size=num_tokens, sync_dist=True)

    def summed_loss(self, rows: PackedRows) -> Tensor:
        """Return the cross-entropy summed over the rows' target tokens."""
        logits_RLV = self.policy(
            input_ids=rows.input_ids_RL, position_ids=rows.position_ids_RL, use_cache=False
        ).logits
        target_RL = rows.loss_mask_RL[:, 1:]
        return torch.nn.functional.cross_entropy(
            logits_RLV[:, :-1][target_RL].float(),
            rows.input_ids_RL[:, 1:][target_RL],
            reduction="sum",
        )

    def _share_of_loss(self, batch: PackedRows, start: int, num_tokens: Tensor) -> Tensor:
        rows = slice(start, start + self.micro_batch_size)
        micro_batch = PackedRows(
            iteration=batch.iteration,
            input_ids_RL=batch.input_ids_RL[rows],
            position_ids_RL=batch.position_ids_RL[rows],
            loss_mask_RL=batch.loss_mask_RL[rows],
        )
        return self.summed_loss(micro_batch) / num_tokens
