"""Training process reward models: a number for each step of a response, from labelled steps.

N examples   K labelled steps of all of them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import PreferenceBatch
from r1lit.metrics.process import step_report
from r1lit.modules.reward import RewardModule
from r1lit.modules.sharding import whole_weights
from r1lit.objectives import StepCrossEntropy
from r1lit.policy.scalar_head import score_steps
from r1lit.text.steps import step_ends


@dataclass(frozen=True, kw_only=True)
class ScoredSteps:
    """Held-out solutions: the probability that each step is right, and its label."""

    score_NK: tuple[tuple[float, ...], ...]
    label_NK: tuple[tuple[float, ...], ...]
    groups: tuple[str, ...]


class ProcessRewardModule(RewardModule):
    """Trains a process reward model: ``RewardModule``'s model, read at the last token of each step.

    The loss of an update is the mean over its labelled steps (``r1lit.objectives``:
    ``StepCrossEntropy``); the data are labelled steps (``r1lit.data.TableSteps``). What is exported
    is a sequence classifier of one number, the log-odds that the work is right so far:
    ``r1lit.rewards.ProcessReward`` and ``r1lit.search.ValueScorer`` take it.

    ``reward_report`` holds the newest evaluation (``r1lit.metrics.process``).

    Args:
        policy: an SFT policy's directory, or a reward model's, to go on with or to evaluate.
        separators: what ends a step of the responses that it will score; exported with it.
        threshold: a step is predicted wrong below this probability.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    def __init__(
        self,
        policy: str,
        separators: Sequence[str] = ("\n\n",),
        threshold: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(policy, objective=StepCrossEntropy(), max_reference_rows=2, **options)
        step_ends("", separators)  # checks them
        if not 0 < threshold < 1:
            raise ValueError(f"threshold: {threshold} is not between 0 and 1")
        self.separators = list(separators)
        self.threshold = threshold

    def setup(self, stage: str) -> None:
        """Check that the data has labelled steps."""
        if self.data is not None and not getattr(self.data, "labels_steps", False):
            raise ValueError(
                "data: ProcessRewardModule learns from labelled steps, r1lit.data.TableSteps;"
                " RewardModule learns from pairs and labelled responses"
            )
        super().setup(stage)

    def count(self, batch: PreferenceBatch) -> int:
        """Return how many steps the loss of a batch is the mean of."""
        return sum(map(len, batch.step_labels))

    def _share_of_loss(
        self, batch: PreferenceBatch, chunk: list[int], num_examples: float, rewards: list[Tensor]
    ) -> Tensor:
        rows, places = [batch.rows[i][0] for i in chunk], [batch.step_places[i] for i in chunk]
        logit_K1 = self.policy(rows, places)[:, None]
        rewards.append(logit_K1.detach())
        label_K = torch.tensor(
            [label for i in chunk for label in batch.step_labels[i]], device=logit_K1.device
        )
        return self.objective.loss_N(logit_K1, label_K).sum() / num_examples

    def _evaluate(self, batch: PreferenceBatch, stage: str) -> None:
        rows = [row for rows in batch.rows for row in rows]
        with whole_weights(self.policy):
            logit_NK = score_steps(self.policy, rows, batch.step_places, self.micro_batch_tokens)
        logit_K = torch.tensor([logit for own in logit_NK for logit in own])
        label_K = torch.tensor([label for own in batch.step_labels for label in own])
        loss = self.objective.loss_N(logit_K[:, None], label_K).mean()
        self.log(f"{stage}/loss", loss.to(self.device), batch_size=len(label_K), sync_dist=True)
        score_NK = logit_K.sigmoid().split([len(own) for own in logit_NK])
        self._evaluated.append(
            ScoredSteps(
                score_NK=tuple(tuple(own.tolist()) for own in score_NK),
                label_NK=batch.step_labels,
                groups=batch.groups,
            )
        )

    def _report(self, stage: str) -> None:
        chunks = self._gathered()
        self._evaluated = []
        report = step_report(
            [scores for chunk in chunks for scores in chunk.score_NK],
            [labels for chunk in chunks for labels in chunk.label_NK],
            [group for chunk in chunks for group in chunk.groups],
            self.threshold,
        )
        self._keep(report, f"{stage}/process")

    def before_export(self) -> None:
        """Write to the model's configuration what scoring needs."""
        if self.data is None:
            return
        self.policy.config.reward_template = self.data.template
        self.policy.config.process_separators = self.separators
        self.policy.config.process_threshold = self.threshold
