"""Accuracy of an evaluation: pass@k, cons@k, and pass@1 by source and by kind."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback

from r1lit.callbacks import keys
from r1lit.callbacks.stage import gather, log_evaluation, rollout_of, stage_of
from r1lit.metrics import Graded, mean, share_right
from r1lit.metrics.majority_vote import MajorityVote


class MajorityVoteEvaluation(Callback):
    """Logs everything `MajorityVote` computes under ``val/`` and ``test/``.

    That is ``pass_at_1``, ``pass_at_1_stderr``, ``pass_at_<k>`` and ``cons_at_<k>`` for all k up to
    the samples, ``num_problems`` and ``num_samples``; and ``pass_at_1/<source>``, pass@1 over
    the problems of one source, and ``pass_at_1_of_kind/<kind>``, over those of one kind (of their
    ``meta``): reasoning apart from general requests.
    """

    def __init__(self) -> None:
        self._metric = MajorityVote()
        self._shares: list[tuple[str, str | None, float]] = []

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start an empty evaluation."""
        self._metric = self._metric.to(pl_module.device)
        self._metric.reset()
        self._shares = []

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
        for group in rollout.groups():
            problem = group[0].problem
            share = share_right([Graded.of(response) for response in group])
            self._shares.append((problem.source, problem.meta.get("kind"), share))

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the evaluation."""
        rows, self._shares = gather(self._shares), []
        if not rows:
            return
        values = {name: float(value) for name, value in self._metric.compute().items()}
        shares: dict[str, list[float]] = {}
        for source, kind, share in rows:
            shares.setdefault(f"{keys.PASS_AT_1}/{source}", []).append(share)
            if kind is not None:
                shares.setdefault(f"{keys.PASS_AT_1_OF_KIND}{kind}", []).append(share)
        values |= {name: mean(own) for name, own in sorted(shares.items())}
        self._metric.reset()
        stage = stage_of(trainer)
        named = {f"{stage}/{name}": value for name, value in values.items()}
        log_evaluation(pl_module, named, batch_size=len(rows))

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end
