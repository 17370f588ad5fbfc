"""Candidates (responses under review), the document's template, and the interface of filters."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from r1lit.batches import Problem, Status
from r1lit.metrics.language import language_of
from r1lit.rollout import ModelSpec
from r1lit.text.extract import thinking_and_answer
from r1lit.text.prompts import Conversation


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A response with its problem and verdict, on its way through the filters.

    ``text`` is the text under review: as generated, later as refined. ``status`` and ``reason`` are
    its verdict's, ``num_tokens`` counts its tokens with EOS, and ``finished`` is false where the
    response was cut at the token limit. Of an episode ``turns`` are the messages after the prompt,
    and ``num_invalid`` counts the turns that the environment could not use.
    """

    problem: Problem
    sample: int
    text: str
    status: Status
    reason: str
    num_tokens: int
    finished: bool
    turns: tuple[Mapping[str, Any], ...] = ()
    num_invalid: int = 0

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
        """The text after the thinking; the whole text without think tags."""
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
                    raise ValueError(f"{key}: {text!r} does not contain {field} once")

    def write(self, thinking: str, summary: str) -> str:
        """Return the text to train on.

        >>> ResponseTemplate().write("3 + 4 = 7", "It is 7.")
        '<think> 3 + 4 = 7 </think> It is 7.'
        """
        if not thinking:
            return self.without_thinking.replace("{summary}", summary)
        before, _, rest = self.text.partition("{thinking}")
        if "{summary}" in before:  # then each field is filled on its own side of {thinking}
            before = before.replace("{summary}", summary)
        return before + thinking + rest.replace("{summary}", summary)


R1_TEMPLATE = ResponseTemplate()
"""R1's template, with the think tags for its two special tokens."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The surroundings of candidates, which filters and refiners may need.

    ``seed`` decides every random choice, files are kept in ``folder``, and ``model`` is the policy
    that generated the responses. ``opening`` returns the conversation that an episode began with.
    """

    seed: int
    folder: Path
    model: ModelSpec
    opening: Callable[[Problem], Conversation] | None = None


class OfKinds:
    """A base of filters and refiners: applies to problems of some ``kinds``, or to all (None)."""

    def __init__(self, kinds: Sequence[str] | None = None) -> None:
        if isinstance(kinds, str) or (kinds is not None and not kinds):
            raise ValueError(f"kinds: {kinds!r} is not a list of kinds; null means every kind")
        self.kinds = None if kinds is None else tuple(kinds)

    def applies(self, candidate: Candidate) -> bool:
        """Return whether the candidate's problem is of one of ``kinds``."""
        return self.kinds is None or candidate.kind in self.kinds

    def describe(self) -> dict[str, Any]:
        """Return class and settings, for the data card."""
        settings = {k: v for k, v in vars(self).items() if not k.startswith("_")}
        return {"class": type(self).__name__, **{k: _plain(v) for k, v in settings.items()}}


class Filter(OfKinds, ABC):
    """Returns a drop reason for each candidate, or None; later filters get only those kept.

    A filter overrides ``reason``, for one candidate, or ``reasons``, which compares several.
    ``name`` is its name in the data card.

    Args:
        kinds: the kinds of problems (``meta["kind"]``) it applies to; None: all.
    """

    name: str
    again = False
    """True where the filter is applied again to texts that a refiner changed."""

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def read(self) -> None:
        """Read the data that the filter needs, before any response is generated.

        Raises:
            ValueError: if the data are not there.
        """

    def begin(self, context: Context) -> None:
        """Forget all earlier candidates; called once before the first candidate of a run."""

    def drop(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Return the drop reason of each candidate, or None; other kinds are kept."""
        mine = [row for row, candidate in enumerate(candidates) if self.applies(candidate)]
        whys: list[str | None] = [None] * len(candidates)
        reasons = self.reasons([candidates[row] for row in mine])
        for row, why in zip(mine, reasons, strict=True):
            whys[row] = why
        return whys

    def reasons(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Return the drop reason of each candidate, or None.

        Candidates are sorted by problem and sample, and all of a problem come in one call. The
        result must not depend on how many problems come in one call.
        """
        return [self.reason(candidate) for candidate in candidates]

    def reason(self, candidate: Candidate) -> str | None:
        """Return the drop reason of one candidate, or None."""
        raise NotImplementedError(f"{type(self).__name__} defines neither reason nor reasons")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    describe = getattr(value, "describe", None)
    return describe() if callable(describe) else getattr(value, "name", type(value).__name__)
