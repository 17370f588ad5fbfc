"""The reward of a trained reward model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from r1lit.batches import Response
from r1lit.policy.frozen_scorer import FrozenScorer
from r1lit.policy.loading import context_length
from r1lit.policy.scalar import MEAN, STD, normalised, reference_statistic, score_rows
from r1lit.rewards.base import RewardFunction
from r1lit.text.conversation import question_of
from r1lit.text.scored_text import ScoreOn, encode_scored, scored_part

FLOOR = 3.0  # standard deviations below the mean: what a response with nothing to see is worth


class RewardModel(RewardFunction):
    """What a reward model gives a response, less the mean over the reference set it came with.

    R1 scores general prompts so (Nature 645:633, Methods): the helpful reward model on the final
    summary only, the safety one on the whole response. Question and response become text by the
    function that made the training text, with ``template`` and ``score_on`` of the training unless
    they are given; a prompt too long for the model loses its beginning.

    A response without text to score (thinking that never ends, for a model that scores the
    summary) is unlike anything the model was trained on. It is not scored and gets ``missing``.

    The weights are loaded at the first call, never trained and not part of any checkpoint.

    Args:
        path: a directory that ``RewardModule`` exported, or another sequence classifier of one
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
        dtype: of the weights.
        attention: Hugging Face attention implementation.
        trust_remote_code: run Python code that comes with the model; it has your rights.
    """

    def __init__(
        self,
        path: str,
        name: str = "reward_model",
        weight: float = 1.0,
        score_on: ScoreOn | None = None,
        template: str | None = None,
        think_prefilled: bool = False,
        clip: float | None = None,
        missing: float | None = None,
        batch_tokens: int = 16384,
        device: str | None = None,
        dtype: str = "float32",
        attention: str = "sdpa",
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__(weight)
        if clip is not None and not clip > 0:
            raise ValueError(f"clip: {clip} is not above 0; null does not clip")
        if missing is not None and not math.isfinite(missing):
            raise ValueError(f"missing: {missing} is not a finite number")
        self.name = name
        self.scorer = FrozenScorer(
            path,
            batch_tokens=batch_tokens,
            device=device,
            dtype=dtype,
            attention=attention,
            trust_remote_code=trust_remote_code,
        )
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
