"""Collecting a rollout: responses, verdicts, rewards, advantages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Generation, PromptBatch, Response, Rollout
from r1lit.modules.async_grading import AsyncGrading
from r1lit.objectives import AdvantageEstimator
from r1lit.policy import Policy
from r1lit.rewards import RewardFunction, score
from r1lit.rollout import RolloutEngine, Sampling
from r1lit.rollout.groups import join_rollouts, mixed_groups, take_groups
from r1lit.verifiers import Grader


@dataclass(kw_only=True)
class Timings:
    """Seconds spent on each part of an iteration.

    What is judged while responses are drawn is part of ``rollout``; ``grade`` is what comes after.
    """

    rollout: float = 0.0
    grade: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RolloutWorker:
    """Everything between a batch of prompts and the rollout an objective is maximised on."""

    engine: RolloutEngine
    grader: Grader
    rewards: Sequence[RewardFunction]
    tokenizer: PreTrainedTokenizerBase
    sampling: Sampling
    seed: int
    advantage: AdvantageEstimator | None = None

    def collect(
        self,
        policy: Policy,
        batch: PromptBatch,
        rows: Sequence[int],
        timings: Timings,
        iteration: int | None = None,
    ) -> Rollout:
        """Roll out problems ``rows`` of the batch. Without ``advantage``, advantages are 0."""
        iteration = batch.iteration if iteration is None else iteration
        prompts = tuple(batch.prompts[p] for p in rows)
        started = time.perf_counter()
        with self._grading(batch, rows) as grading:
            generation = self.engine.generate(
                policy,
                self.tokenizer,
                prompts,
                group_size=batch.group_size,
                sampling=self.sampling,
                seed=self.seed,
                iteration=iteration,
                samples=batch.samples(rows),
                on_end=grading.begin,
            )
            if not bool(generation.logp_BT.isfinite().all()):
                raise ValueError(
                    f"the policy's log-probs are not finite in the rollout of iteration"
                    f" {iteration}: its weights are broken; resume from the last checkpoint, with"
                    " less learning rate"
                )
            timings.rollout += time.perf_counter() - started
            return self._finish(grading, generation, batch, rows, timings, iteration)

    def judged(
        self,
        generation: Generation,
        batch: PromptBatch,
        rows: Sequence[int],
        timings: Timings,
        iteration: int,
    ) -> Rollout:
        """Return responses to problems ``rows`` as a rollout, with rewards and advantages."""
        with self._grading(batch, rows) as grading:
            return self._finish(grading, generation, batch, rows, timings, iteration)

    def _grading(self, batch: PromptBatch, rows: Sequence[int]) -> AsyncGrading:
        problems = [batch.problems[p] for p in rows for _ in range(batch.group_size)]
        return AsyncGrading(self.grader, self.tokenizer, problems)

    def _finish(
        self,
        grading: AsyncGrading,
        generation: Generation,
        batch: PromptBatch,
        rows: Sequence[int],
        timings: Timings,
        iteration: int,
    ) -> Rollout:
        started = time.perf_counter()
        responses = respond(grading, generation)
        # in evaluation every reward is computed, so that the curve of one that waits shows too
        training_iteration = None if self.advantage is None else iteration
        rewards, total = score(self.rewards, responses, training_iteration)
        shape = (len(rows), batch.group_size)
        device = generation.response_BT.device
        reward_PG = torch.tensor(total, dtype=torch.float32, device=device).reshape(shape)
        advantage_PG = (
            torch.zeros_like(reward_PG) if self.advantage is None else self.advantage(reward_PG)
        )
        timings.grade += time.perf_counter() - started
        return Rollout(
            iteration=iteration,
            group_size=batch.group_size,
            prompts=tuple(batch.prompts[p] for p in rows),
            responses=responses,
            response_BT=generation.response_BT,
            mask_BT=generation.mask_BT,
            logp_old_BT=generation.logp_BT,
            rewards={
                name: torch.tensor(values, dtype=torch.float32, device=device).reshape(shape)
                for name, values in rewards.items()
            },
            reward_PG=reward_PG,
            advantage_B=advantage_PG.reshape(-1),
        )


def respond(grading: AsyncGrading, generation: Generation) -> tuple[Response, ...]:
    """Return the responses of a generation with their verdicts."""
    tokens = [
        row[mask].tolist()
        for row, mask in zip(generation.response_BT, generation.mask_BT, strict=True)
    ]
    return tuple(
        Response(
            text=text,
            problem=problem,
            verdict=verdict,
            num_tokens=len(row),
            finished=finished,
        )
        for (text, verdict), problem, row, finished in zip(
            grading.finish(tokens),
            grading.problems,
            tokens,
            generation.finished_B.tolist(),
            strict=True,
        )
    )


def collect_mixed(collect: Callable[[range], Rollout], batch: PromptBatch) -> tuple[Rollout, int]:
    """Fill P groups whose rewards differ: DAPO's dynamic sampling (2503.14476, Eq. 11).

    The first P prompts are rolled out, then as many of the reserve at a time as groups are still
    missing. If the reserve runs out, unmixed groups of the first round fill up the batch: they
    carry no advantage, and the number of updates stays the same.

    Returns:
        The rollout of P groups, and how many unmixed groups were dropped from it.
    """
    wanted = batch.num_prompts
    drawn, next_prompt, spare = [], 0, []
    missing = wanted
    while missing and next_prompt < len(batch.problems):
        rows = range(next_prompt, min(next_prompt + missing, len(batch.problems)))
        rollout = collect(rows)
        next_prompt = rows.stop
        mixed = mixed_groups(rollout)
        unmixed = [p for p in range(len(rows)) if p not in mixed]
        if mixed:
            drawn.append(take_groups(rollout, mixed))
        if unmixed:
            spare.append(take_groups(rollout, unmixed))
        missing -= len(mixed)
    num_unmixed = sum(r.num_prompts for r in spare)
    if missing:
        drawn.append(take_groups(join_rollouts(spare), range(missing)))
    return join_rollouts(drawn), num_unmixed - missing
