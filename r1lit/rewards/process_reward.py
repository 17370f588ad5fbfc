"""The scores of a trained process reward model: as one reward a response, or a reward a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch

from r1lit.batches import Response
from r1lit.policy.frozen_scorer import FrozenScorer
from r1lit.policy.loading import context_length
from r1lit.policy.step_scores import score_steps
from r1lit.rewards.base import RewardFunction, StepRewards
from r1lit.rewards.reward_model import as_trained
from r1lit.text.conversation import Conversation, question_of
from r1lit.text.scored_text import encode_scored
from r1lit.text.steps import AGGREGATES, Aggregate, step_ends


@dataclass(frozen=True, kw_only=True)
class EncodedSteps:
    """Token ids of prompt and response, where the response's steps end, and which tokens end them.

    There are no ``places`` where a part of the response was cut, or it has no step.
    """

    tokens: tuple[int, ...]
    ends: tuple[int, ...]
    places: tuple[int, ...]


class ProcessReward(RewardFunction):
    """What a process reward model gives a response: its steps' probabilities of being right.

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
        path: a directory that ``ProcessRewardModule`` exported, or another sequence classifier of
            one number, the log-odds of right; that one needs ``template`` and ``separators``.
        name: what its numbers are logged under.
        weight: multiplies the rewards.
        aggregate: the "last" step's probability, the smallest ("min"), or the "product" of all.
        per_step: give every step its own reward.
        separators: what ends a step.
        template: as ``data.template``.
        batch_tokens: of one forward pass, padding included.
        device: where it is computed; the current GPU if there is one.
        dtype: of the weights.
        attention: Hugging Face attention implementation.
        trust_remote_code: run Python code that comes with the model; it has your rights.
    """

    def __init__(
        self,
        path: str,
        name: str = "process",
        weight: float = 1.0,
        aggregate: Aggregate = "min",
        per_step: bool = False,
        separators: list[str] | None = None,
        template: str | None = None,
        batch_tokens: int = 16384,
        device: str | None = None,
        dtype: str = "float32",
        attention: str = "sdpa",
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__(0.0 if per_step else weight)
        if aggregate not in get_args(Aggregate):
            raise ValueError(f"aggregate: {aggregate!r} is not {', '.join(get_args(Aggregate))}")
        self.name = name
        self.step_weight = weight
        self.aggregate: Aggregate = aggregate
        self.per_step = per_step
        self.scorer = FrozenScorer(
            path,
            batch_tokens=batch_tokens,
            device=device,
            dtype=dtype,
            attention=attention,
            trust_remote_code=trust_remote_code,
        )
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
