"""Supervised fine-tuning and pretraining on packed rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from r1lit.batches import PackedRows
from r1lit.modules.base import PolicyModule
from r1lit.modules.plan import check_update, print_supervised_plan
from r1lit.policy import document_logp


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
        if self._loading["attention"] not in ("sdpa", "eager"):
            raise ValueError(
                f"attention: {self._loading['attention']!r} would let packed documents see each"
                " other; sdpa and eager keep them apart"
            )
        kinds = set(
            getattr(self.policy_config.get_text_config(decoder=True), "layer_types", None) or ()
        )
        leaking = sorted(kind for kind in kinds if "attention" not in kind or "linear" in kind)
        if leaking:
            raise ValueError(
                f"policy: {self.policy_path!r} has {', '.join(leaking)} layers, in which packed"
                " documents would run into each other; softmax attention keeps them apart"
            )

        if stage == "fit" and self.data is not None:
            check_update(self.data.rows_per_update, self.trainer.world_size)

    def on_fit_start(self) -> None:
        """Print the batch plan."""
        if self.trainer.is_global_zero and self.data is not None:
            print_supervised_plan(self.data.describe(), self.micro_batch_tokens)

    def training_step(self, batch: PackedRows, batch_idx: int) -> dict[str, Tensor]:
        """Make one update."""
        self.check_iteration(batch.iteration)
        num_tokens = self.mean_over_ranks(batch.loss_mask_RL.sum())
        loss, norm = self.make_update(
            [partial(self._share_of_loss, rows, num_tokens) for rows in self._micro_batches(batch)]
        )
        self.iteration += 1
        self.log_dict(
            {
                "train/loss": loss,
                "train/grad_norm": norm,
                "train/num_tokens": num_tokens,
                "train/learning_rate": self.learning_rate(),
            },
            batch_size=1,
            sync_dist=True,
        )
        return {"loss": torch.tensor(loss)}

    def validation_step(self, batch: PackedRows, batch_idx: int) -> None:
        """Measure the loss of held-out rows."""
        num_tokens = int(batch.loss_mask_RL.sum())
        loss = sum(float(self.summed_loss(rows)) for rows in self._micro_batches(batch))
        self.log("val/loss", loss / num_tokens, batch_size=num_tokens, sync_dist=True)

    def summed_loss(self, rows: PackedRows) -> Tensor:
        """Return the cross-entropy summed over the rows' target tokens."""
        return -document_logp(
            self.policy, rows.input_ids_RL, rows.position_ids_RL, rows.loss_mask_RL
        ).sum()

    def _share_of_loss(self, rows: PackedRows, num_tokens: float) -> Tensor:
        return self.summed_loss(rows) / num_tokens

    def _micro_batches(self, batch: PackedRows) -> Iterator[PackedRows]:
        num_rows, row_length = batch.input_ids_RL.shape
        size = max(1, self.micro_batch_tokens // row_length)
        for start in range(0, num_rows, size):
            rows = slice(start, start + size)
            yield PackedRows(
                iteration=batch.iteration,
                input_ids_RL=batch.input_ids_RL[rows],
                position_ids_RL=batch.position_ids_RL[rows],
                loss_mask_RL=batch.loss_mask_RL[rows],
            )
