"""Group relative policy optimisation: R1's reinforcement learning, one iteration at a time.

    collect -> steps -> advantages -> minibatch updates

P prompts   G responses per prompt   B = P*G rows   T response tokens   V vocabulary
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor
from torch.optim import Optimizer

from r1lit.batches import PromptBatch, Rollout
from r1lit.collect.base import Collector
from r1lit.collect.fresh import Fresh
from r1lit.errors import check_at_least
from r1lit.modules.plan import BatchPlan, check_rollout
from r1lit.modules.rollouts import RolloutModule, outcome_metrics
from r1lit.modules.schedules import updates_of_run
from r1lit.modules.selected_tokens import with_selection
from r1lit.modules.token_values import per_token_BT
from r1lit.modules.updates import UpdateMetrics, loss_inputs_of_rows
from r1lit.objectives import LossInputs, Objective, Term
from r1lit.objectives.mismatch import MISMATCH_METRICS, Mismatch
from r1lit.objectives.terms import divisor
from r1lit.policy import LogProbs, ModelSource, Responses, is_packed
from r1lit.policy.policy import ModelWrapper
from r1lit.policy.reference import make_reference, refresh_reference
from r1lit.protocols import LearnsPassRates, MayChange
from r1lit.rewards import Reward
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.rollout.model_inputs import model_inputs
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.seeding import permutation
from r1lit.steps.base import REFERENCE, LearningStep, Step, check_order
from r1lit.verifiers import Grader

PENDING = "pending_rollouts"
"""The key of a checkpoint that holds the state of a collector."""


class GRPOModule(RolloutModule):
    """One ``training_step`` is one iteration: collect, prepare by steps, advantages, updates.

    The old policy is the policy that sampled: its log-probs are recorded with the tokens. Their
    difference from the training forward before the first update is logged as the mismatch; the step
    ``Correction`` compensates for it. A reference is kept, and checkpointed, if ``objective.beta``
    is above 0 or a step reads it.

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
        steps: what is done to a rollout before its advantages, in this order; classes of
            ``r1lit.steps``, or your own.
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
        steps: list[Step] | None = None,
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
        self.steps = steps or []
        self._first_optimizer: dict[int, int] = {}
        self._step_of: dict[int, LearningStep] = {}  # by the identity of its optimiser
        self.keep_sampling_mask = keep_sampling_mask
        check_at_least("train_batch_size", train_batch_size, 1)
        check_at_least("num_inner_epochs", num_inner_epochs, 1)
        of_terms = [name for term in objective.terms for name in term.reads]
        check_order(self.steps, (*objective.advantage.reads, *of_terms))

    def setup(self, stage: str) -> None:
        """Check collector, steps, data and batch plan before anything is loaded."""
        if stage == "fit":
            self.collector.check(self)
            for step in self.steps:
                step.check(self)
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
            self.updates_per_iteration = self.plan.updates_per_iteration

    @property
    def learning_steps(self) -> list[LearningStep]:
        """Steps with models of their own."""
        return [step for step in self.steps if isinstance(step, LearningStep)]

    @property
    def is_fresh(self) -> bool:  # type: ignore[override]
        """True where an iteration's rollout is sampled with the weights before its updates."""
        return self.collector.is_fresh

    @property
    def reference_in_loss(self) -> bool:  # type: ignore[override]
        """True where the objective penalises the distance to the reference."""
        return self.objective.beta > 0

    def _copy_policy(self) -> None:
        """Make the reference, if the loss or a step reads it, and the steps' own models."""
        if self.reference_in_loss or any(REFERENCE in step.reads for step in self.steps):
            self.reference = make_reference(self.policy)
        for step in self.learning_steps:
            for name, model in step.models(self).items():
                if hasattr(self, name):  # any attribute: it would be replaced
                    raise ValueError(
                        f"model.steps: {type(step).__name__} names a model {name!r}, which the"
                        " module has already; give it another name"
                    )
                setattr(self, name, model)  # as a child: sharded, and in checkpoints

    def exported(self) -> dict[str, ModelWrapper]:
        """Return the policy, and those of steps' models that are of use after a run."""
        names = (name for step in self.learning_steps for name in step.exports)
        return super().exported() | {name: getattr(self, name) for name in names}

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
        """Return the policy's optimiser and those of steps, in their order; and schedulers."""
        optimizers, schedulers = super().configure_optimizers()
        for step in self.learning_steps:
            self._first_optimizer[id(step)] = len(optimizers)
            for optimizer, scheduler in step.optimizers():
                optimizers.append(optimizer)
                self._step_of[id(optimizer)] = step
                schedulers += [] if scheduler is None else [scheduler]
        return optimizers, schedulers

    def optimizer_of(self, step: LearningStep, index: int = 0) -> LightningOptimizer:
        """Return one of a step's optimisers, as Lightning has wrapped it."""
        optimizers: Any = self.optimizers()
        wrapped: LightningOptimizer = optimizers[self._first_optimizer[id(step)] + index]
        return wrapped

    def updates_by(self, optimizer: Optimizer) -> float:
        """Return an optimiser's updates; the policy makes none while a step holds it."""
        total = super().updates_by(optimizer)
        if not math.isfinite(total):
            return total
        num_iterations = int(total) // self.updates_per_iteration
        if step := self._step_of.get(id(optimizer)):
            return num_iterations * self.plan.num_minibatches * step.epochs_of(self)
        held = sum(self.holds_policy(iteration) for iteration in range(num_iterations))
        return total - held * self.updates_per_iteration

    def holds_policy(self, iteration: int) -> bool:
        """Return whether a step keeps the policy as it is in an iteration."""
        return any(step.holds_policy(iteration) for step in self.learning_steps)

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
        rollout, metrics = self.collect(batch)
        tokens, started = self.first_token_values(rollout, self.sampling), time.perf_counter()
        for step in self.steps:
            rollout, numbers = step(rollout, self)
            metrics = joined(metrics, numbers, type(step).__name__)
        held = self.holds_policy(batch.iteration)
        if not held:
            rollout = replace(rollout, advantage_BT=self.objective.advantage.estimate(rollout))
        mismatch = None if MISMATCH_METRICS[0] in metrics else Mismatch()  # a step may measure it
        rollout, numbers = self.update(rollout, held, mismatch)
        metrics |= numbers | {
            **outcome_metrics(rollout, "train"),
            "train/reward_std": float(rollout.reward_PG.std(-1, correction=0).mean()),
            "train/num_tokens": float(rollout.sampled_BT.sum()),
            **num_candidates(rollout),
            "time/update_s": time.perf_counter() - started,
        }
        for term in self.objective.terms:
            metrics = joined(metrics, term.end_iteration(metrics), type(term).__name__)
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
        data = self.data
        if isinstance(data, LearnsPassRates) and data.difficulty is not None:
            metrics |= data.learn(batch.iteration, collected.sampled)
        return collected.rollout, metrics

    def update(
        self, rollout: Rollout, held: bool, mismatch: Mismatch | None
    ) -> tuple[Rollout, dict[str, float]]:
        """Make the iteration's updates; return the rollout with selected tokens, and metrics.

        Args:
            rollout: with advantages.
            held: make no updates.
            mismatch: takes log-probs of the weights that sampled, in the first update, if given.
        """
        rollout, covariance = with_selection(rollout, self.objective, self.seed)
        update_metrics = UpdateMetrics()
        logged: dict[str, list[float]] = {}
        epochs = range(0 if held else self.num_inner_epochs)
        for index, rows_b in enumerate(self.minibatches(rollout, epochs)):
            first = mismatch if index == 0 else None
            values = self.update_minibatch(rollout, rows_b, update_metrics, first)
            for name, value in values.items():
                logged.setdefault(name, []).append(value)
        return rollout, {
            **{name: sum(values) / len(values) for name, values in logged.items()},
            **covariance,
            **update_metrics.metrics(),
            **({} if mismatch is None else mismatch.metrics(same_weights=self.is_fresh)),
        }

    def minibatches(self, rollout: Rollout, epochs: Iterable[int]) -> Iterator[Tensor]:
        """Yield the rows of each minibatch, in an order of its own in each epoch."""
        size = self.train_batch_size // self.trainer.world_size
        for epoch in epochs:
            order = permutation(len(rollout.responses), self.seed, "rows", rollout.iteration, epoch)
            yield from torch.tensor(order, device=rollout.response_BT.device).split(size)

    def update_minibatch(
        self,
        rollout: Rollout,
        rows_b: Tensor,
        update_metrics: UpdateMetrics,
        mismatch: Mismatch | None,
    ) -> dict[str, float]:
        """Make the update of one minibatch.

        Args:
            rollout: of the iteration, over all of its rows.
            rows_b: the minibatch's rows.
            update_metrics: takes what is averaged over tokens.
            mismatch: takes log-probs of the weights that sampled, in the first update; else None.

        Returns:
            What to log; averaged over the iteration's minibatches.
        """
        counted_BT = rollout.loss_mask_BT
        num_tokens = self._num_tokens(counted_BT[rows_b])
        terms = []
        for term in self.objective.terms:
            token_BT = term.tokens_BT(rollout)  # a term that is over all of them needs no count
            num = num_tokens if token_BT is counted_BT else self._num_tokens(token_BT[rows_b])
            terms.append((term, token_BT, num))
        loss_of = partial(
            self._loss,
            rollout,
            num_rows=float(len(rows_b)),
            num_tokens=num_tokens,
            terms=terms,
            update_metrics=update_metrics,
            mismatch=mismatch,
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

    def _num_tokens(self, token_bT: Tensor) -> float:
        """Return how many tokens a minibatch's mean is over: the mean over ranks."""
        return divisor(self.mean_over_ranks(token_bT.sum()))

    def _loss(
        self,
        rollout: Rollout,
        rows_b: Tensor,
        *,
        num_rows: float,
        num_tokens: float,
        terms: list[tuple[Term, Tensor, float]],
        update_metrics: UpdateMetrics,
        mismatch: Mismatch | None,
    ) -> Tensor:
        """Return the loss of one micro-batch of rows, its share of the minibatch's."""
        responses = model_inputs(rollout, rows_b)
        width = responses.response_BT.shape[1]
        log_probs = LogProbs(
            temperature=self.sampling.temperature,
            entropy_gradient=any(term.reads_entropy for term, *_ in terms),
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
            **loss_inputs_of_rows(rollout, rows_b, width),
        )
        outputs = self.objective.loss(inputs)
        loss = outputs.loss
        for term, token_BT, num in terms:
            loss = loss + term.loss(inputs, token_BT[rows_b, :width], num)
        update_metrics.add(dict(outputs.metrics), inputs, entropy_bT)
        if mismatch is not None:
            logp_sampler_bT = rollout.logp_sampler_BT[rows_b, :width]
            mismatch.add(logp_bT, logp_sampler_bT, inputs.mask_BT)
        return loss

    def log_probs(self, rollout: Rollout, model: torch.nn.Module) -> Tensor:
        """Return the log-probs ``[B, T]`` of all responses, of the policy or of a reference."""
        log_probs = LogProbs(temperature=self.sampling.temperature)
        packed = is_packed(self.policy)
        return self.per_token_BT(rollout, model, lambda x: model(x, log_probs).logp_K, packed)

    def entropies(self, rollout: Rollout) -> Tensor:
        """Return the policy's entropies ``[B, T]`` at all responses' tokens."""
        log_probs = LogProbs(temperature=self.sampling.temperature)
        policy: Any = self.policy
        packed = is_packed(policy)
        return self.per_token_BT(rollout, policy, lambda x: policy(x, log_probs).entropy_K, packed)

    def per_token_BT(
        self, rollout: Rollout, model: Any, compute: Callable[[Responses], Tensor], packed: bool
    ) -> Tensor:
        """Return a number a token ``[B, T]`` that a model computes; see ``token_values``."""
        strategy = self.trainer.strategy
        return per_token_BT(rollout, model, compute, self.micro_batch_tokens, packed, strategy)

    # what a collector asks for, and what it keeps

    def worker(self, sampling: Sampling, seed: int, training: bool = False) -> RolloutWorker:
        """Return the worker that collects rollouts; for an evaluation, once the engine is free."""
        if not training:
            self.collector.wait()
        return super().worker(sampling, seed, training)

    def has_iteration(self, iteration: int) -> bool:
        """Return whether the run goes on to an iteration."""
        num_updates = iteration * self.updates_per_iteration
        return num_updates < updates_of_run(self.trainer, self.updates_per_iteration)

    def batch_of(self, iteration: int) -> PromptBatch:
        """Return the prompts of an iteration, before its turn has come."""
        batch: PromptBatch = self.data.train_dataloader().batch(iteration)
        return batch

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the parts' states and, once it is there, the rollout generated ahead."""
        super().on_save_checkpoint(checkpoint)
        for key, parts in self._with_state().items():
            if states := {name: state for name, part in parts.items() if (state := part.state())}:
                checkpoint[key] = states
        if pending := self.collector.state():
            checkpoint[PENDING] = pending

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the parts' states and, but under ``--resume_changed``, the collector's."""
        super().on_load_checkpoint(checkpoint)
        for key, parts in self._with_state().items():
            for name, state in checkpoint.get(key, {}).items():
                if name in parts:
                    parts[name].load(state)
        data = self.data
        if not (isinstance(data, MayChange) and data.accepts_changed_data):
            self.collector.load(checkpoint.get(PENDING, {}))

    def _with_state(self) -> dict[str, dict[str, Any]]:
        """Return steps and terms by a checkpoint's keys: place and class, which must both agree."""
        lists: dict[str, list[Any]] = {"steps": self.steps, "terms": self.objective.terms}
        return {
            key: {f"{i} {type(part).__name__}": part for i, part in enumerate(parts)}
            for key, parts in lists.items()
        }

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


def joined(metrics: dict[str, float], found: Mapping[str, float], of: str) -> dict[str, float]:
    """Return metrics with those of a step or term added.

    Raises:
        ValueError: if one has a name that is logged already.
    """
    if twice := metrics.keys() & found.keys():
        raise ValueError(f"{of} logs {min(twice)}, which is logged already; give it another name")
    return {**metrics, **found}
