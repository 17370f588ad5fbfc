"""Rollouts: prompts -> completions -> verdicts -> rewards; and evaluation by responses.

P prompts   G responses per prompt   B = P*G rows, prompt-major   T response tokens
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor

from r1lit.batches import PromptBatch, Rollout, Status, TokenValues
from r1lit.modules.base import PolicyModule
from r1lit.modules.optimizer_states import move_states
from r1lit.modules.sharding import whole_weights
from r1lit.modules.token_values import token_values
from r1lit.modules.updates import micro_batches
from r1lit.policy import ModelSource, Policy, load_policy
from r1lit.protocols import HasEnvironments, HasProblems
from r1lit.rewards import Reward, as_reward, check_rewards
from r1lit.rollout import InProcessEngine, ModelSpec, RolloutEngine, Sampling, check_trains
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.verifiers import Grader, check_gold_answers, check_rewarded

VALIDATION_STREAM = 1 << 32
UNDECIDED: tuple[Status, ...] = ("timeout", "error")


class RolloutModule(PolicyModule):
    """A policy that generates responses, which a grader and reward functions look at.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub.
        rewards: reward functions or plain callables; their weighted sum is the reward.
        sampling: how responses are sampled in training.
        validation_sampling: how they are sampled in evaluation; as in training if left out.
        engine: generates responses; in this process if left out.
        grader: decides about them; all of ``DefaultVerifiers`` if left out.
        dropout: whether updates have the dropout of the policy's configuration.
        **options: of ``PolicyModule``: optimizer, lr_scheduler, micro_batch_tokens and the like.
    """

    num_token_rows = 0
    """Responses of the next rollout whose ``TokenValues`` are recorded; set by callbacks."""
    sync_seconds = 0.0
    """Seconds that the last handover of weights to the engine took."""
    keep_sampling_mask = False
    """True where training computes log-probs among the tokens that top-k and top-p leave."""
    max_tokens_from: Mapping[int, int] = MappingProxyType({})
    """Token limits of responses in training, by the iteration from which each applies."""

    def __init__(
        self,
        policy: str | ModelSource,
        rewards: list[Reward],
        sampling: Sampling,
        validation_sampling: Sampling | None = None,
        engine: RolloutEngine | None = None,
        grader: Grader | None = None,
        dropout: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(policy, **options)
        self.dropout = dropout
        self.rewards = [as_reward(reward) for reward in rewards]
        check_rewards(self.rewards)
        self.sampling = sampling
        self.validation_sampling = validation_sampling or sampling
        self.engine = engine or InProcessEngine()
        self.grader = grader or Grader()

    def setup(self, stage: str) -> None:
        """Check engine, servers, context and gold answers before anything is loaded."""
        if stage == "fit":
            check_trains(self.engine, self.sampling, self.keep_sampling_mask)
        super().setup(stage)
        data = self.data
        prompts = data.prompt_ids if data is not None and data.problems else {}
        longest = max((len(p) for split in prompts.values() for p in split), default=0)
        # a fit that validates on nothing never samples as validation does
        validates = stage != "fit" or "validation" in prompts
        samplings = [self.validation_sampling] if validates else []
        if stage == "fit":
            samplings += map(self.sampling_at, (0, *self.max_tokens_from))
        for sampling in samplings if prompts else ():
            sampling.check_context(longest, self.context_length)
        most = max(sampling.max_tokens for sampling in samplings)
        self.engine.check(self.model_spec(), longest, most)
        self.playing_engine()
        if data is None or not data.problems:
            return
        for split, problems in data.problems.items():
            check_gold_answers(self.grader, problems, f"data.{split}")
        if stage == "fit":
            check_rewarded(self.grader, data.problems.get("train", ()), "data.train")

    def _load_model(self) -> Policy:
        return load_policy(self.source, dropout=self.dropout, **self.loading)

    def configure_model(self) -> None:
        """Load the policy, once, and bind the engine to it."""
        super().configure_model()
        self.engine.bind(self.model_spec())

    def model_spec(self) -> ModelSpec:
        """Return the model that rollouts are of, without its weights before they are loaded."""
        root = Path(self.trainer.default_root_dir)
        prompts = self.data.prompts if isinstance(self.data, HasProblems) else None
        return ModelSpec(
            name=self.source.path,
            tokenizer=self.tokenizer,
            policy=self.policy,
            config=self.policy_config,
            # the working directory stands for none
            folder=None if root.resolve() == Path.cwd() else root,
            turn_end=None if prompts is None else prompts.turn_end(self.tokenizer),
        )

    def validation_step(self, batch: PromptBatch, batch_idx: int) -> dict[str, Any]:
        """Roll out k responses to each held-out problem; callbacks report on them."""
        return self._evaluate(batch, "val")

    def test_step(self, batch: PromptBatch, batch_idx: int) -> dict[str, Any]:
        """Roll out k responses to each test problem."""
        return self._evaluate(batch, "test")

    def predict_step(self, batch: PromptBatch, batch_idx: int) -> Rollout:
        """Roll out k responses to each problem, for rejection sampling."""
        return self._roll_out(batch)

    def _evaluate(self, batch: PromptBatch, stage: str) -> dict[str, Any]:
        rollout = self._roll_out(batch)
        metrics = outcome_metrics(rollout, stage)
        self.log_dict(
            metrics,
            on_epoch=True,
            batch_size=len(rollout.responses),
            sync_dist=True,
            add_dataloader_idx=False,  # held-out documents have a loader of their own
        )
        return {"rollout": rollout, **self.first_token_values(rollout, self.validation_sampling)}

    def sampling_at(self, iteration: int) -> Sampling:
        """Return how responses are sampled in training at an iteration."""
        begun = [first for first in self.max_tokens_from if first <= iteration]
        if not begun:
            return self.sampling
        return replace(self.sampling, max_tokens=self.max_tokens_from[max(begun)])

    def first_token_values(self, rollout: Rollout, sampling: Sampling) -> dict[str, TokenValues]:
        """Return the training forward's values of the first ``num_token_rows`` responses."""
        if not self.num_token_rows:
            return {}
        with self.whole_weights():  # ranks may have unlike numbers of responses
            rows = self.num_token_rows, sampling.temperature, self.micro_batch_tokens
            values = token_values(self.policy, rollout, *rows)
        return {"tokens": values}

    def _roll_out(self, batch: PromptBatch) -> Rollout:
        worker = self.worker(self.validation_sampling, self.seed + VALIDATION_STREAM)
        rows = range(batch.num_prompts)
        with self.whole_weights_for_sampling():
            return worker.collect(batch, rows, Timings(), int(self.iteration))

    @contextmanager
    def whole_weights_for_sampling(self) -> Iterator[None]:
        """Hold all weights on every rank while an engine decodes with them here.

        An engine that takes turns gives its memory up afterwards.
        """
        is_shared = self.engine.capabilities.weights == "shared"
        with self.whole_weights() if is_shared else nullcontext():
            yield
        self.engine.release()

    def make_update(
        self, optimizer: LightningOptimizer, *args: Any, **options: Any
    ) -> tuple[float, float]:
        """Make one update; an optimiser's state that was on the host comes back before."""
        if self.engine.capabilities.runs == "in turns":
            move_states([optimizer.optimizer], self.device)
        return super().make_update(optimizer, *args, **options)

    def whole_weights(self) -> AbstractContextManager[None]:
        """Have all weights of the policy on every rank; one process has them always."""
        return nullcontext() if self.is_alone else whole_weights(self.policy)

    def playing_engine(self) -> RolloutEngine:
        """Return the engine, or what plays episodes with it where the data have environments."""
        data = self.data
        if not (isinstance(data, HasEnvironments) and data.environments):
            return self.engine
        from r1lit.rollout.episodes import with_environments

        return with_environments(self.engine, data.environments, data.turns, data.limits)

    def worker(self, sampling: Sampling, seed: int, training: bool = False) -> RolloutWorker:
        """Return the worker that collects rollouts, its engine at the policy's present weights."""
        version = self.trainer.global_step
        if self.engine.capabilities.runs == "in turns":
            move_states(self.trainer.optimizers, torch.device("cpu"))
        if self.engine.capabilities.weights != "fixed" and self.engine.version != version:
            started = time.perf_counter()
            self.engine.update_weights(self.policy.named_weights(), version)
            self.sync_seconds = time.perf_counter() - started
        return RolloutWorker(
            engine=self.playing_engine(),
            grader=self.grader,
            rewards=self.rewards,
            tokenizer=self.tokenizer,
            sampling=sampling,
            seed=seed,
            device=self.device,
            training=training,
            keep_sampling_mask=self.keep_sampling_mask,
        )

    def update_rows(
        self,
        optimizer: LightningOptimizer,
        rollout: Rollout,
        rows_b: Tensor,
        loss_of: Callable[[Tensor], Tensor],
        *,
        packed: bool,
        skip: bool = False,
        max_grad_norm: float | None = None,
    ) -> tuple[float, float]:
        """Make one update on a minibatch of rows: micro-batches, the loss of each, the step.

        Args:
            optimizer: one of ``self.optimizers()``.
            rollout: of the iteration, over all of its rows.
            rows_b: the minibatch's rows.
            loss_of: returns the loss of a micro-batch's rows, its share of the minibatch's.
            packed: whether rows are computed packed.
            skip: leave out rows of advantage 0.
            max_grad_norm: the module's if left out.

        Returns:
            The minibatch's loss, and its gradient norm before clipping.
        """
        chunks = micro_batches(rollout, rows_b, self.micro_batch_tokens, packed=packed, skip=skip)
        losses = [partial(loss_of, rows_b[chunk]) for chunk in chunks]
        return self.make_update(optimizer, losses, max_grad_norm)

    def teardown(self, stage: str) -> None:
        """Let the verifiers' worker processes go, and what the engine has started."""
        self.grader.close()
        self.engine.close()


def outcome_metrics(rollout: Rollout, stage: str) -> dict[str, float]:
    """Return a rollout's mean rewards and its shares of undecided verdicts, by their logged names.

    A time-out or an error earns what a wrong answer earns, so it is counted by its own name:
    ``train/verifier/timeout`` is the share of responses whose verifier ran out of time.
    """
    statuses = [response.verdict.status for response in rollout.responses]
    metrics = {
        f"{stage}/reward": float(rollout.reward_PG.mean()),
        **{f"{stage}/reward/{n}": float(r.mean()) for n, r in rollout.rewards.items()},
        **{f"{stage}/verifier/{s}": statuses.count(s) / len(statuses) for s in UNDECIDED},
    }
    if rollout.environment_BT is not None:
        from r1lit.rollout.episode_tokens import episode_metrics

        metrics |= episode_metrics(rollout.responses, stage)
    return metrics
