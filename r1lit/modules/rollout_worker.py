"""Collecting a rollout: completions, verdicts, rewards.

P prompts   G responses per prompt   B = P*G rows, prompt-major   T response tokens
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from r1lit.batches import PromptBatch, Rollout
from r1lit.modules.async_grading import AsyncGrading
from r1lit.modules.step_rewards import step_rewards
from r1lit.rewards import RewardFunction, score
from r1lit.rollout import Completion, Request, RolloutEngine, Sampling
from r1lit.rollout.groups import join_rollouts, mixed_groups, take_groups
from r1lit.verifiers import Grader


@dataclass(kw_only=True)
class Timings:
    """Seconds spent on each part of an iteration.

    What is graded while responses are generated is part of ``rollout``; ``grade`` is what comes
    after. ``sync`` is the last time that the engine was given weights.
    """

    sync: float = 0.0
    rollout: float = 0.0
    grade: float = 0.0

    def metrics(self) -> dict[str, float]:
        """Return them by their logged names."""
        return {f"time/{name}_s": seconds for name, seconds in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class RolloutWorker:
    """Everything between a batch of prompts and a rollout; its advantages are 0 yet.

    ``device`` is where the rollout's tensors are put, the policy's. In ``training`` rewards may
    wait for their iteration; otherwise all are computed, so that evaluation shows them too.
    """

    engine: RolloutEngine
    grader: Grader
    rewards: Sequence[RewardFunction]
    tokenizer: PreTrainedTokenizerBase
    sampling: Sampling
    seed: int
    device: torch.device
    training: bool = False

    def collect(
        self,
        batch: PromptBatch,
        prompt_indices: Sequence[int],
        timings: Timings,
        iteration: int | None = None,
    ) -> Rollout:
        """Return a rollout of some of the batch's prompts."""
        iteration = batch.iteration if iteration is None else iteration
        requests = self.requests(batch, prompt_indices, iteration)
        started = time.perf_counter()
        with self.grading(batch, prompt_indices) as grading:
            completions = self.engine.generate(requests, grading.begin)
            timings.rollout += time.perf_counter() - started
            return self._finish(grading, completions, batch, prompt_indices, timings, iteration)

    def grade(
        self,
        completions: Sequence[Completion],
        batch: PromptBatch,
        prompt_indices: Sequence[int],
        timings: Timings,
        grading: AsyncGrading | None = None,
    ) -> Rollout:
        """Return completions that exist already, of some of the batch's prompts, as a rollout.

        Their ``grading`` may have begun.
        """
        with grading or self.grading(batch, prompt_indices) as grading:
            return self._finish(
                grading, completions, batch, prompt_indices, timings, batch.iteration
            )

    def requests(
        self, batch: PromptBatch, prompt_indices: Sequence[int], iteration: int
    ) -> list[Request]:
        """Return the requests to the engine for some of the batch's prompts."""
        samples, size = batch.samples(prompt_indices), batch.group_size
        return [
            Request(
                prompt=batch.prompts[p],
                samples=tuple(samples[i * size : (i + 1) * size]),
                sampling=self.sampling,
                seed=self.seed,
                iteration=iteration,
            )
            for i, p in enumerate(prompt_indices)
        ]

    def grading(self, batch: PromptBatch, prompt_indices: Sequence[int]) -> AsyncGrading:
        """Return what grades the completions of some of the batch's prompts."""
        problems = [batch.problems[p] for p in prompt_indices for _ in range(batch.group_size)]
        return AsyncGrading(self.grader, self.tokenizer, problems)

    def _finish(
        self,
        grading: AsyncGrading,
        completions: Sequence[Completion],
        batch: PromptBatch,
        prompt_indices: Sequence[int],
        timings: Timings,
        iteration: int,
    ) -> Rollout:
        """Wait for the verdicts, and put the rollout together."""
        started = time.perf_counter()
        responses = grading.finish(completions)
        rewards, total = score(self.rewards, responses, iteration if self.training else None)

        def per_group(values: Sequence[float]) -> Tensor:
            values_B = torch.tensor(values, dtype=torch.float32, device=self.device)
            return values_B.reshape(len(prompt_indices), batch.group_size)

        response_BT, mask_BT, logp_BT = pad(completions, self.tokenizer, self.device)
        begun = [f for f in self.rewards if f.from_iteration <= iteration] if self.training else []
        rollout = Rollout(
            iteration=iteration,
            group_size=batch.group_size,
            prompts=tuple(batch.prompts[p] for p in prompt_indices),
            responses=responses,
            response_BT=response_BT,
            length_B=mask_BT.sum(-1),
            loss_mask_BT=mask_BT,
            logp_sampler_BT=logp_BT,
            logp_old_BT=logp_BT,
            rewards={name: per_group(values) for name, values in rewards.items()},
            reward_PG=per_group(total),
            advantage_BT=torch.zeros_like(logp_BT),
            version_BT=_versions(completions, self.device),
            **step_rewards(begun, responses, response_BT, self.tokenizer),
        )
        timings.grade += time.perf_counter() - started
        return rollout


