"""Everything between a batch of prompts and a rollout.

P prompts   G responses per prompt   B = P*G rows, prompt-major   T response tokens
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Candidates, PromptBatch, Response, Rollout
from r1lit.rewards import RewardFunction, score
from r1lit.rollout import Completion, Request, RolloutEngine, Sampling
from r1lit.rollout.grading import BackgroundGrading
from r1lit.rollout.left_out import leave_out_undecided_groups
from r1lit.rollout.progress import reported
from r1lit.verifiers import Grader


@dataclass(kw_only=True)
class Timings:
    """Seconds spent on each part of an iteration.

    What is graded while responses are generated is part of ``rollout``; ``grade`` is what comes
    after. ``sync`` is the last time that the engine was given weights. ``evaluation`` are the
    seconds of all verdicts, wherever they were spent, ``environment`` those of all steps of
    environments. ``wait``, a part of ``rollout``, is for responses begun earlier. ``num_left_out``
    counts groups that training leaves out because a verdict did not come or an episode failed.
    """

    sync: float = 0.0
    rollout: float = 0.0
    wait: float = 0.0
    environment: float = 0.0
    grade: float = 0.0
    evaluation: float = 0.0
    evaluation_longest: float = 0.0
    num_left_out: int = 0

    def add_verdicts(self, responses: Sequence[Response]) -> None:
        """Count the time of verdicts."""
        seconds = [response.verdict.seconds for response in responses]
        self.evaluation += sum(seconds)
        self.evaluation_longest = max(self.evaluation_longest, *seconds)
        played = [response.transcript for response in responses]
        self.environment += sum(transcript.seconds for transcript in played if transcript)

    def add_wait(self, seconds: float) -> None:
        """Count seconds of waiting for responses that were begun earlier."""
        self.rollout += seconds
        self.wait += seconds

    def metrics(self) -> dict[str, float]:
        """Return the seconds by their logged names."""
        seconds = {k: v for k, v in vars(self).items() if k != "num_left_out"}
        hidden = 1 - min(1.0, self.grade / self.evaluation) if self.evaluation else 0.0
        return {
            **{f"time/{name}_s": value for name, value in seconds.items()},
            "time/evaluation_hidden": hidden,
            "train/num_groups_left_out": float(self.num_left_out),
        }


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
    keep_sampling_mask: bool = False

    @property
    def with_candidates(self) -> bool:
        """True where training uses log-probs among the tokens that top-k and top-p leave."""
        return self.training and self.keep_sampling_mask and bool(self.sampling.cuts)

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
            watched = reported(grading.begin, len(prompt_indices) * batch.group_size)
            completions = self.engine.generate(requests, watched)
            timings.rollout += time.perf_counter() - started
            return self._finish(grading, completions, batch, prompt_indices, timings, iteration)

    def grade(
        self,
        completions: Sequence[Completion],
        batch: PromptBatch,
        prompt_indices: Sequence[int],
        timings: Timings,
        grading: BackgroundGrading | None = None,
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
                problem=batch.problems[p],
                with_candidates=self.with_candidates,
            )
            for i, p in enumerate(prompt_indices)
        ]

    def grading(self, batch: PromptBatch, prompt_indices: Sequence[int]) -> BackgroundGrading:
        """Return the background grading of completions of some of the batch's prompts."""
        problems = [batch.problems[p] for p in prompt_indices for _ in range(batch.group_size)]
        return BackgroundGrading(self.grader, self.tokenizer, problems)

    def _finish(
        self,
        grading: BackgroundGrading,
        completions: Sequence[Completion],
        batch: PromptBatch,
        prompt_indices: Sequence[int],
        timings: Timings,
        iteration: int,
    ) -> Rollout:
        """Wait for the verdicts, and put the rollout together."""
        started = time.perf_counter()
        graded = enumerate(grading.finish(completions))
        responses = tuple(replace(r, group=row // batch.group_size) for row, r in graded)
        rewards, total = score(self.rewards, responses, iteration if self.training else None)

        def per_group(values: Sequence[float]) -> Tensor:
            values_B = torch.tensor(values, dtype=torch.float32, device=self.device)
            return values_B.reshape(len(prompt_indices), batch.group_size)

        response_BT, mask_BT, logp_BT = pad(completions, self.tokenizer, self.device)
        begun = [f for f in self.rewards if f.from_iteration <= iteration] if self.training else []
        of_steps = [own for f in begun if (own := f.step_rewards(responses)) is not None]
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
            candidates=_candidates(completions) if self.with_candidates else None,
        )
        if of_steps:
            from r1lit.rollout.step_rewards import add_step_rewards

            rollout = add_step_rewards(rollout, of_steps, self.tokenizer)
        if any(completion.environment_T is not None for completion in completions):
            from r1lit.rollout.episode_tokens import add_environment_tokens

            rollout = add_environment_tokens(rollout, completions)
        if self.training:
            rollout, num_left_out = leave_out_undecided_groups(rollout, self.grader)
            timings.num_left_out += num_left_out
        timings.add_verdicts(responses)
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


def _candidates(completions: Sequence[Completion]) -> tuple[Candidates, ...]:
    candidates = tuple(c.candidates for c in completions if c.candidates is not None)
    assert len(candidates) == len(completions), "the engine returns candidates"
    return candidates
