"""A reward for one language: the paper's language consistency."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.metrics.language import check_language, language_consistency, language_of
from r1lit.rewards.base import RewardFunction
from r1lit.text.extract import thinking_and_answer


class LanguageConsistency(RewardFunction):
    """The share of words of the target language in the thinking: R1's Eq. 7, from 0 to 1.

    The target is ``language`` if given, else ``problem.meta["language"]``, else the language of the
    question. With ``think_prefilled``, the prompt template ended in ``<think>``: a response without
    tags is then thinking that was cut off, not an answer without thinking. Without thinking, or
    without a word in it, the reward is 0. The limits of the metric are those of
    ``language_consistency``.

    Args:
        language: the target, as "en" or "zh"; that of the problem or its question if left out.
        think_prefilled: whether the prompt template ends in ``<think>``.
        same_script: also distinguish languages of one script, sentence by sentence.
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "language_consistency"

    def __init__(
        self,
        language: str | None = None,
        think_prefilled: bool = False,
        same_script: bool = True,
        weight: float = 1.0,
    ) -> None:
        super().__init__(weight)
        if language is not None:
            check_language(language)
        self.language = language
        self.think_prefilled = think_prefilled
        self.same_script = same_script

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return a number from 0 to 1 a response.

        Raises:
            ValueError: if a problem's ``meta["language"]`` is not a known code.
        """
        return [self._consistency(response) for response in responses]

    def _consistency(self, response: Response) -> float:
        problem = response.problem
        language = self.language or problem.meta.get("language") or language_of(problem.question)
        text = "<think>" + response.text if self.think_prefilled else response.text
        thinking, _ = thinking_and_answer(text)
        return language_consistency(thinking, language, self.same_script)
