"""A critic: a value for every token, trained on the rollouts that it judges.

B rows (responses)   T response tokens   b rows of a micro-batch
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.optim import Optimizer

from r1lit.batches import Rollout
from r1lit.errors import check_at_least
from r1lit.objectives import GAE, ValueObjective
from r1lit.objectives.gae import monte_carlo_returns_BT
from r1lit.objectives.terms import divisor
from r1lit.policy import ModelSource, load_reward_config, load_reward_model
from r1lit.policy.held import HeldModels
from r1lit.policy.policy import ModelWrapper
from r1lit.rollout.model_inputs import model_inputs
from r1lit.steps.base import LearningStep, MakesOptimizer, MakesSchedule, Run, Schedule
from r1lit.steps.value_truth import Prefix, ValueTruth


class Critic(LearningStep):
    """Gives each token a value, for the advantages of ``GAE``; then learns the returns.

    It makes as many updates as the policy, on the same minibatches, before it and with an optimiser
    of its own (under DDP take ``strategy: ddp_find_unused_parameters_true``).
    ``data.rollout.group_size`` may be 1.

    The RLHF of InstructGPT (2203.02155, §3.5): after ``KLInReward(0.02)``, from the reward model
    that is also the reward, ``GAE`` with both lambdas at 0.95. What makes PPO work on long chains
    of thought (VC-PPO 2503.01491, VAPO 2504.05118): ``warmup``, ``GAE`` with lambda_critic 1 and
    ``alpha``, the objective's term ``PositiveNLL``.

    Args:
        model: its first weights, of a reward model, or of a policy with a head of zeros in place of
            its own; the policy if left out. A plain path is loaded with the policy's options.
            All weights are trained.
        objective: its loss; clipped at 0.2 if left out.
        optimizer: makes its optimiser; ``torch.optim.AdamW`` if left out.
        lr_scheduler: makes its scheduler; stepped after each of its updates.
        max_grad_norm: its gradients are clipped to this norm; as the policy's if left out.
        warmup: in so many first iterations the critic alone is trained, on Monte-Carlo returns of
            the policy that stays as it is (VC-PPO's value pretraining, §3.2: about 50 updates). Its
            loss is not clipped in them: there is no old critic worth staying near.
        epochs: its passes over an iteration's rows; as many as the policy's, ``num_inner_epochs``,
            if left out. What is logged of its updates is of those.
        truth: measure values against Monte-Carlo continuations; null does not.
    """

    reads = ("reward_PG", "reward_BT", "loss_mask_BT")
    writes = ("value_BT",)

    held = HeldModels(trained=1)
    exports = ("critic",)

    def __init__(
        self,
        model: str | ModelSource | None = None,
        objective: ValueObjective | None = None,
        optimizer: MakesOptimizer | None = None,
        lr_scheduler: MakesSchedule | None = None,
        max_grad_norm: float | None = None,
        warmup: int = 0,
        epochs: int | None = None,
        truth: ValueTruth | None = None,
    ) -> None:
        check_at_least("warmup", warmup, 0)
        self.model = model
        self.objective = objective or ValueObjective()
        self.max_grad_norm = max_grad_norm
        self.warmup = warmup
        self.epochs = epochs
        self.truth = truth
        self._make_optimizer = optimizer or torch.optim.AdamW
        self._make_lr_scheduler = lr_scheduler
        self.critic: ModelWrapper | None = None

    def check(self, run: Run) -> None:
        """Refuse an estimator without returns, too few epochs, and a model that cannot be read."""
        _gae(run)
        if self.epochs is not None:
            check_at_least("model.steps: Critic.epochs", self.epochs, run.num_inner_epochs)
        if self.truth is not None and not run.is_fresh:
            raise ValueError(
                "model.steps: Critic.truth continues responses with the policy that sampled them,"
                " and model.collector trains on those of an earlier one; set only one of them"
            )
        if self.model is not None:
            load_reward_config(self._source(run))

    def _source(self, run: Run) -> ModelSource:
        """Return the source of the critic: the policy's options where a path alone was given."""
        source = run.source.but(key="critic", adapter=None, quantization=None)
        if isinstance(self.model, str):
            source = source.but(path=self.model, from_scratch=False)
        elif self.model is not None:
            source = self.model.but(key="critic")
        for name in ("adapter", "quantization"):
            if getattr(source, name) is not None:
                raise ValueError(
                    f"model.steps: Critic.model.{name}: all weights of a critic are trained; leave"
                    " it out"
                )
        return source

    def models(self, run: Run) -> dict[str, ModelWrapper]:
        """Load the critic; the module holds it as ``critic``."""
        pad_id = run.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        self.critic = load_reward_model(
            self._source(run), pad_id=pad_id, dropout=run.dropout, **run.loading
        )
        return {"critic": self.critic}

    def optimizers(self) -> list[tuple[Optimizer, Schedule | None]]:
        """Return its optimiser, with its schedule if it has one."""
        assert self.critic is not None
        optimizer = self._make_optimizer(self.critic.parameters())
        make = self._make_lr_scheduler
        return [(optimizer, None if make is None else make(optimizer))]

    def holds_policy(self, iteration: int) -> bool:
        """Return whether this iteration trains the critic and leaves the policy as it is."""
        return iteration < self.warmup

    def epochs_of(self, run: Run) -> int:
        """Return its passes over an iteration's rows."""
        return self.epochs or run.num_inner_epochs

    def __call__(self, rollout: Rollout, run: Run) -> tuple[Rollout, dict[str, float]]:
        """Return the rollout with values of before the critic's updates; and make those."""
        prefixes, continued = self._continued(rollout, run)  # by the policy that wrote it
        gae, critic = _gae(run), self.critic
        assert critic is not None
        value_BT = run.per_token_BT(rollout, critic, critic, packed=False)
        rollout = replace(rollout, extra_BT={**rollout.extra_BT, "value_BT": value_BT})
        seen_BT = monte_carlo_returns_BT(rollout, gae.gamma)
        return_BT = seen_BT if self.holds_policy(rollout.iteration) else gae.returns(rollout)
        logged: dict[str, list[float]] = {}
        num = run.num_inner_epochs
        for rows_b in run.minibatches(rollout, range(num)):
            for name, value in self._update(rollout, return_BT, rows_b, run).items():
                logged.setdefault(name, []).append(value)
        for rows_b in run.minibatches(rollout, range(num, self.epochs_of(run))):
            self._update(rollout, return_BT, rows_b, run)
        metrics = {name: sum(values) / len(values) for name, values in logged.items()}
        metrics |= self._quality(value_BT, seen_BT, rollout.loss_mask_BT)
        if self.truth is not None:
            metrics |= self.truth.metrics(value_BT, prefixes, continued, gae.gamma)
        return rollout, metrics

    def _continued(self, rollout: Rollout, run: Run) -> tuple[list[Prefix], Rollout | None]:
        return ([], None) if self.truth is None else self.truth.continue_prefixes(rollout, run)

    def _update(
        self, rollout: Rollout, return_BT: Tensor, rows_b: Tensor, run: Run
    ) -> dict[str, float]:
        """Make the update of one minibatch of rows."""
        num_tokens = divisor(run.mean_over_ranks(rollout.loss_mask_BT[rows_b].sum()))
        clipped: list[Tensor] = []
        loss, norm = run.update_rows(
            run.optimizer_of(self),
            rollout,
            rows_b,
            partial(self._loss, rollout, return_BT, num_tokens, clipped),
            packed=False,
            max_grad_norm=self.max_grad_norm,
        )
        return {
            "train/value_loss": loss,
            "train/critic_grad_norm": norm,
            "train/value_clip_fraction": float(torch.stack(clipped).sum()) / num_tokens,
        }

    def _loss(
        self,
        rollout: Rollout,
        return_BT: Tensor,
        num_tokens: float,
        clipped: list[Tensor],
        rows_b: Tensor,
    ) -> Tensor:
        """Return the loss of one micro-batch of rows, its share of the minibatch's."""
        assert self.critic is not None
        responses = model_inputs(rollout, rows_b)
        width = responses.response_BT.shape[1]
        held = self.holds_policy(rollout.iteration)
        objective = ValueObjective(epsilon=None) if held else self.objective
        outputs = objective.loss(
            responses.to_rows(self.critic(responses)),
            rollout.extra("value_BT", "Critic")[rows_b, :width],
            return_BT[rows_b, :width],
            rollout.loss_mask_BT[rows_b, :width],
            num_tokens,
        )
        clipped.append(outputs.metrics["value_clip_fraction"])
        return outputs.loss

    @staticmethod
    def _quality(value_BT: Tensor, return_BT: Tensor, mask_BT: Tensor) -> Mapping[str, float]:
        """Return how well values predicted what came, over tokens; NaN where none counts."""
        value_N, return_N = value_BT[mask_BT], return_BT[mask_BT]
        return {
            "train/value_mean": float(value_N.mean()),
            "train/explained_variance": explained_variance(value_N, return_N),
        }


def _gae(run: Run) -> GAE:
    """Return the estimator whose returns the critic learns."""
    gae = run.objective.advantage.unscaled
    if not isinstance(gae, GAE):
        raise ValueError(
            f"objective.advantage: {type(gae).__name__} does not read a critic's values; Critic"
            " needs r1lit.objectives.GAE, which is PPO's own"
        )
    return gae


def explained_variance(value_N: Tensor, return_N: Tensor) -> float:
    """Return 1 - Var(R - V) / Var(R): 1 is perfect, 0 is a constant; NaN where R is one.

    >>> explained_variance(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
    0.0
    """
    variance = float(return_N.var(correction=0)) if len(return_N) else 0.0
    if variance == 0:
        return math.nan
    return 1 - float((return_N - value_N).var(correction=0)) / variance
