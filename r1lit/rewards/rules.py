"""Rewards by rule: accuracy, format, language, length and repetition."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from r1lit.batches import Response
from r1lit.errors import check_at_least
from r1lit.metrics.language import check_language, language_consistency, language_of
from r1lit.metrics.words import repeated_share
from r1lit.rewards.base import RewardFunction
from r1lit.text.extract import thinking_and_answer


class Accuracy(RewardFunction):
    """1 for a right answer, else 0: the rule-based reward of DeepSeek-R1-Zero.

    It repeats the verdict. A time-out or an error of the verifier gives 0 like a wrong answer; the
    verdict's status still distinguishes them.

    Args:
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "accuracy"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return each verdict's value."""
        return [response.verdict.value for response in responses]


_THINK = ("<think>", "</think>")
_ANSWER = ("<answer>", "</answer>")
_WHOLE = re.compile(r"\s*<think>.*</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)
_SUMMARISED = re.compile(r"\s*<think>.*</think>(.*)", re.DOTALL)


class Format(RewardFunction):
    """1 if the whole response is ``<think>…</think> <answer>…</answer>``, else 0.

    DeepSeek-R1-Zero asks for thinking between think tags and the answer between answer tags. Made
    exact here: each of the four tags stands once, in this order; before, between and behind the two
    parts there is only whitespace; the answer has something visible in it. The paper sets no
    minimum length of thinking, so empty thinking has the format. A response cut at the token limit
    lacks its last tag.

    Args:
        think_prefilled: the prompt template ended in ``<think>``, so the response must not open it
            again.
        answer_tags: with False, what follows ``</think>`` is a summary without tags, as released
            R1 models write it, and must have something visible in it. Answer tags are then text.
        weight: multiplies the reward.
    """

    name = "format"

    def __init__(
        self, weight: float = 1.0, think_prefilled: bool = False, answer_tags: bool = True
    ) -> None:
        super().__init__(weight)
        self.think_prefilled = think_prefilled
        self.answer_tags = answer_tags

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return 1.0 or 0.0 a response."""
        return [
            float(
                has_format(
                    response.text,
                    think_prefilled=self.think_prefilled,
                    answer_tags=self.answer_tags,
                )
            )
            for response in responses
        ]


class SpecialTokenFormat(RewardFunction):
    """1 if the response is ``token<reasoning_process>token<summary>``, else 0.

    R1's cold start prints ``|special_token|<reasoning_process>|special_token|<summary>``: the token
    stands twice, the first time at the very start, and the summary has something visible in it. It
    must be text to the tokenizer or an added token that is not special, as special tokens are left
    out of responses when they are decoded.

    Args:
        token: the text of the token.
        think_prefilled: the prompt template ended in the first token, so the response has only the
            second.
        weight: multiplies the reward.
    """

    name = "special_token_format"

    def __init__(
        self, token: str = "|special_token|", weight: float = 1.0, think_prefilled: bool = False
    ) -> None:
        super().__init__(weight)
        if not token.strip():
            raise ValueError(f"token: {token!r} has nothing visible in it")
        self.token = token
        self.think_prefilled = think_prefilled

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return 1.0 or 0.0 a response."""
        return [float(self._has_format(response.text)) for response in responses]

    def _has_format(self, text: str) -> bool:
        parts = (self.token + text if self.think_prefilled else text).split(self.token)
        return len(parts) == 3 and not parts[0].strip() and _is_visible(parts[2])


def has_format(text: str, *, think_prefilled: bool = False, answer_tags: bool = True) -> bool:
    """Decide whether a response has the format of ``Format``.

    >>> has_format("<think> 3 + 4 </think> <answer> 7 </answer>")
    True
    >>> has_format("<think> 3 + 4 </think> The answer: <answer> 7 </answer>")
    False
    >>> has_format("3 + 4 </think> The answer is 7.", think_prefilled=True, answer_tags=False)
    True
    """
    if think_prefilled:
        text = "<think>" + text
    if any(text.count(tag) != 1 for tag in (_THINK + _ANSWER if answer_tags else _THINK)):
        return False
    match = (_WHOLE if answer_tags else _SUMMARISED).fullmatch(text)
    return match is not None and _is_visible(match.group(1))


def _is_visible(text: str) -> bool:
    return any(c.isprintable() and not c.isspace() for c in text)


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


class CosineLength(RewardFunction):
    """Cosine length scaling, "Demystifying Long CoT" (arXiv 2502.03373): takes accuracy's place.

    With n tokens of at most L = ``max_tokens``, and values r_0 at no length and r_L at L, which a
    right response takes from ``right`` and any other from ``wrong``::

        r_L + (r_0 - r_L) (1 + cos(pi n / L)) / 2   if it finished within L;   ``exceeded`` if not

    The default values are ours: short right responses are worth most, and a wrong one loses less
    the longer it tried. A verdict of a time-out or an error counts as wrong, as in ``Accuracy``.
    With L = 100, a right response of 50 tokens gives 0.75.

    Args:
        max_tokens: L, the longest response there can be.
        right: values of a right response at no length and at L.
        wrong: likewise of any other.
        exceeded: value of a response that did not finish.
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "cosine_length"

    def __init__(
        self,
        max_tokens: int,
        right: tuple[float, float] = (1.0, 0.5),
        wrong: tuple[float, float] = (-1.0, -0.5),
        exceeded: float = -1.0,
        weight: float = 1.0,
    ) -> None:
        super().__init__(weight)
        check_at_least("max_tokens", max_tokens, 1)
        for key, values in (("right", right), ("wrong", wrong), ("exceeded", (exceeded,))):
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{key}: {values} are not finite numbers")
        self.max_tokens = max_tokens
        self.right = right
        self.wrong = wrong
        self.exceeded = exceeded

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number a response."""
        return [self._value(response) for response in responses]

    def _value(self, response: Response) -> float:
        if not response.finished or response.num_sampled > self.max_tokens:
            return self.exceeded
        at_0, at_max = self.right if response.verdict.status == "right" else self.wrong
        share = response.num_sampled / self.max_tokens
        return at_max + (at_0 - at_max) * (1 + math.cos(math.pi * share)) / 2


class GroupLength(RewardFunction):
    """The length reward of Kimi k1.5 (arXiv 2501.12599, section 2.3.3), from -0.5 to 0.5.

    Among the responses to one problem, from the shortest (min tokens) to the longest (max)::

        lambda = 0.5 - (n - min) / (max - min);   lambda if right, min(0, lambda) if not

    and 0 for all where max = min. Of right responses with 10, 15 and 20 tokens the rewards are 0.5,
    0 and -0.5. The responses to a problem are those with equal ``uid``.

    Args:
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "group_length"

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return one number a response."""
        lengths: dict[str, list[int]] = {}
        for response in responses:
            lengths.setdefault(response.problem.uid, []).append(response.num_sampled)
        return [self._value(response, lengths[response.problem.uid]) for response in responses]

    def _value(self, response: Response, lengths: list[int]) -> float:
        shortest, longest = min(lengths), max(lengths)
        if shortest == longest:
            return 0.0
        value = 0.5 - (response.num_sampled - shortest) / (longest - shortest)
        return value if response.verdict.status == "right" else min(0.0, value)


class Overlong(RewardFunction):
    """Soft overlong punishment, DAPO (arXiv 2503.14476), Eq. 13.

    With L = ``max_tokens``, C = ``buffer_tokens`` and n the tokens of the response::

        0 if n <= L - C;    ((L - C) - n) / C if L - C < n <= L;    -1 if n > L

    Beyond the paper: a response that did not finish gets -1 at any length. With L = 100 and C = 20,
    90 tokens give -0.5.

    Args:
        max_tokens: L, the longest response there can be.
        buffer_tokens: C, over how many tokens before that the punishment grows.
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "overlong"

    def __init__(self, max_tokens: int, buffer_tokens: int, weight: float = 1.0) -> None:
        super().__init__(weight)
        if not 0 < buffer_tokens < max_tokens:
            raise ValueError(
                f"buffer_tokens: {buffer_tokens} is not between 1 and max_tokens - 1 ="
                f" {max_tokens - 1}"
            )
        self.max_tokens = max_tokens
        self.buffer_tokens = buffer_tokens

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return a number from -1 to 0 a response."""
        return [self._punishment(r.num_sampled) if r.finished else -1.0 for r in responses]

    def _punishment(self, num_tokens: int) -> float:
        excess = num_tokens - (self.max_tokens - self.buffer_tokens)
        return -min(1.0, excess / self.buffer_tokens) if excess > 0 else 0.0


class Repetition(RewardFunction):
    """Minus the share of n-grams that came before in the response, from -1 to 0.

    The n-gram penalty of "Demystifying Long CoT" (arXiv 2502.03373) punishes each token of a
    repeated n-gram; here it is one number a response: (unique n-grams / n-grams) - 1, and 0 for a
    response shorter than n. Words, single Han and kana characters, and punctuation marks are the
    grams, in lower case. With n = 2, "a b a b a b" has 5 bigrams, 2 unique: -0.6.

    Args:
        n: how many words make an n-gram.
        weight: multiplies its numbers in the sum of rewards.
    """

    name = "repetition"

    def __init__(self, n: int = 20, weight: float = 1.0) -> None:
        super().__init__(weight)
        check_at_least("n", n, 1)
        self.n = n

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return a number from -1 to 0 a response."""
        return [-repeated_share(response.text, self.n) for response in responses]
