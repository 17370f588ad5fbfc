"""GRPOModule with a critic that has its own optimiser: what PPO needs of the seams, and no more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.modules import GRPOModule
from r1lit.modules.micro_batches import micro_batches, responses_of
from r1lit.modules.update_metrics import UpdateMetrics
from r1lit.objectives import AdvantageEstimator
from r1lit.policy import load_reward_model


class GAE(AdvantageEstimator):
    """A_t = sum over k of (gamma lambda)^k delta_{t+k}; the reward comes with the last token.

    delta_t = r_t + gamma V_{t+1} - V_t (1506.02438, Eq. 16), V = 0 after the last token.
    """

    def __init__(self, gamma: float = 1.0, lam: float = 0.95) -> None:
        self.gamma, self.lam = gamma, lam

    def estimate(self, rollout: Rollout) -> Tensor:
        assert rollout.value_BT is not None
        value_BT = rollout.value_BT.where(rollout.mask_BT, 0.0)
        advantage_BT = torch.zeros_like(value_BT)
        reward_B, later_B = rollout.reward_PG.flatten(), torch.zeros(len(value_BT))
        next_B = torch.zeros(len(value_BT))
        for t in range(value_BT.shape[1] - 1, -1, -1):
            paid_B = reward_B.where(rollout.length_B == t + 1, 0.0)
            delta_B = paid_B + self.gamma * next_B - value_BT[:, t]
            later_B = (delta_B + self.gamma * self.lam * later_B).where(rollout.mask_BT[:, t], 0.0)
            advantage_BT[:, t], next_B = later_B, value_BT[:, t]
        return advantage_BT


class ActorCritic(GRPOModule):
    """Trains a value model on the returns, beside the policy."""

    def __init__(
        self, *args: Any, critic_lr: float = 0.01, critic_max_grad_norm: float = 0.5, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.critic_lr, self.critic_max_grad_norm = critic_lr, critic_max_grad_norm

    def _copy_policy(self) -> None:
        super()._copy_policy()
        pad_id = self.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        sharded = self._loading["sharded"]
        self.critic = load_reward_model(self.policy_path, pad_id=pad_id, sharded=sharded)

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
        optimizers, schedulers = super().configure_optimizers()
        critic = torch.optim.AdamW(self.critic.parameters(), lr=self.critic_lr)
        decay = torch.optim.lr_scheduler.ExponentialLR(critic, 0.9)
        return [*optimizers, critic], [*schedulers, decay]

    @torch.no_grad()
    def estimate_advantages(self, rollout: Rollout) -> Rollout:
        responses = responses_of(rollout, torch.arange(len(rollout.responses)))
        value_BT = responses.to_rows(self.critic(responses))
        return super().estimate_advantages(replace(rollout, value_BT=value_BT))

    def update_minibatch(
        self, rollout: Rollout, rows_b: Tensor, update_metrics: UpdateMetrics, is_first_update: bool
    ) -> dict[str, float]:
        metrics = super().update_minibatch(rollout, rows_b, update_metrics, is_first_update)
        num_tokens = self.mean_over_ranks(rollout.loss_mask_BT[rows_b].sum())
        parts = micro_batches(rollout, rows_b, self.micro_batch_tokens, packed=False, skip=False)
        _, optimizer = self.optimizers()  # type: ignore[misc]
        loss, norm = self.make_update(
            optimizer,
            [partial(self.value_loss, rollout, rows_b[part], num_tokens) for part in parts],
            max_grad_norm=self.critic_max_grad_norm,
        )
        return metrics | {"train/value_loss": loss, "train/critic_grad_norm": norm}

    def value_loss(self, rollout: Rollout, rows_b: Tensor, num_tokens: float) -> Tensor:
        assert rollout.value_BT is not None
        responses = responses_of(rollout, rows_b)
        value_K = self.critic(responses)
        return_BT = rollout.advantage_BT + rollout.value_BT
        return_K = return_BT[rows_b][rollout.mask_BT[rows_b]]
        counts_K = rollout.loss_mask_BT[rows_b][rollout.mask_BT[rows_b]]
        return ((value_K - return_K) ** 2).where(counts_K, 0.0).sum() / num_tokens
