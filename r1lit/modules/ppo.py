"""Proximal policy optimisation: GRPO's iteration with a critic's advantages, token by token.

    rollout -> rewards -> values -> advantages, returns -> minibatch updates of policy and critic

B rows (responses)   T response tokens   K response tokens of some rows, row after row
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from r1lit.batches import Rollout
from r1lit.errors import check_at_least, named
from r1lit.modules.grpo import GRPOModule
from r1lit.modules.micro_batches import micro_batches, responses_of
from r1lit.modules.update_metrics import UpdateMetrics
from r1lit.modules.value_truth import TRUTH_METRICS, TRUTH_STREAM, Prefix, ValueTruth, compare
from r1lit.objectives import GAE, Objective, ValueObjective
from r1lit.objectives.advantages import monte_carlo_returns_BT, with_kl_in_reward
from r1lit.policy import load_reward_config, load_reward_model
from r1lit.rewards import Reward
from r1lit.rollout import Sampling


class PPOModule(GRPOModule):
    """``GRPOModule`` with a critic: a value for every token, learnt beside the policy.

    Each minibatch is an update of the policy and one of the critic, with optimisers of their own
    (under DDP take ``strategy: ddp_find_unused_parameters_true``). ``group_size`` may be 1.

    The RLHF of InstructGPT (2203.02155, §3.5): ``kl_in_reward: 0.02``, ``critic`` the reward model
    that is also the reward, ``GAE`` with both lambdas at 0.95. What makes PPO work on long chains
    of thought (VC-PPO 2503.01491, VAPO 2504.05118): ``critic_warmup``, ``GAE`` with lambda_critic 1
    and ``alpha``, ``objective.positive_nll``.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        objective: ``r1lit.objectives.PPO``, or another one whose ``advantage`` is ``GAE``.
        rewards: reward functions or plain callables; their weighted sum comes with the last token.
        sampling: how responses are sampled in training.
        critic: what the critic starts from, a reward model or a policy whose head becomes one of
            zeros; the policy if left out. All its weights are trained.
        value_objective: the critic's loss; clipped at 0.2 if left out.
        critic_optimizer: makes the critic's optimiser; ``torch.optim.AdamW`` if left out.
        critic_lr_scheduler: makes its scheduler; stepped after every update of the critic.
        critic_max_grad_norm: its gradients are clipped to this norm; as the policy's if left out.
        critic_warmup: in so many first iterations the critic alone is trained, on Monte-Carlo
            returns of the policy that stays as it is (VC-PPO's value pretraining, §3.2: about 50
            updates). The value loss is not clipped in them: there is no old critic worth staying
            near.
        critic_epochs: passes of the critic over an iteration's rows; as many as the policy's,
            ``num_inner_epochs``, if left out. What is logged of its updates is of those.
        value_truth: measure values against Monte-Carlo continuations; null does not.
        **options: of ``GRPOModule``.
    """

    def __init__(
        self,
        policy: str,
        objective: Objective,
        rewards: list[Reward],
        sampling: Sampling,
        critic: str | None = None,
        value_objective: ValueObjective | None = None,
        critic_optimizer: OptimizerCallable | None = None,
        critic_lr_scheduler: LRSchedulerCallable | None = None,
        critic_max_grad_norm: float | None = None,
        critic_warmup: int = 0,
        critic_epochs: int | None = None,
        value_truth: ValueTruth | None = None,
        **options: Any,
    ) -> None:
        super().__init__(policy, objective, rewards, sampling, **options)
        if not isinstance(objective.advantage, GAE):
            raise ValueError(
                f"objective.advantage: {type(objective.advantage).__name__} does not read a"
                " critic's values; PPOModule needs r1lit.objectives.GAE, which is PPO's own"
            )
        check_at_least("critic_warmup", critic_warmup, 0)
        epochs = self.num_inner_epochs
        self.critic_epochs = epochs if critic_epochs is None else critic_epochs
        check_at_least("critic_epochs", self.critic_epochs, epochs)
        if value_truth is not None and self.max_staleness:
            raise ValueError(
                f"value_truth: with max_staleness {self.max_staleness} the policy that wrote a"
                " response is gone when it would be continued; leave one of the two out"
            )
        if critic is not None:
            with named("critic"):
                load_reward_config(critic, bool(self._loading["trust_remote_code"]))
        self.gae = objective.advantage
        self.critic_path = critic or policy
        self.value_objective = value_objective or ValueObjective()
        self.critic_max_grad_norm = critic_max_grad_norm
        self.critic_warmup = critic_warmup
        self.value_truth = value_truth
        self._make_critic_optimizer = critic_optimizer or torch.optim.AdamW
        self._make_critic_lr_scheduler = critic_lr_scheduler
        self._own_critic = critic is not None

    @property
    def critic_alone(self) -> bool:
        """Whether this iteration trains the critic and leaves the policy as it is."""
        return int(self.iteration) < self.critic_warmup

    def _copy_policy(self) -> None:
        super()._copy_policy()
        pad_id = self.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        options: dict[str, Any] = {**self._loading, "adapter": None, "dropout": self._dropout}
        options["quantization"] = None
        options["from_scratch"] &= not self._own_critic
        self.critic = load_reward_model(self.critic_path, pad_id=pad_id, **options)

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
        """Return the policy's optimiser and the critic's, and their schedulers."""
        optimizers, schedulers = super().configure_optimizers()
        critic = self._make_critic_optimizer(self.critic.parameters())
        make = self._make_critic_lr_scheduler
        return [*optimizers, critic], [*schedulers, *([] if make is None else [make(critic)])]

    def update_policy(self, rollout: Rollout) -> tuple[Rollout, dict[str, float]]:
        """Make the iteration's updates; return the rollout with advantages, and metrics to log."""
        continued = self._continue(rollout)  # by the policy that wrote it, before the updates
        rollout, metrics = super().update_policy(rollout)
        for rows_b in self.minibatches(rollout, range(self.num_inner_epochs, self.critic_epochs)):
            self._update_critic(rollout, rows_b)
        return rollout, metrics | self._value_metrics(rollout) | self._truth(rollout, *continued)

    @torch.no_grad()
    def estimate_advantages(self, rollout: Rollout) -> Rollout:
        """Return the rollout with values and returns, and with advantages if the policy learns."""
        value_BT = self.of_each_token(rollout, self.critic, self.critic, packed=False)
        rollout = replace(rollout, value_BT=value_BT)
        if self.critic_alone:
            return replace(rollout, return_BT=monte_carlo_returns_BT(rollout, self.gae.gamma))
        return super().estimate_advantages(replace(rollout, return_BT=self.gae.returns(rollout)))

    def update_minibatch(
        self, rollout: Rollout, rows_b: Tensor, update_metrics: UpdateMetrics, is_first_update: bool
    ) -> dict[str, float]:
        """Make an update of the policy and one of the critic."""
        metrics = {}
        if not self.critic_alone:
            metrics = super().update_minibatch(rollout, rows_b, update_metrics, is_first_update)
        return metrics | self._update_critic(rollout, rows_b)

    def _update_critic(self, rollout: Rollout, rows_b: Tensor) -> dict[str, float]:
        num_tokens = max(self.mean_over_ranks(rollout.loss_mask_BT[rows_b].sum()), 1.0)
        chunks = micro_batches(rollout, rows_b, self.micro_batch_tokens, packed=False, skip=False)
        clipped: list[Tensor] = []
        losses = [
            partial(self._value_loss, rollout, rows_b[chunk], num_tokens, clipped)
            for chunk in chunks
        ]
        optimizers: Any = self.optimizers()
        loss, norm = self.make_update(optimizers[1], losses, self.critic_max_grad_norm)
        return {
            "train/value_loss": loss,
            "train/critic_grad_norm": norm,
            "train/value_clip_fraction": float(torch.stack(clipped).sum()) / num_tokens,
        }

    def _value_loss(
        self, rollout: Rollout, rows_b: Tensor, num_tokens: float, clipped: list[Tensor]
    ) -> Tensor:
        """Return the critic's loss on one micro-batch of rows."""
        assert rollout.value_BT is not None and rollout.return_BT is not None
        responses = responses_of(rollout, rows_b)
        width = responses.response_BT.shape[1]
        objective = ValueObjective(epsilon=None) if self.critic_alone else self.value_objective
        outputs = objective.loss(
            responses.to_rows(self.critic(responses)),
            rollout.value_BT[rows_b, :width],
            rollout.return_BT[rows_b, :width],
            rollout.loss_mask_BT[rows_b, :width],
            num_tokens,
        )
        clipped.append(outputs.metrics["value_clip_fraction"])
        return outputs.loss

    def _value_metrics(self, rollout: Rollout) -> dict[str, float]:
        """Return how well values of before the updates predicted what came, over tokens."""
        assert rollout.value_BT is not None
        mask_BT = rollout.loss_mask_BT
        value_N = rollout.value_BT[mask_BT]
        seen_BT = rollout.return_BT
        if not self.critic_alone or seen_BT is None:
            seen_BT = monte_carlo_returns_BT(rollout, self.gae.gamma)
        seen_N = seen_BT[mask_BT]
        if not len(seen_N):
            return {}
        return {
            "train/value_mean": float(value_N.mean()),
            "train/explained_variance": explained_variance(value_N, seen_N),
        }

    def _continue(self, rollout: Rollout) -> tuple[list[Prefix], Rollout | None]:
        """Return prefixes of the rollout and their continuations, where they are due."""
        truth = self.value_truth
        if truth is None or rollout.iteration % truth.every_n_iterations:
            return [], None
        sampling = self.sampling_at(rollout.iteration)
        worker = self.worker(sampling, self.seed + TRUTH_STREAM, training=True)
        prefixes = truth.prefixes(rollout, self.seed)
        with self.weights_to_sample():
            continued = truth.continued(worker, rollout, prefixes, self.context_length)
        if self.kl_in_reward > 0:
            logp_ref_BT = self.log_probs(continued, self.reference)
            continued, _ = with_kl_in_reward(continued, logp_ref_BT, self.kl_in_reward)
        return prefixes, continued

    def _truth(
        self, rollout: Rollout, prefixes: list[Prefix], continued: Rollout | None
    ) -> dict[str, float]:
        """Return how near the values at the prefixes were to the returns of what continued them."""
        if self.value_truth is None:
            return {}
        if continued is None:  # Lightning would show the last ones again
            return dict.fromkeys(TRUTH_METRICS, math.nan)
        assert rollout.value_BT is not None
        rows, places = torch.tensor(prefixes, device=rollout.value_BT.device).T
        return_BT = monte_carlo_returns_BT(continued, self.gae.gamma)
        place_B = places.repeat_interleave(continued.group_size)
        return_PN = return_BT.gather(1, place_B[:, None]).reshape(len(prefixes), -1)
        found = compare(rollout.value_BT[rows, places], return_PN)
        return dict(zip(TRUTH_METRICS, found, strict=True))


def explained_variance(value_N: Tensor, return_N: Tensor) -> float:
    """Return 1 - Var(R - V) / Var(R): 1 is perfect, 0 is a constant; NaN where R is one.

    >>> explained_variance(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
    0.0
    """
    variance = float(return_N.var(correction=0))
    if variance == 0:
        return math.nan
    return 1 - float((return_N - value_N).var(correction=0)) / variance
