"""Group relative policy optimisation: R1's reinforcement learning, one iteration at a time.

    rollout -> rewards -> advantages -> minibatch updates

P prompts   G responses per prompt   B = P*G rows   T response tokens   V vocabulary
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import PromptBatch, Rollout
from r1lit.collect.base import Collector
from r1lit.collect.fresh import Fresh
from r1lit.errors import check_at_least
from r1lit.modules.plan import BatchPlan, check_rollout
from r1lit.modules.rollouts import RolloutModule, outcome_metrics
from r1lit.modules.schedules import updates_of_run
from r1lit.modules.token_masks import with_top_entropy, without_truncated
from r1lit.modules.token_values import of_each_token
from r1lit.modules.updates import UpdateMetrics, of_rows, responses_of, with_selection
from r1lit.objectives import Correction, LossInputs, Objective
from r1lit.objectives.reward_shaping import whitened, with_kl_in_reward
from r1lit.objectives.terms import divisor
from r1lit.policy import LogProbs, ModelSource, Responses, is_packed
from r1lit.policy.reference import make_reference, refresh_reference
from r1lit.rewards import Reward
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.seeding import permutation
from r1lit.verifiers import Grader

BONUS = "entropy_bonus"
"""The key of a checkpoint that holds the state of an entropy bonus."""
PENDING = "pending_rollouts"
"""The key of a checkpoint that holds the state of a collector."""


class GRPOModule(RolloutModule):
    """One ``training_step`` is one iteration: rollout, rewards, advantages, minibatch updates.

    The old policy is the policy that sampled: its log-probs are recorded with the tokens. Their
    difference from the training forward before the first update is logged as the mismatch;
    ``correction`` compensates for it. A reference is kept, and checkpointed, if ``objective.beta``
    is above 0.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        objective: what is maximised: ``r1lit.objectives.GRPO``.
        rewards: reward functions or plain callables; their weighted sum is the reward.
        sampling: how responses are sampled in training.
        validation_sampling: how they are sampled in evaluation; as in training if left out.
        max_tokens_from: ``sampling.max_tokens`` from an iteration on, as ``{513: 65536}``.
        train_batch_size: rows of a minibatch, over all ranks.
        num_inner_epochs: passes over an iteration's rows.
        collector: where an iteration's rollout comes from, a class of ``r1lit.collect``: of the
            present weights (``Fresh``) if left out.
        kl_in_reward: beta of the penalty r_t - beta (log pi_old - log pi_ref) in the reward of
            every token (InstructGPT 2203.02155, Eq. 2); ``objective.beta`` puts one into the loss.
        mask_truncated: leave responses cut at the limit out of the loss (DAPO's overlong filtering,
            2503.14476, §3.4). They still enter their group's advantages, and still count as rows.
        whiten_advantages: scale an iteration's advantages to mean 0 and standard deviation 1, over
            the tokens that count on all ranks (REINFORCE++, 2501.03262, §3.2; PPO's usual form).
        correction: weighs tokens for the mismatch of sampler and trainer, which then computes the
            old log-probs itself before the first update. None trusts the sampler's.
        engine: generates responses; in this process if left out.
        grader: decides about them; all of ``DefaultVerifiers`` if left out.
        dropout: keep the policy's dropout in updates. Log-probs then differ from the old policy's,
            which are computed without it.
        keep_sampling_mask: where ``sampling`` has a ``top_p`` or ``top_k``, compute log-probs, of
            policy and reference, among the tokens that these left when each token was sampled, so
            that sampler and policy choose among the same (DeepSeek-V3.2 2512.02556, §3.1, "Keep
            Sampling Mask"). The engine must return them: ``InProcessEngine`` does.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    def __init__(
        self,
        policy: str | ModelSource,
        objective: Objective,
        rewards: list[Reward],
        sampling: Sampling,
        validation_sampling: Sampling | None = None,
        max_tokens_from: dict[int, int] | None = None,
        train_batch_size: int = 64,
        num_inner_epochs: int = 1,
        collector: Collector | None = None,
        mask_truncated: bool = False,
        kl_in_reward: float = 0.0,
        whiten_advantages: bool = False,
        correction: Correction | None = None,
        engine: RolloutEngine | None = None,
        grader: Grader | None = None,
        dropout: bool = False,
        keep_sampling_mask: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            policy,
            rewards=rewards,
            sampling=sampling,
            validation_sampling=validation_sampling,
            engine=engine,
            grader=grader,
            dropout=dropout,
            **options,
        )
        self.objective = objective
        self.max_tokens_from = max_tokens_from or {}
        self.train_batch_size = train_batch_size
        self.num_inner_epochs = num_inner_epochs
        self.collector = collector or Fresh()
        self.mask_truncated = mask_truncated
        self.kl_in_reward = kl_in_reward
        self.whiten_advantages = whiten_advantages
        self.correction = correction
        self.keep_sampling_mask = keep_sampling_mask
        for key, least in (("train_batch_size", 1), ("num_inner_epochs", 1), ("kl_in_reward", 0)):
            check_at_least(key, getattr(self, key), least)

    def setup(self, stage: str) -> None:
        """Check collector, data and batch plan before anything is loaded."""
        if stage == "fit":
            self.collector.check(self)
        self.collector.close()
        super().setup(stage)
        data = self.data
        if data is not None and stage == "fit":
            check_rollout(data.rollout, self.objective.advantage)
            self.plan = BatchPlan(
                num_prompts=data.rollout.prompts_per_iteration,
                group_size=data.rollout.group_size,
                train_batch_size=self.train_batch_size,
                micro_batch_tokens=self.micro_batch_tokens,
                num_inner_epochs=self.num_inner_epochs,
                world_size=self.trainer.world_size,
            )

    @property
    def reference_in_loss(self) -> bool:  # type: ignore[override]
        """Whether the objective penalises the distance to the reference."""
        return self.objective.beta > 0

    def _copy_policy(self) -> None:
        """Make the reference, if loss or reward penalise the distance to it."""
        if self.reference_in_loss or self.kl_in_reward > 0:
            self.reference = make_reference(self.policy)

    def refresh_reference(self) -> None:
        """Replace the reference by the policy, as R1 does every 400 updates."""
        refresh_reference(self.reference, self.policy)

    def on_fit_start(self) -> None:
        """Print the batch plan."""
        if self.trainer.is_global_zero and self.data is not None:
            self.plan.print(self.data.describe(), self.sampling.max_tokens, self.max_tokens_from)

    def training_step(self, batch: PromptBatch, batch_idx: int) -> dict[str, Any]:
        """Run one iteration."""
        self.check_iteration(batch.iteration)
        rollout, collected = self.collect(batch)
        if self.mask_truncated:
            rollout = without_truncated(rollout)
        tokens = self.first_token_values(rollout, self.sampling)
        started = time.perf_counter()
        rollout, metrics = self.update_policy(rollout)
        metrics |= {
            **outcome_metrics(rollout, "train"),
            "train/reward_std": float(rollout.reward_PG.std(-1, correction=0).mean()),
            "train/num_tokens": float(rollout.sampled_BT.sum()),
            **num_candidates(rollout),
            **collected,
            "time/update_s": time.perf_counter() - started,
        }
        if self.objective.entropy is not None:
            bonus = self.objective.entropy
            metrics["train/entropy_weight"] = bonus.weight if bonus.acts else 0.0
            entropy = metrics.get("train/entropy", math.nan)  # none where a critic learns alone
            bonus.end_iteration(self.mean_over_ranks(torch.tensor(entropy)))
        self.end_iteration(metrics, len(rollout.responses))
        return {"rollout": rollout, **tokens}

    def collect(self, batch: PromptBatch) -> tuple[Rollout, dict[str, float]]:
        """Return the iteration's rollout with rewards, and what to log of it."""
        timings = Timings()
        collected = self.collector(batch, self, timings)
        timings.sync = self.sync_seconds
        num_sampled = sum(rollout.num_prompts for rollout in collected.sampled)
        metrics = {
            "train/num_groups_dropped": float(num_sampled - collected.rollout.num_prompts),
            **timings.metrics(),
            **collected.metrics,
        }
        if getattr(self.data, "difficulty", None) is not None:
            metrics |= self.data.learn(batch.iteration, collected.sampled)
        return collected.rollout, metrics

    def update_policy(self, rollout: Rollout) -> tuple[Rollout, dict[str, float]]:
        """Make the iteration's updates; return the rollout with advantages, and metrics to log."""
        update_metrics = UpdateMetrics(same_weights=self.collector.is_fresh)
        if self.correction is not None:
            sampled = rollout.logp_sampler_BT, rollout.loss_mask_BT
            logp_old_BT = self.log_probs(rollout, self.policy)
            update_metrics.add_mismatch(logp_old_BT, *sampled)
            correction_BT = self.correction.weight_BT(logp_old_BT, *sampled)
            rollout = replace(rollout, logp_old_BT=logp_old_BT, correction_BT=correction_BT)
        logged: dict[str, list[float]] = {}
        once: dict[str, float] = {}
        if self.kl_in_reward > 0:
            logp_ref_BT = self.log_probs(rollout, self.reference)
            rollout, once = with_kl_in_reward(rollout, logp_ref_BT, self.kl_in_reward)
        if self.objective.top_entropy < 1:
            share = self.objective.top_entropy
            rollout, kept = with_top_entropy(rollout, self.entropies(rollout), share)
            once |= kept
        rollout = self.estimate_advantages(rollout)
        rollout, covariance = with_selection(rollout, self.objective, self.seed)
        for index, rows_b in enumerate(self.minibatches(rollout, range(self.num_inner_epochs))):
            values = self.update_minibatch(rollout, rows_b, update_metrics, index == 0)
            for name, value in values.items():
                logged.setdefault(name, []).append(value)
        return rollout, {
            **{name: sum(values) / len(values) for name, values in logged.items()},
            **once,
            **covariance,
            **update_metrics.metrics(),
        }

    def estimate_advantages(self, rollout: Rollout) -> Rollout:
        """Return the rollout with its advantages.

        A subclass with a critic puts ``value_BT`` into it first. ``logp_old_BT`` and
        ``loss_mask_BT`` are final here.
        """
        rollout = replace(rollout, advantage_BT=self.objective.advantage.estimate(rollout))
        return whitened(rollout, self.mean_over_ranks) if self.whiten_advantages else rollout

    def minibatches(self, rollout: Rollout, epochs: Iterable[int]) -> Iterator[Tensor]:
        """Yield the rows of each minibatch, in an order of its own in each epoch."""
        size = self.train_batch_size // self.trainer.world_size
        for epoch in epochs:
            order = permutation(len(rollout.responses), self.seed, "rows", rollout.iteration, epoch)
            yield from torch.tensor(order, device=rollout.response_BT.device).split(size)

    def update_minibatch(
        self, rollout: Rollout, rows_b: Tensor, update_metrics: UpdateMetrics, is_first_update: bool
    ) -> dict[str, float]:
        """Make the update of one minibatch.

        A subclass with a critic adds that one's, by ``make_update`` with its own optimiser.

        Args:
            rollout: of the iteration, over all of its rows.
            rows_b: the minibatch's rows.
            update_metrics: takes what is averaged over tokens.
            is_first_update: whether the weights are still those that sampled.

        Returns:
            What to log; averaged over the iteration's minibatches.
        """
        num_tokens = self.mean_over_ranks(rollout.loss_mask_BT[rows_b].sum())
        num_right_tokens = 0.0
        if self.objective.positive_nll > 0:
            right_bT = rollout.loss_mask_BT[rows_b] & rollout.is_right_B[rows_b, None]
            num_right_tokens = self.mean_over_ranks(right_bT.sum())
        loss_of = partial(
            self._loss,
            rollout,
            num_rows=float(len(rows_b)),
            num_tokens=divisor(num_tokens),
            num_right_tokens=divisor(num_right_tokens),
            update_metrics=update_metrics,
            is_first_update=is_first_update,
        )
        loss, norm = self.update_rows(
            self.policy_optimizer,
            rollout,
            rows_b,
            loss_of,
            packed=is_packed(self.policy),
            skip=self.objective.skips_zero_advantage(),
        )
        return {"train/loss": loss, "train/grad_norm": norm}

    def _loss(
        self,
        rollout: Rollout,
        rows_b: Tensor,
        *,
        num_rows: float,
        num_tokens: float,
        num_right_tokens: float,
        update_metrics: UpdateMetrics,
        is_first_update: bool,
    ) -> Tensor:
        """Return the loss of one micro-batch of rows, its share of the minibatch's."""
        responses = responses_of(rollout, rows_b)
        width = responses.response_BT.shape[1]
        bonus = self.objective.entropy
        log_probs = LogProbs(
            temperature=self.sampling.temperature, entropy_gradient=bonus is not None
        )
        logp_ref_bT = None
        if self.reference_in_loss:
            with torch.no_grad():
                logp_ref_bT = responses.to_rows(self.reference(responses, log_probs).logp_K)
        output = self.policy(responses, log_probs)
        logp_bT = responses.to_rows(output.logp_K)
        entropy_bT = responses.to_rows(output.entropy_K)
        inputs = LossInputs(
            logp_BT=logp_bT,
            entropy_BT=entropy_bT,
            logp_ref_BT=logp_ref_bT,
            num_rows=num_rows,
            num_tokens=num_tokens,
            is_right_B=rollout.is_right_B[rows_b] if self.objective.positive_nll > 0 else None,
            num_right_tokens=num_right_tokens,
            **of_rows(rollout, rows_b, width),
        )
        outputs = self.objective.loss(inputs)
        update_metrics.add(dict(outputs.metrics), inputs, entropy_bT)
        if is_first_update and self.correction is None:  # a correction has measured it before
            logp_sampler_bT = rollout.logp_sampler_BT[rows_b, :width]
            update_metrics.add_mismatch(logp_bT, logp_sampler_bT, inputs.mask_BT)
        return outputs.loss

    def log_probs(self, rollout: Rollout, model: torch.nn.Module) -> Tensor:
        """Return the log-probs ``[B, T]`` of all responses, of the policy or of a reference."""
        log_probs = LogProbs(temperature=self.sampling.temperature)
        packed = is_packed(self.policy)
        return self.of_each_token(rollout, model, lambda x: model(x, log_probs).logp_K, packed)

    def entropies(self, rollout: Rollout) -> Tensor:
        """Return the policy's entropies ``[B, T]`` at all responses' tokens."""
        log_probs = LogProbs(temperature=self.sampling.temperature)
        policy: Any = self.policy
        packed = is_packed(policy)
        return self.of_each_token(rollout, policy, lambda x: policy(x, log_probs).entropy_K, packed)

    def of_each_token(
        self, rollout: Rollout, model: Any, compute: Callable[[Responses], Tensor], packed: bool
    ) -> Tensor:
        """Return a number a token ``[B, T]`` that a model computes; see ``of_each_token``."""
        strategy = self.trainer.strategy
        return of_each_token(rollout, model, compute, self.micro_batch_tokens, packed, strategy)

    # what a collector asks for, and what it keeps

    def worker(self, sampling: Sampling, seed: int, training: bool = False) -> RolloutWorker:
        """Return what collects rollouts; for an evaluation, once the engine is free."""
        if not training:
            self.collector.wait()
        return super().worker(sampling, seed, training)

    def has_iteration(self, iteration: int) -> bool:
        """Return whether the run goes on to an iteration."""
        return iteration * self.plan.updates_per_iteration < updates_of_run(self)

    def batch_of(self, iteration: int) -> PromptBatch:
        """Return the prompts of an iteration, before its turn has come."""
        batch: PromptBatch = self.data.train_dataloader().batch(iteration)
        return batch

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put in what is generated ahead, once it is there: a resumed run trains on the same."""
        super().on_save_checkpoint(checkpoint)
        if self.objective.entropy is not None:
            checkpoint[BONUS] = self.objective.entropy.state()
        if pending := self.collector.state():
            checkpoint[PENDING] = pending

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it back; under ``--resume_changed`` it is generated again, as now requested."""
        super().on_load_checkpoint(checkpoint)
        if self.objective.entropy is not None and BONUS in checkpoint:
            self.objective.entropy.load(checkpoint[BONUS])
        if not getattr(self.data, "may_differ", False):
            self.collector.load(checkpoint.get(PENDING, {}))

    def teardown(self, stage: str) -> None:
        """Let the engine end what it generates, then let it go."""
        self.collector.close()
        super().teardown(stage)


def num_candidates(rollout: Rollout) -> dict[str, float]:
    """Return among how many tokens a token was sampled, where top-k or top-p left others out."""
    if rollout.candidates is None:
        return {}
    sampled = rollout.sampled_BT.cpu()
    pairs = zip(rollout.candidates, sampled, strict=True)
    total = sum(int(own.num_K[row_T[: len(own.num_K)]].sum()) for own, row_T in pairs)
    return {"train/num_candidates": total / max(1, int(sampled.sum()))}
