"""Refiners rewrite kept responses so that they read well.

R1's cold start came from "gathering DeepSeek-R1-Zero outputs in a readable format, and refining the
results through post-processing by human annotators" (arXiv 2501.12948v1, Sec. 2.3.1). A refiner
returns the text with the thinking between think tags and the summary after them, or why there is
none. A refined text is graded again before it is kept.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r1lit.batches import Problem
from r1lit.curation.candidate import Context, OfKinds
from r1lit.rewards.base import import_path
from r1lit.text.extract import extract_final, thinking_and_answer

_THINK = re.compile(r"</?think>")
_ANSWER = re.compile(r"</?answer>[^\S\n]?")

Rule = Callable[..., str | None]
"""``rule(problem, response, **options)`` returns the refined text, or None to drop it."""


@dataclass(frozen=True, kw_only=True)
class Refined:
    """A rewritten response; if there is none, ``text`` is None and ``why`` is the reason."""

    text: str | None
    why: str = ""


class Refiner(OfKinds, ABC):
    """Rewrites responses to problems of ``kinds``; others stay as they are."""

    def begin(self, context: Context) -> None:
        """Prepare; called once before the first response of a run."""

    @abstractmethod
    def refine(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[Refined]:
        """Return one ``Refined`` for each response; ``problems`` are aligned with them."""


class RuleRefiner(Refiner):
    """A plain callable as a refiner.

    Args:
        rule: the callable, or in YAML its dotted path: ``my_rules.tidy``. It takes the problem
            (`r1lit.batches.Problem`) and the response, and returns the refined text, or None.
        options: keyword arguments of every call.
        kinds: see ``Refiner``.
    """

    def __init__(
        self,
        rule: str | Rule,
        options: Mapping[str, Any] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        self.rule = rule if isinstance(rule, str) else getattr(rule, "__qualname__", repr(rule))
        self.options = dict(options or {})
        self._rule = import_path(rule, "rule") if isinstance(rule, str) else rule
        if not callable(self._rule):
            raise ValueError(f"rule: {rule!r} is not a function")

    def refine(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[Refined]:
        """Return what the rule returns for each.

        Raises:
            ValueError: if it returns something else than a text or None.
        """
        refined = []
        for problem, response in zip(problems, responses, strict=True):
            text = self._rule(problem, response, **self.options)
            if text is not None and not isinstance(text, str):
                raise ValueError(
                    f"rule: {self.rule} returned {type(text).__name__} for problem"
                    f" {problem.uid!r}, where a text or None is needed"
                )
            refined.append(Refined(text=text, why="" if text else f"{self.rule} dropped it"))
        return refined


class ToR1Template(Refiner):
    r"""Rewrites ``<think>…</think> <answer>…</answer>`` as a chain and a summary in words.

    R1's template: ``|special_token|<reasoning_process>|special_token|<summary>`` (Sec. 2.3.1). The
    final answer is the last ``<answer>`` or ``\boxed{}`` outside the thinking. A response without
    think tags, as after few-shot and direct prompting, is a chain as a whole: its final answer
    stays in it, and the summary repeats it. A response without a final answer is dropped.

    Args:
        summary: the wording, with {answer} in it.
        summaries: other wordings by ``meta["language"]`` of the problem, such as
            ``{zh: "得到 <answer> {answer} </answer>。"}``.
        kinds: see ``Refiner``.
    """

    def __init__(
        self,
        summary: str = "The answer is <answer> {answer} </answer>.",
        summaries: Mapping[str, str] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        self.summary = summary
        self.summaries = dict(summaries or {})
        for text in (summary, *self.summaries.values()):
            if "{answer}" not in text:
                raise ValueError(f"summary: {text!r} does not contain {{answer}}")

    def refine(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[Refined]:
        """Return each rewritten, without a model."""
        return [self._refine(p, r) for p, r in zip(problems, responses, strict=True)]

    def _refine(self, problem: Problem, response: str) -> Refined:
        answer = extract_final(response)
        if not answer:
            return Refined(text=None, why="no final answer to put into the summary")
        thinking, rest = thinking_and_answer(response)
        if _THINK.search(response) is None:
            thinking = _ANSWER.sub("", rest)
        wording = self.summaries.get(str(problem.meta.get("language")), self.summary)
        summary = wording.replace("{answer}", answer)
        return Refined(text=f"<think> {thinking.strip()} </think> {summary}")
