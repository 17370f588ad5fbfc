"""Training reward models: one number a response, or one for each step of a response.

N examples   K rows of an example (2 of a pair, chosen first; 1 of a labelled response)
In process reward models K is the number of labelled steps of all examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PretrainedConfig

from r1lit.metrics.reward_models import (
    Report,
    label_report,
    pair_report,
    prefers_longer,
    step_report,
)
from r1lit.modules.base import PolicyModule
from r1lit.modules.plan import print_preference_plan
from r1lit.modules.sharding import whole_weights
from r1lit.objectives import RewardObjective, StepCrossEntropy
from r1lit.policy import ModelSource, evaluating, load_reward_config, load_reward_model
from r1lit.policy.scalar_head import MEAN, STD, score_rows, score_steps, split_by_length
from r1lit.protocols import LabelsSteps
from r1lit.ranks import of_all_ranks
from r1lit.supervised_batches import PreferenceBatch
from r1lit.text.scored_text import step_ends

REFERENCE_ROWS = 4096
"""At most so many rows, of evenly spaced examples, on which rewards are normalised."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Held-out examples with their rewards as trained, not yet normalised."""

    reward_NK: np.ndarray
    length_NK: np.ndarray
    label_N: np.ndarray
    groups: tuple[str, ...]


class RewardModule(PolicyModule):
    """Trains a reward model: a policy's body whose LM head is replaced by one that gives a scalar.

    R1's helpful reward model learns from pairs (``objective: BradleyTerry``), its safety one from
    labels (``SafeUnsafe``); batch 256, learning rate 6e-6, one epoch (Nature 645:633, Methods).

    One ``training_step`` is one iteration is one update, over the batch's examples in micro-batches
    of rows of like length. The head starts at zero. When the model is exported, the mean and the
    standard deviation of its rewards over the data's ``reference`` rows are written to its
    config.json, and ``r1lit.rewards.RewardModel`` subtracts the mean: rewards have zero mean there.
    Log-odds and losses are of the rewards as trained.

    ``reward_report`` holds the newest evaluation (``r1lit.metrics.reward_models``), ``scored`` what
    it is made of.

    Args:
        policy: an SFT policy's directory, or a reward model's, to go on with or to evaluate.
        objective: ``r1lit.objectives.BradleyTerry`` or ``SafeUnsafe``.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    _auto_class: Any = AutoModelForSequenceClassification

    def __init__(
        self,
        policy: str | ModelSource,
        objective: RewardObjective,
        **options: Any,
    ) -> None:
        super().__init__(policy, **options)
        self.objective = objective
        self.reward_report: Report | None = None
        self.scored: Scored | None = None
        self._evaluated: list[Any] = []

    def _load_config(self) -> PretrainedConfig:
        return load_reward_config(self.source)

    def _load_model(self) -> torch.nn.Module:
        pad_id = self.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        return load_reward_model(self.source, pad_id=pad_id, **self.loading)

    def setup(self, stage: str) -> None:
        """Check that the data is what the objective learns from."""
        super().setup(stage)
        if self.data is None:
            return
        given, wanted = self.data.rows_per_example, self.objective.rows_per_example
        if given != wanted:
            kinds = {1: "labelled responses", 2: "pairs"}
            raise ValueError(
                f"objective: {type(self.objective).__name__} learns from {kinds[wanted]}, and the"
                f" data has {kinds.get(given, 'neither')}; BradleyTerry learns from pairs and"
                " SafeUnsafe from labelled responses"
            )

    def on_fit_start(self) -> None:
        """Print the batch plan."""
        if self.trainer.is_global_zero and self.data is not None:
            print_preference_plan(
                self.data.describe(), self.objective.rows_per_example, self.micro_batch_tokens
            )

    # training

    def training_step(self, batch: PreferenceBatch, batch_idx: int) -> dict[str, Tensor]:
        """Make one update."""
        self.check_iteration(batch.iteration)
        num_examples = self.mean_over_ranks(torch.tensor(self.count(batch), device=self.device))
        rewards: list[Tensor] = []

        def metrics() -> dict[str, float]:
            reward_NK = torch.cat(rewards)
            return {
                "train/num_tokens": float(sum(len(row) for rows in batch.rows for row in rows)),
                "train/reward": float(reward_NK.mean()),
                "train/reward_std": float(reward_NK.std(correction=0)),
                **pair_metrics(reward_NK),
            }

        return self.make_only_update(
            [
                partial(self._share_of_loss, batch, chunk, num_examples, rewards)
                for chunk in self._micro_batches(batch)
            ],
            metrics,
            batch_size=len(batch.rows),
        )

    def count(self, batch: PreferenceBatch) -> int:
        """Return how many examples the loss of a batch is the mean of."""
        return len(batch.rows)

    def rewards_NK(self, batch: PreferenceBatch, indices: Sequence[int]) -> Tensor:
        """Return the rewards, as trained, of some examples of K rows, in one forward pass."""
        flat = [row for i in indices for row in batch.rows[i]]
        return self.policy(flat).view(len(indices), -1)

    def held_out_rewards_NK(self, batch: PreferenceBatch) -> Tensor:
        """Return the rewards, as trained, of held-out examples, on the CPU."""
        flat = [row for rows in batch.rows for row in rows]
        with whole_weights(self.policy):
            rewards = score_rows(self.policy, flat, self.micro_batch_tokens)
        return rewards.view(len(batch.rows), -1)

    def _share_of_loss(
        self, batch: PreferenceBatch, chunk: list[int], num_examples: float, rewards: list[Tensor]
    ) -> Tensor:
        reward_NK = self.rewards_NK(batch, chunk)
        rewards.append(reward_NK.detach())
        label_N = batch.label_N[chunk].to(reward_NK.device)
        return self.objective.loss_N(reward_NK, label_N).sum() / num_examples

    def _micro_batches(self, batch: PreferenceBatch) -> list[list[int]]:
        num_rows = self.objective.rows_per_example
        lengths = [max(map(len, rows)) * num_rows for rows in batch.rows]
        return list(split_by_length(lengths, self.micro_batch_tokens))

    # evaluation

    def validation_step(self, batch: PreferenceBatch, batch_idx: int) -> None:
        """Score held-out examples."""
        self._evaluate(batch, "val")

    def test_step(self, batch: PreferenceBatch, batch_idx: int) -> None:
        """Score test examples."""
        self._evaluate(batch, "test")

    def _evaluate(self, batch: PreferenceBatch, stage: str) -> None:
        reward_NK = self.held_out_rewards_NK(batch)
        loss = self.objective.loss_N(reward_NK, batch.label_N.cpu()).mean()
        self.log(f"{stage}/loss", loss.to(self.device), batch_size=len(batch.rows), sync_dist=True)
        self._evaluated.append(
            Scored(
                reward_NK=reward_NK.numpy().astype(np.float64),
                length_NK=np.array(batch.lengths),
                label_N=batch.label_N.cpu().numpy(),
                groups=batch.groups,
            )
        )

    def on_validation_epoch_end(self) -> None:
        """Report on all held-out examples together."""
        self._report("val")

    def on_test_epoch_end(self) -> None:
        """Report on all test examples together."""
        self._report("test")

    def _report(self, stage: str) -> None:
        scored = self.scored = _joined(self._gathered())
        self._evaluated = []
        longer = self._prefers_longer()
        if self.objective.rows_per_example == 2:
            report = pair_report(scored.reward_NK, scored.length_NK, scored.groups, longer)
        else:
            report = label_report(
                scored.reward_NK, scored.length_NK, scored.label_N, scored.groups, longer
            )
        self._keep(report, f"{stage}/reward_model")

    def _keep(self, report: Report, prefix: str) -> None:
        """Keep an evaluation's report, and log its numbers."""
        self.reward_report = {key: _json(value) for key, value in report.items()}
        numbers = {
            f"{prefix}/{key}": float(value)
            for key, value in report.items()
            if isinstance(value, int | float)
        }
        self.log_dict(numbers, batch_size=1)

    def _gathered(self) -> list[Any]:
        return [scored for own in of_all_ranks(self._evaluated) for scored in own]

    def _prefers_longer(self) -> bool:
        train = self.data.examples.get("train", []) if self.data is not None else []
        return prefers_longer([e.lengths for e in train], [e.label for e in train])

    # normalisation

    def before_export(self) -> None:
        """Write to the model's configuration what makes its rewards those of a reward function."""
        data = self.data
        if data is None:
            return
        examples = data.examples.get("reference") or data.examples["train"]
        # whole examples: every other row of pairs would be the chosen ones alone
        step = -(-sum(len(example.rows) for example in examples) // REFERENCE_ROWS)
        rows = [row.tolist() for example in examples[::step] for row in example.rows]
        own = self.trainer.precision_plugin.forward_context()
        with own, evaluating(self.policy), whole_weights(self.policy):
            rewards = score_rows(self.policy, rows, self.micro_batch_tokens)
        settings = {
            MEAN: float(rewards.mean()),
            STD: float(rewards.std(correction=0)),
            "reward_objective": type(self.objective).__name__,
            "reward_template": data.template,
            "reward_score_on": data.score_on,
        }
        for key, value in settings.items():
            setattr(self.policy.config, key, value)


def pair_metrics(reward_NK: Tensor) -> dict[str, float]:
    """Return the metrics of an update's pairs; none of labelled responses."""
    if reward_NK.ndim != 2 or reward_NK.shape[1] != 2:
        return {}
    margin_N = reward_NK[:, 0] - reward_NK[:, 1]
    return {
        "train/reward_margin": float(margin_N.mean()),
        "train/pair_accuracy": float((margin_N > 0).float().mean()),
    }


def _joined(chunks: Sequence[Scored]) -> Scored:
    return Scored(
        reward_NK=np.concatenate([chunk.reward_NK for chunk in chunks]),
        length_NK=np.concatenate([chunk.length_NK for chunk in chunks]),
        label_N=np.concatenate([chunk.label_N for chunk in chunks]),
        groups=tuple(group for chunk in chunks for group in chunk.groups),
    )


def _json(value: Any) -> Any:
    """Return a report's value as JSON can hold it: null for what is undefined."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


# process reward models


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

    ``reward_report`` holds the newest evaluation (``r1lit.metrics.reward_models``).

    Args:
        policy: an SFT policy's directory, or a reward model's, to go on with or to evaluate.
        separators: what ends a step of the responses that it will score; exported with it.
        threshold: a step is predicted wrong below this probability.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    def __init__(
        self,
        policy: str | ModelSource,
        separators: Sequence[str] = ("\n\n",),
        threshold: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(policy, objective=StepCrossEntropy(), **options)
        step_ends("", separators)  # checks them
        if not 0 < threshold < 1:
            raise ValueError(f"threshold: {threshold} is not between 0 and 1")
        self.separators = list(separators)
        self.threshold = threshold

    def setup(self, stage: str) -> None:
        """Check that the data has labelled steps."""
        data = self.data
        if data is not None and not (isinstance(data, LabelsSteps) and data.labels_steps):
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
