"""A response under review, and the template that the document is written in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from r1lit.batches import Problem, Status
from r1lit.metrics.language import language_of
from r1lit.text.extract import thinking_and_answer


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A response with its problem and verdict, on its way through the filters.

    ``text`` is the text under review: as generated, later as refined. ``status`` and ``reason`` are
    its verdict's, ``num_tokens`` counts its tokens with EOS, and ``finished`` is false where the
    response was cut at the token limit.
    """

    problem: Problem
    sample: int
    text: str
    status: Status
    reason: str
    num_tokens: int
    finished: bool

    @cached_property
    def parts(self) -> tuple[str, str]:
        """The thinking and the summary, without think tags and white space around them."""
        thinking, summary = thinking_and_answer(self.text)
        return thinking.strip(), summary.strip()

    @property
    def thinking(self) -> str:
        """The chain of thought."""
        return self.parts[0]

    @property
    def summary(self) -> str:
        """What follows the thinking; the whole text without think tags."""
        return self.parts[1]

    @property
    def kind(self) -> str:
        """``meta["kind"]`` of the problem: "reasoning" if missing."""
        return str(self.problem.meta.get("kind") or "reasoning")

    @property
    def language(self) -> str:
        """``meta["language"]`` of the problem, or the language of its question."""
        return str(self.problem.meta.get("language") or language_of(self.problem.question))


@dataclass(frozen=True, kw_only=True)
class ResponseTemplate:
    """The template of the responses to train on.

    ``text`` holds {thinking} and {summary}. R1 prints ``|special_token|<reasoning_process>
    |special_token|<summary>`` for its cold start (arXiv 2501.12948, Sec. 2.3.1); released R1
    models use the think tags for the two tokens, as the default does. To the letter the paper's is
    ``|special_token|{thinking}|special_token|{summary}``. If a chat template ends in ``<think>``,
    leave the first tag out.

    ``without_thinking`` holds {summary} alone, for responses without a chain of thought (R1 gives
    none to a greeting); the default keeps the tags, empty, so that all responses have one format.

    Args:
        text: of a response with thinking; holds {thinking} and {summary}.
        without_thinking: of one without; holds {summary}.
    """

    text: str = "<think> {thinking} </think> {summary}"
    without_thinking: str = "<think> </think> {summary}"

    def __post_init__(self) -> None:
        for key, text, fields in (
            ("response_template.text", self.text, ("{thinking}", "{summary}")),
            ("response_template.without_thinking", self.without_thinking, ("{summary}",)),
        ):
            for field in fields:
                if text.count(field) != 1:
                    raise ValueError(f"{key}: {text!r} does not hold {field} once")

    def write(self, thinking: str, summary: str) -> str:
        """Return the text to train on.

        >>> ResponseTemplate().write("3 + 4 = 7", "It is 7.")
        '<think> 3 + 4 = 7 </think> It is 7.'
        """
        if not thinking:
            return self.without_thinking.replace("{summary}", summary)
        before, _, rest = self.text.partition("{thinking}")
        if "{summary}" in before:  # an unusual order; the fields are filled apart all the same
            before = before.replace("{summary}", summary)
        return before + thinking + rest.replace("{summary}", summary)


R1_TEMPLATE = ResponseTemplate()
"""R1's template, with the think tags for its two special tokens."""
