"""Keeps a process reward model fresh: it learns from the responses that it rewards."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import Callback
from torch.nn.functional import binary_cross_entropy_with_logits

from r1lit.batches import Rollout
from r1lit.rewards import ProcessReward
from r1lit.text.prompts import question_of
from r1lit.text.scored_text import cut_steps
from r1lit.worlds.countdown import first_wrong_step


class RefreshProcessReward(Callback):
    """Trains the model of a run's first ``ProcessReward`` on each iteration's responses, after it.

    The labels of their steps are the world's truth; the loss is ``StepCrossEntropy``'s, one update
    a ``batch_size`` of responses. The model and its optimiser are part of checkpoints. In one
    process alone.

    Args:
        lr: of AdamW.
        batch_size: responses of an update.
    """

    def __init__(self, lr: float = 1e-4, batch_size: int = 32) -> None:
        self.lr = lr
        self.batch_size = batch_size
        self._saved: dict[str, Any] | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Find the model, and go on where a checkpoint was."""
        rewards: Any = pl_module.rewards
        self.reward = next(r for r in rewards if isinstance(r, ProcessReward))
        self.model = self.reward.scorer.model.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr)
        if self._saved is not None:
            self.model.load_state_dict(self._saved["model"])
            self.optimizer.load_state_dict(self._saved["optimizer"])

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Make the updates."""
        rollout: Rollout = outputs["rollout"]
        for start in range(0, len(rollout.responses), self.batch_size):
            self._update(rollout, slice(start, start + self.batch_size))

    def _update(self, rollout: Rollout, part: slice) -> None:
        responses = rollout.responses[part]
        encoded = self.reward.encode([(question_of(r.problem), r.text) for r in responses])
        rows, places, labels = [], [], []
        for response, row in zip(responses, encoded, strict=True):
            if row.places:
                steps = cut_steps(response.text, self.reward.separators)
                first = first_wrong_step(response.problem, steps)
                rows.append(row.tokens)
                places.append(row.places)
                labels += [float(first < 0 or i < first) for i in range(len(steps))]
        if not rows:
            return
        with torch.enable_grad():
            logit_K = self.model(rows, places)
            loss = binary_cross_entropy_with_logits(logit_K, torch.tensor(labels).to(logit_K))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.reward.forget()

    def state_dict(self) -> dict[str, Any]:
        """Return model and optimiser."""
        if not hasattr(self, "model"):
            return {}
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep what ``on_train_start`` goes on from."""
        self._saved = state_dict or None
