"""Accuracy of an evaluation: pass@k, cons@k, and pass@1 by source."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback

from r1lit.callbacks import keys
from r1lit.callbacks.stage import gather, log_evaluation, rollout_of, stage_of
from r1lit.metrics.majority_vote import MajorityVote


class MajorityVoteEvaluation(Callback):
    """Logs everything `MajorityVote` computes under ``val/`` and ``test/``.

    That is ``pass_at_1``, ``pass_at_1_stderr``, ``pass_at_<k>`` and ``cons_at_<k>`` for all k up to
    the samples drawn, ``num_problems`` and ``num_samples``; and ``pass_at_1/<source>``, pass@1 over
    the problems of one source.
    """

    def __init__(self) -> None:
        self._metric = MajorityVote()
        self._by_source: list[tuple[str, float]] = []

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start an empty evaluation."""
        self._metric = self._metric.to(pl_module.device)
        self._metric.reset()
        self._by_source = []

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the votes of this batch."""
        rollout = rollout_of(outputs)
        if rollout is None:
            return
        self._metric.update(rollout)
        self._by_source += [
            (group[0].problem.source, sum(r.verdict.value == 1.0 for r in group) / len(group))
            for group in rollout.groups()
        ]

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the evaluation."""
        rows, self._by_source = gather(trainer, self._by_source), []
        if not rows:
            return
        values = {name: float(value) for name, value in self._metric.compute().items()}
        shares: dict[str, list[float]] = {}
        for source, share in rows:
            shares.setdefault(source, []).append(share)
        for source, of_source in sorted(shares.items()):
            values[f"{keys.PASS_AT_1}/{source}"] = sum(of_source) / len(of_source)
        self._metric.reset()
        stage = stage_of(trainer)
        named = {f"{stage}/{name}": value for name, value in values.items()}
        log_evaluation(pl_module, named, batch_size=len(rows))

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end