def pad(
    completions: Sequence[Completion], tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return completions as tensors padded to the longest: tokens, which exist, log-probs; [B, T].

    Text of an engine that returns no tokens is tokenised; log-probs that are not known are 0. (Such
    an engine is refused for training, so that evaluation alone meets them.)
    """
    tokens, logps = [], []
    for completion in completions:
        ids = completion.token_ids
        if ids is None:
            assert completion.text is not None
            ids = torch.tensor(tokenizer(completion.text, add_special_tokens=False)["input_ids"])
        logp = completion.logps
        tokens.append(ids.to(device, torch.long))
        logps.append(torch.zeros(len(ids), device=device) if logp is None else logp.to(device))
    length_B = torch.tensor([len(ids) for ids in tokens], device=device)
    response_BT = pad_sequence(tokens, True, float(tokenizer.pad_token_id))
    mask_BT = torch.arange(response_BT.shape[1], device=device) < length_B[:, None]
    return response_BT, mask_BT, pad_sequence(logps, True)


def _versions(completions: Sequence[Completion], device: torch.device) -> Tensor | None:
    """Return the weights' versions, [B, T]; None of texts, whose tokens are not the engine's."""
    if any(completion.token_ids is None for completion in completions):
        return None
    return pad_sequence([c.versions_T().to(device) for c in completions], True)


def collect_mixed(
    collect: Callable[[Sequence[int]], Rollout], batch: PromptBatch
) -> tuple[Rollout, int]:
    """Fill P groups whose rewards differ: DAPO's dynamic sampling (2503.14476, Eq. 11).

    The first P prompts are rolled out, then as many of the reserve at a time as groups are still
    missing. If the reserve runs out, unmixed groups of the first round fill up the batch: they
    carry no advantage, and the number of updates stays the same.

    Returns:
        The rollout of P groups, and how many unmixed groups were dropped from it.
    """
    mixed_rollouts, unmixed_rollouts = [], []
    next_prompt, missing = 0, batch.num_prompts
    while missing and next_prompt < len(batch.problems):
        prompt_indices = range(next_prompt, min(next_prompt + missing, len(batch.problems)))
        rollout = collect(prompt_indices)
        next_prompt = prompt_indices.stop
        mixed = mixed_groups(rollout)
        unmixed = [p for p in range(rollout.num_prompts) if p not in mixed]
        if mixed:
            mixed_rollouts.append(take_groups(rollout, mixed))
        if unmixed:
            unmixed_rollouts.append(take_groups(rollout, unmixed))
        missing -= len(mixed)
    num_unmixed = sum(r.num_prompts for r in unmixed_rollouts)
    if missing:
        fill = take_groups(join_rollouts(unmixed_rollouts), range(missing))
        mixed_rollouts.append(fill)
    return join_rollouts(mixed_rollouts), num_unmixed - missing
