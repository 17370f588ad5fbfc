"""Rewards of trained models: a number a response, or one for each of its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, get_args

import torch

from r1lit.batches import Response
from r1lit.errors import check_above
from r1lit.policy.held import HeldModels
from r1lit.policy.loading import context_length
from r1lit.policy.scalar_head import (
    MEAN,
    STD,
    normalised,
    reference_statistic,
    score_rows,
    score_steps,
)
from r1lit.policy.scalar_loading import FrozenScorer
from r1lit.policy.source import ModelSource
from r1lit.rewards.base import RewardFunction, StepRewards
from r1lit.text.prompts import Conversation, question_of
from r1lit.text.scored_text import (
    AGGREGATES,
    Aggregate,
    ScoreOn,
    encode_scored,
    scored_part,
    step_ends,
)

FLOOR = 3.0  # standard deviations below the mean: what a response with nothing to see is worth


class RewardModel(RewardFunction):
    """Score of a response by a reward model, less the mean over the reference set it came with.

    R1 scores general prompts so (Nature 645:633, Methods): the helpful reward model on the final
    summary only, the safety one on the whole response. Question and response become text by the
    function that made the training text, with ``template`` and ``score_on`` of the training unless
    they are given; a prompt too long for the model loses its beginning.

    A response without text to score (thinking that never ends, for a model that scores the
    summary) is unlike anything the model was trained on. It is not scored and gets ``missing``.

    The weights are loaded at the first call, never trained and not part of any checkpoint.

    Args:
        model: a directory that ``RewardModule`` exported, or another sequence classifier of one
            number; one of others needs ``template``, ``score_on`` and a ``reward_mean`` in
            config.json.
        name: what its numbers are logged under.
        weight: multiplies the reward.
        score_on: "summary" or "response".
        template: as ``data.template``.
        think_prefilled: the policy's prompts end in ``<think>``.
        clip: the reward is kept within [-clip, clip].
        missing: the reward where there is nothing to see; three standard deviations of the
            reference set's rewards below 0 if left out.
        batch_tokens: of one forward pass, padding included.
        device: where it is computed; the current GPU if there is one.
    """

    held = HeldModels(whole=1)

    def __init__(
        self,
        model: str | ModelSource,
        name: str = "reward_model",
        weight: float = 1.0,
        score_on: ScoreOn | None = None,
        template: str | None = None,
        think_prefilled: bool = False,
        clip: float | None = None,
        missing: float | None = None,
        batch_tokens: int = 16384,
        device: str | None = None,
    ) -> None:
        super().__init__(weight)
        check_above("clip", clip, 0, "null does not clip", finite=False)
        if missing is not None and not math.isfinite(missing):
            raise ValueError(f"missing: {missing} is not a finite number")
        self.name = name
        self.scorer = FrozenScorer(model, batch_tokens, device)
        path = self.scorer.source.path
        self.config = self.scorer.config
        self.score_on = cast(ScoreOn, as_trained(self.config, path, "score_on", score_on))
        self.template = as_trained(self.config, path, "template", template)
        reference_statistic(self.config, MEAN)
        self.missing = (
            -FLOOR * reference_statistic(self.config, STD) if missing is None else missing
        )
        self.think_prefilled = think_prefilled
        self.clip = clip

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one normalised number a response."""
        texts = [scored_part(r.text, self.score_on, self.think_prefilled) for r in responses]
        reward_by_pair = {
            (question_of(response.problem), text): self.missing
            for response, text in zip(responses, texts, strict=True)
        }
        pairs = [pair for pair in reward_by_pair if pair[1]]
        if pairs:
            rows = encode_scored(
                self.scorer.tokenizer,
                [question for question, _ in pairs],
                [text for _, text in pairs],
                template=self.template,
                max_tokens=context_length(self.config),
            )
            tokens = [row.tokens for row in rows]
            raw = score_rows(self.scorer.model, tokens, self.scorer.batch_tokens)
            rewards = normalised(self.config, raw).tolist()
            reward_by_pair |= zip(pairs, rewards, strict=True)
        return [
            self._clipped(reward_by_pair[question_of(response.problem), text])
            for response, text in zip(responses, texts, strict=True)
        ]

    def _clipped(self, reward: float) -> float:
        return reward if self.clip is None else max(-self.clip, min(self.clip, reward))


def as_trained(config: object, path: str, key: str, given: str | None) -> str:
    """Return a setting of the training; a given one must equal it.

    Raises:
        ValueError: if the two differ, or both are missing.
    """
    trained = getattr(config, f"reward_{key}", None)
    if trained is None and given is None:
        raise ValueError(f"{key}: the config.json of {path!r} does not say; name it")
    if None not in (trained, given) and trained != given:
        raise ValueError(f"{key}: {given!r}, but {path!r} was trained with {trained!r}")
    return str(trained if given is None else given)


@dataclass(frozen=True, kw_only=True)
class EncodedSteps:
    """Token ids of prompt and response, where the response's steps end, and which tokens end them.

    There are no ``places`` where a part of the response was cut, or it has no step.
    """

    tokens: tuple[int, ...]
    ends: tuple[int, ...]
    places: tuple[int, ...]


