"""Proximal policy optimisation: GRPO's iteration with a critic's advantages, token by token.

    rollout -> rewards -> values -> advantages, returns -> minibatch updates of policy and critic

B rows (responses)   T response tokens   K response tokens of some rows, row after row

P prefixes of responses   N completions of each
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from r1lit.batches import PromptBatch, Rollout
from r1lit.errors import check_at_least
from r1lit.modules.grpo import GRPOModule
from r1lit.modules.updates import UpdateMetrics, responses_of
from r1lit.objectives import GAE, Objective, ValueObjective
from r1lit.objectives.gae import monte_carlo_returns_BT
from r1lit.objectives.reward_shaping import with_kl_in_reward
from r1lit.objectives.terms import divisor
from r1lit.policy import ModelSource, load_reward_config, load_reward_model
from r1lit.rewards import Reward
from r1lit.rollout import Sampling
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.seeding import generator


class PPOModule(GRPOModule):
    """``GRPOModule`` with a critic: a value for every token, trained together with the policy.

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
            zeros; the policy if left out. A plain path is held as the policy is. All its weights
            are trained.
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
        policy: str | ModelSource,
        objective: Objective,
        rewards: list[Reward],
        sampling: Sampling,
        critic: str | ModelSource | None = None,
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
        if value_truth is not None and not self.collector.is_fresh:
            raise ValueError(
                "value_truth: it continues responses with the policy that sampled them, and a"
                f" collector {type(self.collector).__name__} trains on those of another; set only"
                " one of them"
            )
        own = self.source.but(key="critic", adapter=None, quantization=None)
        if isinstance(critic, str):
            own = own.but(path=critic, from_scratch=False)
        elif critic is not None:
            own = critic.but(key="critic")
        for name in ("adapter", "quantization"):
            if getattr(own, name) is not None:
                raise ValueError(
                    f"critic.{name}: all weights of a critic are trained; leave it out"
                )
        if critic is not None:
            load_reward_config(own)
        self.gae = objective.advantage
        self.critic_source = own
        self.value_objective = value_objective or ValueObjective()
        self.critic_max_grad_norm = critic_max_grad_norm
        self.critic_warmup = critic_warmup
        self.value_truth = value_truth
        self._make_critic_optimizer = critic_optimizer or torch.optim.AdamW
        self._make_critic_lr_scheduler = critic_lr_scheduler

    @property
    def critic_alone(self) -> bool:
        """Whether this iteration trains the critic and leaves the policy as it is."""
        return int(self.iteration) < self.critic_warmup

    def _copy_policy(self) -> None:
        super()._copy_policy()
        pad_id = self.tokenizer.pad_token_id
        assert isinstance(pad_id, int)
        self.critic = load_reward_model(
            self.critic_source, pad_id=pad_id, dropout=self._dropout, **self._loading
        )

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
        num_tokens = divisor(self.mean_over_ranks(rollout.loss_mask_BT[rows_b].sum()))
        clipped: list[Tensor] = []
        optimizers: Any = self.optimizers()
        loss, norm = self.update_rows(
            optimizers[1],
            rollout,
            rows_b,
            partial(self._value_loss, rollout, num_tokens, clipped),
            packed=False,
            max_grad_norm=self.critic_max_grad_norm,
        )
        return {
            "train/value_loss": loss,
            "train/critic_grad_norm": norm,
            "train/value_clip_fraction": float(torch.stack(clipped).sum()) / num_tokens,
        }

    def _value_loss(
        self, rollout: Rollout, num_tokens: float, clipped: list[Tensor], rows_b: Tensor
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
        with self.whole_weights_for_sampling():
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


# the truth about a critic's values

TRUTH_STREAM = 3 << 32

TRUTH_METRICS = tuple(
    f"train/value_truth/{name}"
    for name in ("mean_abs_error", "bias", "correlation", "standard_error")
)

Prefix = tuple[int, int]  # row, and how many of its tokens


@dataclass(frozen=True, kw_only=True)
class ValueTruth:
    """Measures values against Monte-Carlo continuations (VinePPO, 2410.01679, §4), now and then.

    A prefix of a response is completed ``num_completions`` times by the policy that wrote it; the
    mean return of the completions is what the critic's value there should be. It costs rollouts,
    and changes nothing of the training.

    Args:
        every_n_iterations: how often, from the first iteration on.
        num_prefixes: of different responses, on each rank; all responses if there are fewer.
        num_completions: N, of a prefix; 2 at least, to estimate the error of the truth.
    """

    every_n_iterations: int = 5
    num_prefixes: int = 32
    num_completions: int = 16

    def __post_init__(self) -> None:
        check_at_least("value_truth.every_n_iterations", self.every_n_iterations, 1)
        check_at_least("value_truth.num_prefixes", self.num_prefixes, 2)
        check_at_least("value_truth.num_completions", self.num_completions, 2)

    def prefixes(self, rollout: Rollout, seed: int) -> list[Prefix]:
        """Return what to complete: responses cut at uniformly sampled tokens."""
        rng = generator(seed, "value truth", rollout.iteration)
        if rollout.environment_BT is not None:
            raise ValueError(
                "value_truth: a prefix of an episode cannot be continued, its environment has moved"
                " on; set value_truth to null"
            )
        lengths = rollout.length_B.tolist()
        rows = rng.permutation(len(lengths))[: self.num_prefixes].tolist()
        return [(row, int(rng.random() * lengths[row])) for row in rows]

    def continued(
        self,
        worker: RolloutWorker,
        rollout: Rollout,
        prefixes: list[Prefix],
        context: int | None = None,
    ) -> Rollout:
        """Return P groups of N responses that begin with the prefixes, rewarded as in training.

        All are generated with the token limit that the shortest prefix leaves, where the policy's
        ``context`` has room for it, and then cut: engines decode equal limits together.
        """
        batch = PromptBatch(
            iteration=rollout.iteration,
            problems=tuple(rollout.responses[row].problem for row, _ in prefixes),
            prompts=tuple(rollout.prompts[row // rollout.group_size] for row, _ in prefixes),
            group_size=self.num_completions,
            num_prompts=len(prefixes),
            positions=tuple(range(len(prefixes))),
        )
        every = range(len(prefixes))
        kept = [(rollout.response_BT[row, :t], rollout.logp_old_BT[row, :t]) for row, t in prefixes]
        max_tokens = worker.sampling.max_tokens
        most = max_tokens - min(t for _, t in prefixes)
        requests = []
        for request, (ids, _) in zip(
            worker.requests(batch, every, rollout.iteration), kept, strict=True
        ):
            prompt = (*request.prompt, *ids.tolist())
            limit = most if context is None else min(most, context - len(prompt))
            sampling = replace(request.sampling, max_tokens=limit)
            requests.append(replace(request, prompt=prompt, sampling=sampling))
        completions = worker.engine.generate(requests)
        whole = []
        for index, completion in enumerate(completions):
            ids, logps = kept[index // self.num_completions]
            assert completion.token_ids is not None and completion.logps is not None
            is_cut = len(ids) + completion.num_tokens > max_tokens
            whole.append(
                replace(
                    completion,
                    token_ids=torch.cat([ids, completion.token_ids.to(ids)])[:max_tokens],
                    logps=torch.cat([logps, completion.logps.to(logps)])[:max_tokens],
                    finish_reason="length" if is_cut else completion.finish_reason,
                )
            )
        return worker.grade(whole, batch, every, Timings())


def compare(value_P: Tensor, return_PN: Tensor) -> tuple[float, float, float, float]:
    """Return mean absolute error, bias and correlation of values, and the truth's standard error.

    The bias is the mean of values less truth: a critic that lags behind a policy that improves has
    values too low.

    The truth is itself a mean of N; a critic that is exact has a mean absolute error of some 0.8 of
    that standard error. The correlation is NaN where all values, or all truths, are equal.
    """
    truth_P = return_PN.mean(-1)
    gap_P = value_P - truth_P
    error_P = return_PN.std(-1, correction=1) / math.sqrt(return_PN.shape[1])
    x_P, y_P = (v - v.mean() for v in (value_P, truth_P))
    scale = float(x_P.norm() * y_P.norm())
    return (
        float(gap_P.abs().mean()),
        float(gap_P.mean()),
        float((x_P * y_P).sum()) / scale if scale else math.nan,
        float(error_P.mean()),
    )
