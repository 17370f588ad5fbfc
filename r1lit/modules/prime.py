"""PRIME: implicit process rewards from a model that learns outcomes during the run.

    rollout -> update of the process model -> its rewards of tokens -> advantages -> updates

B rows (responses)   T response tokens   N rows of a minibatch
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from r1lit.batches import Rollout
from r1lit.modules.grpo import GRPOModule
from r1lit.modules.updates import responses_of
from r1lit.objectives import ImplicitProcess, Objective
from r1lit.policy import LogProbs, ModelSource, is_packed, load_policy
from r1lit.policy.reference import make_reference
from r1lit.rewards import Reward
from r1lit.rollout import Sampling


class PRIMEModule(GRPOModule):
    """``GRPOModule`` with a reward of every token from an online process model (2502.01456).

    The process model phi starts as a copy of the policy. A response's implicit outcome reward is
    beta (log pi_phi(o) - log pi_ref(o)), and each token's share of it is its process reward. In an
    iteration phi is trained first, by cross-entropy of sigma(outcome reward) with the verdicts
    (Algorithm 1), and then gives the rewards of the iteration's tokens; verdicts are its only
    labels, so it is always of fresh responses. It has an optimiser of its own (under DDP take
    ``strategy: ddp_find_unused_parameters_true``).

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        objective: one whose ``advantage`` is ``r1lit.objectives.ImplicitProcess``.
        rewards: outcome rewards; their weighted sum is r_o in the advantages.
        sampling: how responses are sampled in training.
        process_beta: of the implicit reward; the paper: 0.05.
        process_optimizer: makes the process model's optimiser; ``torch.optim.AdamW`` if left out.
        process_max_grad_norm: its gradients are clipped to this norm; as the policy's if left out.
        **options: of ``GRPOModule``.
    """

    def __init__(
        self,
        policy: str | ModelSource,
        objective: Objective,
        rewards: list[Reward],
        sampling: Sampling,
        process_beta: float = 0.05,
        process_optimizer: OptimizerCallable | None = None,
        process_max_grad_norm: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(policy, objective, rewards, sampling, **options)
        if not isinstance(objective.advantage, ImplicitProcess):
            raise ValueError(
                f"objective.advantage: {type(objective.advantage).__name__} does not read implicit"
                " rewards; PRIMEModule needs r1lit.objectives.ImplicitProcess"
            )
        if self.kl_in_reward > 0:
            raise ValueError(
                f"kl_in_reward: {self.kl_in_reward}, but rewards of tokens are the process model's"
                " here; set it to 0, objective.beta puts the KL into the loss"
            )
        if not (math.isfinite(process_beta) and process_beta > 0):
            raise ValueError(f"process_beta: {process_beta} is not above 0 (the paper: 0.05)")
        self.process_beta = process_beta
        self.process_max_grad_norm = process_max_grad_norm
        self._make_process_optimizer = process_optimizer or torch.optim.AdamW
        self._process_metrics: dict[str, float] = {}

    def _copy_policy(self) -> None:
        super()._copy_policy()
        source = self.source.but(adapter=None)
        self.process_model = load_policy(source, dropout=self._dropout, **self._loading)
        if source.from_scratch:
            self.process_model.load_state_dict(self.policy.state_dict())
        self.process_reference = make_reference(self.process_model)

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
        """Return the policy's optimiser and the process model's, and the policy's scheduler."""
        optimizers, schedulers = super().configure_optimizers()
        process = self._make_process_optimizer(self.process_model.parameters())
        return [*optimizers, process], schedulers

    def update_policy(self, rollout: Rollout) -> tuple[Rollout, dict[str, float]]:
        """Make the iteration's updates; return the rollout with advantages, and metrics to log."""
        rollout, metrics = super().update_policy(rollout)
        return rollout, metrics | self._process_metrics

    def estimate_advantages(self, rollout: Rollout) -> Rollout:
        """Train the process model, and return the rollout with its rewards and advantages."""
        candidates = rollout.candidates  # of the policy, not of the process model
        rollout = replace(rollout, candidates=None)
        logp_ref_BT = self._logp(rollout, self.process_reference)
        score_B = self.implicit_rewards(rollout, logp_ref_BT).sum(-1)
        losses, norms = zip(
            *(
                self._update_process_model(rollout, rows_b, logp_ref_BT)
                for rows_b in self.minibatches(rollout, range(self.num_inner_epochs))
            ),
            strict=True,
        )
        reward_BT = self.implicit_rewards(rollout, logp_ref_BT)
        self._process_metrics = {
            "train/process_loss": _mean(losses),
            "train/process_grad_norm": _mean(norms),
            "train/process_accuracy": float(((score_B > 0) == rollout.is_right_B).float().mean()),
            "train/process_reward": float(reward_BT.sum(-1).mean()),
        }
        rollout = replace(rollout, reward_BT=reward_BT, candidates=candidates)
        return super().estimate_advantages(rollout)

    def implicit_rewards(self, rollout: Rollout, logp_ref_BT: Tensor) -> Tensor:
        """Return beta (log pi_phi - log pi_ref) of each token, 0 in the padding."""
        return self.process_beta * (self._logp(rollout, self.process_model) - logp_ref_BT)

    def _logp(self, rollout: Rollout, model: Any) -> Tensor:
        """Return log-probs at temperature 1 ``[B, T]``, no gradient."""
        packed = is_packed(self.process_model)
        return self.of_each_token(rollout, model, lambda x: model(x, LogProbs()).logp_K, packed)

    def _update_process_model(
        self, rollout: Rollout, rows_b: Tensor, logp_ref_BT: Tensor
    ) -> tuple[float, float]:
        optimizers: Any = self.optimizers()
        return self.update_rows(
            optimizers[1],
            rollout,
            rows_b,
            partial(self._process_loss, rollout, logp_ref_BT, len(rows_b)),
            packed=is_packed(self.process_model),
            max_grad_norm=self.process_max_grad_norm,
        )

    def _process_loss(
        self, rollout: Rollout, logp_ref_BT: Tensor, num_rows: int, rows_b: Tensor
    ) -> Tensor:
        """Return a micro-batch's share of the minibatch's mean cross-entropy."""
        responses = responses_of(rollout, rows_b)
        width = responses.response_BT.shape[1]
        logp_bT = responses.to_rows(self.process_model(responses, LogProbs()).logp_K)
        score_b = self.process_beta * (logp_bT - logp_ref_BT[rows_b, :width]).sum(-1)
        right_b = rollout.is_right_B[rows_b].to(score_b)
        return binary_cross_entropy_with_logits(score_b, right_b, reduction="sum") / num_rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
