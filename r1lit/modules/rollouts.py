"""Rollouts: prompts -> completions -> verdicts -> rewards; and evaluation by responses.

P prompts   G responses per prompt   B = P*G rows, prompt-major   T response tokens
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, cast

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from r1lit.batches import (
    Candidates,
    Problem,
    PromptBatch,
    Response,
    Rollout,
    Status,
    TokenValues,
    Verdict,
)
from r1lit.environments import SingleTurn
from r1lit.groups import join_rollouts, take_groups
from r1lit.modules.base import PolicyModule
from r1lit.modules.sharding import whole_weights
from r1lit.modules.updates import micro_batches, move_states, token_values
from r1lit.policy import ModelSource, Policy, load_policy
from r1lit.rewards import Reward, RewardFunction, as_reward, check_rewards, score
from r1lit.rollout import (
    Completion,
    InProcessEngine,
    ModelSpec,
    Request,
    RolloutEngine,
    Sampling,
    check_trains,
    texts_of,
)
from r1lit.rollout.episodes import episode_metrics, playing, with_episodes, without_undecided
from r1lit.text.scored_text import pieces, token_places
from r1lit.verifiers import Grader, check_gold_answers

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
    """What it took to hand the engine the weights that it generates from."""
    keep_sampling_mask = False
    """Whether training computes log-probs among the tokens that top-k and top-p leave."""
    max_tokens_from: Mapping[int, int] = MappingProxyType({})
    """What replaces the most tokens of a response in training, from an iteration on."""

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
        self._dropout = dropout
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
            sampling.check_fits(longest, self.context_length)
        most = max(sampling.max_tokens for sampling in samplings)
        self.engine.check(self.model_spec(), longest, most)
        playing(self.engine, data)
        if data is None or not data.problems:
            return
        for split, problems in data.problems.items():
            check_gold_answers(self.grader, problems, f"data.{split}")

    def _load_model(self) -> Policy:
        return load_policy(self.source, dropout=self._dropout, **self._loading)

    def configure_model(self) -> None:
        """Load the policy, once, and bind the engine to it."""
        super().configure_model()
        self.engine.bind(self.model_spec())

    def model_spec(self) -> ModelSpec:
        """Return the model that rollouts are of, without its weights before they are loaded."""
        root = Path(self.trainer.default_root_dir)
        prompts = getattr(self.data, "prompts", None)
        return ModelSpec(
            name=self.source.path,
            tokenizer=self.tokenizer,
            policy=getattr(self, "policy", None),
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
        return {"rollout": rollout, **self.tokens_of(rollout, self.validation_sampling)}

    def sampling_at(self, iteration: int) -> Sampling:
        """Return how responses are sampled in training at an iteration."""
        begun = [first for first in self.max_tokens_from if first <= iteration]
        if not begun:
            return self.sampling
        return replace(self.sampling, max_tokens=self.max_tokens_from[max(begun)])

    def tokens_of(self, rollout: Rollout, sampling: Sampling) -> dict[str, TokenValues]:
        """Return the training forward's values of the first ``num_token_rows`` responses."""
        if not self.num_token_rows:
            return {}
        with self.whole_weights():  # ranks may have unlike numbers of responses
            values = token_values(self.policy, rollout, self.num_token_rows, sampling.temperature)
        return {"tokens": values}

    def _roll_out(self, batch: PromptBatch) -> Rollout:
        worker = self.worker(self.validation_sampling, self.seed + VALIDATION_STREAM)
        rows = range(batch.num_prompts)
        with self.weights_to_sample():
            return worker.collect(batch, rows, Timings(), int(self.iteration))

    @contextmanager
    def weights_to_sample(self) -> Iterator[None]:
        """Hold all weights on every rank while an engine decodes with them here.

        An engine that takes turns gives its memory up afterwards.
        """
        with self.whole_weights() if self.engine.shares_weights else nullcontext():
            yield
        self.engine.release()

    def make_update(
        self, optimizer: LightningOptimizer, *args: Any, **options: Any
    ) -> tuple[float, float]:
        """Make one update; an optimiser's state that was on the host comes back before."""
        if self.engine.takes_turns:
            move_states([optimizer.optimizer], self.device)
        return super().make_update(optimizer, *args, **options)

    def whole_weights(self) -> AbstractContextManager[None]:
        """Have all weights of the policy on every rank; one process has them always."""
        return nullcontext() if self.is_alone else whole_weights(self.policy)

    def worker(self, sampling: Sampling, seed: int, training: bool = False) -> RolloutWorker:
        """Return what collects rollouts, its engine at the policy's present weights."""
        version = self.trainer.global_step
        if self.engine.takes_turns:
            move_states(self.trainer.optimizers, torch.device("cpu"))
        if self.engine.takes_weights and self.engine.version != version:
            started = time.perf_counter()
            self.engine.update_weights(self.policy.named_weights(), version)
            self.sync_seconds = time.perf_counter() - started
        plays = bool(getattr(self.data, "environments", None))
        return RolloutWorker(
            engine=playing(self.engine, self.data) if plays else self.engine,
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
    return {
        f"{stage}/reward": float(rollout.reward_PG.mean()),
        **{f"{stage}/reward/{n}": float(r.mean()) for n, r in rollout.rewards.items()},
        **{f"{stage}/verifier/{s}": statuses.count(s) / len(statuses) for s in UNDECIDED},
        **(episode_metrics(rollout.responses, stage) if rollout.environment_BT is not None else {}),
    }


@dataclass(kw_only=True)
class Timings:
    """Seconds spent on each part of an iteration.

    What is graded while responses are generated is part of ``rollout``; ``grade`` is what comes
    after. ``sync`` is the last time that the engine was given weights. ``evaluation`` are the
    seconds of all verdicts, wherever they were spent, ``environment`` those of all steps of
    environments. ``wait``, a part of ``rollout``, is for responses begun earlier. ``num_left_out``
    counts groups that training leaves out because a verdict did not come.
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
        """Return them by their logged names."""
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
        """Whether to train on log-probs among the tokens that top-k and top-p leave."""
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
                problem=batch.problems[p],
                with_candidates=self.with_candidates,
            )
            for i, p in enumerate(prompt_indices)
        ]

    def grading(self, batch: PromptBatch, prompt_indices: Sequence[int]) -> AsyncGrading:
        """Return what grades the completions of some of the batch's prompts."""
        problems = [batch.problems[p] for p in prompt_indices for _ in range(batch.group_size)]
        return AsyncGrading(SingleTurn(self.grader), self.tokenizer, problems)

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
            candidates=_candidates(completions) if self.with_candidates else None,
            **step_rewards(begun, responses, response_BT, self.tokenizer),
        )
        if any(completion.environment_T is not None for completion in completions):
            rollout = with_episodes(rollout, completions)
        if self.training and any(self.grader.verifier_of(r.problem).left_out for r in responses):
            rollout, num_left_out = without_undecided(rollout, self.grader)
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


