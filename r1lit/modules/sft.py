"""Supervised fine-tuning and pretraining on packed rows, evaluated by loss and by responses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor

from r1lit.modules.plan import check_update, print_supervised_plan
from r1lit.modules.rollouts import RolloutModule
from r1lit.modules.sharding import idle_forwards
from r1lit.modules.supervised_losses import LossAccumulator
from r1lit.policy import CrossEntropy, ModelSource
from r1lit.protocols import HasDocuments
from r1lit.rewards import Accuracy, Reward
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.supervised_batches import PackedRows
from r1lit.verifiers import Grader


class SFTModule(RolloutModule):
    """Cross-entropy on responses, or on everything for pretraining; the data decides which.

    One ``training_step`` is one iteration is one update, over all of the batch's rows in
    micro-batches. The loss is the mean over the batch's target tokens, however they are split.
    Documents of a row do not see each other (``position_ids_RL`` restarts at each): a policy that
    cannot be computed over packed tokens gets each in a row of its own.

    Validation measures the loss of ``data.validation_documents`` (``val/loss``) and rolls out
    responses to the problems of ``data.validation``, as in reinforcement learning; either or both
    may be given.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        validation_sampling: how responses to held-out problems are sampled.
        rewards: measured on those responses; they do not enter the loss. Accuracy if left out.
        engine: generates responses.
        grader: decides about them; all of ``DefaultVerifiers`` if left out.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    def __init__(
        self,
        policy: str | ModelSource,
        validation_sampling: Sampling | None = None,
        rewards: list[Reward] | None = None,
        engine: RolloutEngine | None = None,
        grader: Grader | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            policy,
            rewards=[Accuracy()] if rewards is None else rewards,
            sampling=validation_sampling or Sampling(),
            engine=engine,
            grader=grader,
            **options,
        )

    def setup(self, stage: str) -> None:
        """Refuse data without documents, and a batch plan that cannot be."""
        data = self.data if stage == "fit" and type(self) is SFTModule else None
        if isinstance(data, HasDocuments) and not data.document_sources["train"]:
            raise ValueError(
                "data.documents: null, but SFTModule trains on documents; problems (data.train) are"
                " for GRPOModule"
            )
        super().setup(stage)
        if stage == "fit" and self.data is not None:
            check_update(self.data.packing.num_rows, self.trainer.world_size)

    def on_fit_start(self) -> None:
        """Print the batch plan."""
        if self.trainer.is_global_zero and self.data is not None:
            print_supervised_plan(self.data.describe(), self.micro_batch_tokens)

    def training_step(self, batch: PackedRows, batch_idx: int) -> dict[str, Tensor]:
        """Make one update."""
        self.check_iteration(batch.iteration)
        num_tokens = self.mean_over_ranks(batch.loss_mask_RL.sum())
        sums = LossAccumulator()
        return self.make_only_update(
            [
                partial(sums.share, partial(self.summed_losses, rows), num_tokens)
                for rows in self._micro_batches(batch)
            ],
            lambda: {"train/num_tokens": num_tokens, **sums.metrics("train", num_tokens)},
            batch_size=1,
        )

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Measure the loss of held-out rows, or roll out responses to held-out problems."""
        if not isinstance(batch, PackedRows):
            return super().validation_step(batch, batch_idx)
        num_tokens = int(batch.loss_mask_RL.sum())
        sums = LossAccumulator()
        micro_batches = list(self._micro_batches(batch))
        idle_forwards(self.policy, len(micro_batches), self.trainer.strategy)
        shares = [
            float(sums.share(partial(self.summed_losses, rows), 1.0)) for rows in micro_batches
        ]
        metrics = {"val/loss": sum(shares) / num_tokens, **sums.metrics("val", num_tokens)}
        self.log_dict(metrics, batch_size=num_tokens, sync_dist=True, add_dataloader_idx=False)
        return None

    def summed_losses(self, rows: PackedRows) -> dict[str, Tensor]:
        """Return the cross-entropy summed over the rows' target tokens, as ``loss``.

        What else a subclass returns is logged, as a mean over target tokens.
        """
        return {"loss": self.policy(rows, CrossEntropy()).cross_entropy}

    def _micro_batches(self, batch: PackedRows) -> Iterator[PackedRows]:
        num_rows, max_seq_len = batch.input_ids_RL.shape
        size = max(1, self.micro_batch_tokens // max_seq_len)
        for start in range(0, num_rows, size):
            rows = slice(start, start + size)
            yield PackedRows(
                iteration=batch.iteration,
                input_ids_RL=batch.input_ids_RL[rows],
                position_ids_RL=batch.position_ids_RL[rows],
                loss_mask_RL=batch.loss_mask_RL[rows],
            )
