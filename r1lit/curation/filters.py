"""Filters of single candidates.

"we have filtered out chain-of-thought with mixed languages, long paragraphs, and code blocks. For
each prompt, we sample multiple responses and retain only the correct ones" (DeepSeek-R1, arXiv
2501.12948v1, Sec. 2.3.3: rejection sampling from the RL checkpoint).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from r1lit.batches import Verdict
from r1lit.curation.base import Filter, check_fraction
from r1lit.curation.candidate import Candidate
from r1lit.curation.grams import words
from r1lit.errors import check_at_least
from r1lit.metrics.language import SCRIPTS_OF
from r1lit.metrics.language_consistency import language_consistency
from r1lit.metrics.words import count_words, prose
from r1lit.rewards.format import has_format
from r1lit.rewards.repetition import repeated_share

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_BLANK = re.compile(r"\n[^\S\n]*\n")


class Correct(Filter):
    """Keeps responses with the verdict "right".

    R1, Sec. 2.3.3: "retain only the correct ones"; Sec. 2.3.1: R1-Zero's outputs for the cold start
    likewise. A refined text is graded again.
    """

    again = True

    def reason(self, candidate: Candidate) -> str | None:
        """Return the verdict's status and reason unless it is right."""
        return why_not_right(candidate)


def why_not_right(verdict: Candidate | Verdict) -> str | None:
    """Return status and reason unless the status is "right"."""
    if verdict.status == "right":
        return None
    return f"{verdict.status}: {verdict.reason}".rstrip(": ")


class Finished(Filter):
    """Drops responses cut at the token limit, which have no end to learn; ours."""

    def reason(self, candidate: Candidate) -> str | None:
        """Return the length if it was cut."""
        return None if candidate.finished else f"cut after {candidate.num_tokens} tokens"


class LanguageConsistent(Filter):
    """Drops chains of thought in mixed languages: R1's "mixed languages", Sec. 2.3.3.

    The metric is R1's own (Nature, Eq. 7): words of the target language in the thinking / words in
    the thinking. The target is ``meta["language"]``, or the language of the question. A chain
    without words (empty, or formulas alone) is kept.

    Args:
        least: the least share of words of the target language.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(self, least: float = 0.9, kinds: Sequence[str] | None = None) -> None:
        super().__init__(kinds)
        check_fraction("least", least)
        self.least = least

    def reason(self, candidate: Candidate) -> str | None:
        """Return the share if it is too low."""
        thinking, language = candidate.thinking, candidate.language
        if language not in SCRIPTS_OF:
            raise ValueError(
                f"language: problem {candidate.problem.uid!r} names {language!r}, which is none of"
                f" {sorted(SCRIPTS_OF)}"
            )
        found = language_consistency(thinking, language)
        if found >= self.least:
            return None
        if found == 0 and not count_words(prose(thinking), symbols_are_words=True):
            return None
        return f"{found:.3f} of the words are {language}"


class LongParagraphs(Filter):
    """Drops chains with a long paragraph: R1's "long paragraphs", Sec. 2.3.3.

    A paragraph is what stands between two blank lines of the thinking. The paper gives no number;
    those here are ours.

    Args:
        max_words: the most words of a paragraph (see `r1lit.curation.grams`); None: any number.
        max_characters: the most characters; None: any number.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(
        self,
        max_words: int | None = 500,
        max_characters: int | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        if max_words is None and max_characters is None:
            raise ValueError("max_words: give it, max_characters, or both")
        for key, value in (("max_words", max_words), ("max_characters", max_characters)):
            if value is not None:
                check_at_least(key, value, 1)
        self.max_words = max_words
        self.max_characters = max_characters

    def reason(self, candidate: Candidate) -> str | None:
        """Return the length of the first paragraph that is too long."""
        for paragraph in _BLANK.split(candidate.thinking):
            num_characters = len(paragraph.strip())
            if self.max_characters is not None and num_characters > self.max_characters:
                return f"a paragraph of {num_characters} characters"
            # a word has a character at least
            if self.max_words is not None and num_characters > self.max_words:
                num_words = len(words(paragraph))
                if num_words > self.max_words:
                    return f"a paragraph of {num_words} words"
        return None


class CodeBlocks(Filter):
    """Drops chains with fenced code: R1's "code blocks", Sec. 2.3.3.

    A line of the thinking that begins with three backticks or tildes is a fence. The summary may
    hold code.
    """

    again = True

    def reason(self, candidate: Candidate) -> str | None:
        """Return a constant reason if there is a fence."""
        return "fenced code in the thinking" if _FENCE.search(candidate.thinking) else None


class Format(Filter):
    """Keeps responses in the required format, by the rule of `r1lit.rewards.Format`.

    R1-Zero asks for ``<think>…</think> <answer>…</answer>`` (arXiv 2501.12948v1, Table 1); from the
    cold start on a summary follows the thinking (Sec. 2.3.1), which is ``answer_tags: false``.

    Args:
        answer_tags: whether the answer stands between tags with nothing beside it.
        think_prefilled: the prompt ended in ``<think>``, so the response does not open it.
        kinds: see ``Filter``.
    """

    def __init__(
        self,
        answer_tags: bool = False,
        think_prefilled: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        self.answer_tags = answer_tags
        self.think_prefilled = think_prefilled

    def reason(self, candidate: Candidate) -> str | None:
        """Return a constant reason if the format is wrong."""
        if has_format(
            candidate.text, think_prefilled=self.think_prefilled, answer_tags=self.answer_tags
        ):
            return None
        return "not in the required format"


class Length(Filter):
    """Keeps responses of ``min_tokens`` to ``max_tokens`` tokens, EOS included.

    R1's rows hold 32,768 tokens (supplement, SFT), so a longer one could not be trained on.

    Args:
        min_tokens: the fewest tokens.
        max_tokens: the most; null is any number.
    """

    def __init__(
        self,
        min_tokens: int = 1,
        max_tokens: int | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        check_at_least("min_tokens", min_tokens, 1)
        if max_tokens is not None and max_tokens < min_tokens:
            raise ValueError(f"max_tokens: {max_tokens} is less than min_tokens: {min_tokens}")
        self.min_tokens = min_tokens
        self.max_tokens = max_tokens

    def reason(self, candidate: Candidate) -> str | None:
        """Return the length if it is out of range."""
        length = candidate.num_tokens
        if length < self.min_tokens or (self.max_tokens is not None and length > self.max_tokens):
            return f"{length} tokens"
        return None


class RepeatedText(Filter):
    """Drops responses that repeat themselves.

    R1-Zero's outputs have "poor readability" (Sec. 2.2.4). This metric is ours: the share of
    n-grams that stood before in the response (`r1lit.rewards.repetition.repeated_share`).

    Args:
        most: the largest share that is kept.
        n: words and marks of an n-gram.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(self, most: float = 0.3, n: int = 20, kinds: Sequence[str] | None = None) -> None:
        super().__init__(kinds)
        check_fraction("most", most)
        check_at_least("n", n, 1)
        self.most = most
        self.n = n

    def reason(self, candidate: Candidate) -> str | None:
        """Return the share if it is too large."""
        found = repeated_share(candidate.text, self.n)
        return None if found <= self.most else f"{found:.3f} of the {self.n}-grams stood before"