THREADS = 8  # at least: each waits for worker processes, whose number is the verifiers' affair


class AsyncGrading:
    """Grades the completions of one rollout, some of them while others are still generated.

    The verdict on a response does not depend on when its grading begins. Only verifiers that work
    ``in_background`` begin early; the others are called in this thread at the end, all rows at
    once. Use as a context manager: after an error, gradings under way are not waited for.

    Args:
        environment: decides.
        tokenizer: turns tokens into the text that is graded.
        problems: what each of the B rows answers.
    """

    def __init__(
        self,
        environment: SingleTurn,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Problem],
    ) -> None:
        self.environment = environment
        self.tokenizer = tokenizer
        self.problems = problems
        most = max(THREADS, environment.num_workers(problems))
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="grading")
        self._begun: list[tuple[list[int], Future[list[Response]]]] = []

    def begin(self, rows: Sequence[int], completions: Sequence[Completion]) -> None:
        """Begin to grade rows that have ended; an engine's ``on_finished``."""
        early = {
            row: completion
            for row, completion in zip(rows, completions, strict=True)
            if self.environment.decides_early(self.problems[row])
        }
        if early:
            future = self._threads.submit(self._grade, list(early), list(early.values()))
            self._begun.append((list(early), future))

    def decided(self) -> dict[int, Verdict]:
        """Return the verdicts that there are by now, by their rows."""
        done = [(rows, f.result()) for rows, f in self._begun if f.done() and not f.exception()]
        return {r: x.verdict for rows, own in done for r, x in zip(rows, own, strict=True)}

    def finish(self, completions: Sequence[Completion]) -> tuple[Response, ...]:
        """Return the B graded responses, in order.

        Raises:
            Exception: what the environment raised, about an early response too.
        """
        begun = [(rows, future) for rows, future in self._begun if not future.cancel()]
        rest = sorted(set(range(len(completions))).difference(*(rows for rows, _ in begun)))
        graded = dict(zip(rest, self._grade(rest, [completions[r] for r in rest]), strict=True))
        for rows, future in begun:
            graded.update(zip(rows, future.result(), strict=True))
        return tuple(graded[row] for row in range(len(completions)))

    def _grade(self, rows: Sequence[int], completions: Sequence[Completion]) -> list[Response]:
        texts = texts_of(completions, self.tokenizer)
        problems = [self.problems[row] for row in rows]
        known = [c.verdict or (c.transcript.verdict if c.transcript else None) for c in completions]
        return [
            Response(
                text=text,
                problem=problem,
                verdict=verdict,
                num_tokens=completion.num_tokens,
                finished=completion.finished,
                version=completion.version,
                num_environment_tokens=completion.num_environment_tokens,
                transcript=completion.transcript,
            )
            for text, problem, verdict, completion in zip(
                texts,
                problems,
                self.environment.verdicts(texts, problems, known),
                completions,
                strict=True,
            )
        ]

    def __enter__(self) -> AsyncGrading:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=error is None, cancel_futures=True)