class ProcessReward(RewardFunction):
    """Scores of a response by a process reward model: its steps' probabilities of being right.

    As one reward they are combined by ``aggregate``; so it reranks responses too, in
    ``r1lit.search.RewardScorer`` (Let's Verify 2305.20050 takes the product, Math-Shepherd
    2312.08935 the minimum, search-and-learn the last). A response without a step gets 0.

    With ``per_step`` each probability, times ``weight``, is the reward of the step's last token
    (Math-Shepherd, §3.4), for ``GAE`` and ``ProcessSupervision``; the combined one is logged, and
    no part of the response's reward. Without a rule beside it such a model is hacked: more steps
    that look right earn more (R1, v1 §4.2.1).

    Responses are cut into steps by the separators, and put into the template, that the model was
    trained with. The weights are loaded at the first call, never trained and not part of any
    checkpoint.

    Args:
        model: a directory that ``ProcessRewardModule`` exported, or another sequence classifier of
            one number, the log-odds of right; that one needs ``template`` and ``separators``.
        name: what its numbers are logged under.
        weight: multiplies the rewards.
        aggregate: the "last" step's probability, the smallest ("min"), or the "product" of all.
        per_step: give every step its own reward.
        separators: what ends a step.
        template: as ``data.template``.
        batch_tokens: of one forward pass, padding included.
        device: where it is computed; the current GPU if there is one.
    """

    held = HeldModels(whole=1)

    def __init__(
        self,
        model: str | ModelSource,
        name: str = "process",
        weight: float = 1.0,
        aggregate: Aggregate = "min",
        per_step: bool = False,
        separators: list[str] | None = None,
        template: str | None = None,
        batch_tokens: int = 16384,
        device: str | None = None,
    ) -> None:
        super().__init__(0.0 if per_step else weight)
        if aggregate not in get_args(Aggregate):
            raise ValueError(f"aggregate: {aggregate!r} is not {', '.join(get_args(Aggregate))}")
        self.name = name
        self.step_weight = weight
        self.aggregate: Aggregate = aggregate
        self.per_step = per_step
        self.scorer = FrozenScorer(model, batch_tokens, device)
        path = self.scorer.source.path
        config = self.scorer.config
        given = separators or getattr(config, "process_separators", None)
        if given is None:
            raise ValueError(
                f"separators: the config.json of {path!r} does not say what ends a step, so it is"
                " no export of ProcessRewardModule; name them"
            )
        step_ends("", given)  # checks them
        self.separators: list[str] = given
        self.template = as_trained(config, path, "template", template)
        self._known: dict[tuple[str | Conversation, str], StepRewards] = {}

    def forget(self) -> None:
        """Score anew what was scored before: the model has changed."""
        self._known = {}

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number from 0 to 1 a response."""
        combine = AGGREGATES[self.aggregate]
        return [combine(s.rewards) if s.rewards else 0.0 for s in self.steps(responses)]

    def step_rewards(self, responses: Sequence[Response]) -> list[StepRewards] | None:
        """Return the probability of each step, times the weight, if it rewards steps."""
        if not self.per_step:
            return None
        return [
            StepRewards(ends=s.ends, rewards=tuple(self.step_weight * r for r in s.rewards))
            for s in self.steps(responses)
        ]

    def steps(self, responses: Sequence[Response]) -> list[StepRewards]:
        """Return each response's steps with their probabilities of being right.

        A prompt that is too long for the model loses its beginning; a response of which even so a
        part would be lost has no steps.
        """
        keys = [(question_of(response.problem), response.text) for response in responses]
        if not all(key in self._known for key in keys):  # the same batch is requested twice
            distinct = list(dict.fromkeys(keys))
            self._known = dict(zip(distinct, self._score(distinct), strict=True))
        return [self._known[key] for key in keys]

    def _score(self, pairs: Sequence[tuple[str | Conversation, str]]) -> list[StepRewards]:
        encoded = self.encode(pairs)
        chosen = [i for i, own in enumerate(encoded) if own.places]
        logits = score_steps(
            self.scorer.model,
            [encoded[i].tokens for i in chosen],
            [encoded[i].places for i in chosen],
            self.scorer.batch_tokens,
        )
        found = [StepRewards() for _ in pairs]
        for i, own in zip(chosen, logits, strict=True):
            scores = torch.tensor(own).sigmoid().tolist()
            found[i] = StepRewards(ends=encoded[i].ends, rewards=tuple(scores))
        return found

    def encode(self, pairs: Sequence[tuple[str | Conversation, str]]) -> list[EncodedSteps]:
        """Return the model's input for questions and responses."""
        if not pairs:
            return []
        rows = encode_scored(
            self.scorer.tokenizer,
            [question for question, _ in pairs],
            [text for _, text in pairs],
            template=self.template,
            max_tokens=context_length(self.scorer.config),
        )
        ends = [step_ends(text, self.separators) for _, text in pairs]
        return [
            EncodedSteps(
                tokens=row.tokens,
                ends=tuple(own),
                places=row.places(self.scorer.tokenizer, own) if row.response_start > 0 else (),
            )
            for row, own in zip(rows, ends, strict=True)
        ]