def step_rewards(
    functions: Sequence[RewardFunction],
    responses: Sequence[Response],
    response_BT: Tensor,
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Tensor]:
    """Return ``reward_BT`` and ``step_end_BT`` of a rollout; nothing if no function rewards steps.

    Args:
        functions: those that count in this iteration; they have been called with the responses.
        responses: with the texts that the functions have seen.
        response_BT: their tokens.
        tokenizer: of the tokens.

    Raises:
        ValueError: if steps of an episode of several turns are rewarded.
    """
    given = [own for f in functions if (own := f.step_rewards(responses)) is not None]
    if not given:
        return {}
    decode = cast(Callable[[list[int]], str], partial(tokenizer.decode, skip_special_tokens=True))
    reward_BT = torch.zeros(response_BT.shape, device=response_BT.device)
    step_end_BT = torch.zeros_like(response_BT, dtype=torch.bool)
    for row, response in enumerate(responses):
        if response.transcript is not None and any(own[row].ends for own in given):
            raise ValueError(
                "rewards: steps are rewarded at places of a text, and the tokens of an episode of"
                " several turns are not those of its text; reward its turns by StepResult.reward"
            )
        texts = pieces(decode, response_BT[row, : response.num_tokens].tolist())
        for own in given:
            places = token_places(texts, own[row].ends)
            for place, reward in zip(places, own[row].rewards, strict=True):
                reward_BT[row, place] += reward
                step_end_BT[row, place] = True
    return {"reward_BT": reward_BT, "step_end_BT": step_end_BT}


def mixed_groups(rollout: Rollout) -> list[int]:
    """Return the groups whose rewards are not all equal: those that teach something."""
    reward_PG = rollout.reward_PG
    if rollout.environment_BT is not None and rollout.reward_BT is not None:  # rewards of turns
        reward_PG = reward_PG + rollout.reward_BT.sum(-1).view_as(reward_PG)
    spread_P = reward_PG.amax(-1) - reward_PG.amin(-1)
    return (spread_P > 0).nonzero().squeeze(-1).tolist()
