"""Instruction following: the checks of IFEval (arXiv 2311.07911).

The 25 checkers are lm-eval's, an optional dependency (``pip install "r1lit[ifeval]"``), run in
worker processes that can be killed. ``ifeval_worker`` lists what differs from the reference.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import extract_answer, thinking_and_answer
from r1lit.verifiers.base import Verifier, conclude, timed
from r1lit.verifiers.pool import ItemReply, WorkerPool

MAX_CHARACTERS = 400_000
PACKAGES = ("lm_eval", "langdetect", "nltk", "immutabledict")
INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "keywords:existence": ("keywords",),
    "keywords:frequency": ("keyword", "frequency", "relation"),
    "keywords:forbidden_words": ("forbidden_words",),
    "keywords:letter_frequency": ("letter", "let_frequency", "let_relation"),
    "language:response_language": ("language",),
    "length_constraints:number_sentences": ("num_sentences", "relation"),
    "length_constraints:number_paragraphs": ("num_paragraphs",),
    "length_constraints:number_words": ("num_words", "relation"),
    "length_constraints:nth_paragraph_first_word": (
        "num_paragraphs", "nth_paragraph", "first_word",
    ),
    "detectable_content:number_placeholders": ("num_placeholders",),
    "detectable_content:postscript": ("postscript_marker",),
    "detectable_format:number_bullet_lists": ("num_bullets",),
    "detectable_format:constrained_response": (),
    "detectable_format:number_highlighted_sections": ("num_highlights",),
    "detectable_format:multiple_sections": ("section_spliter", "num_sections"),
    "detectable_format:json_format": (),
    "detectable_format:title": (),
    "combination:two_responses": (),
    "combination:repeat_prompt": ("prompt_to_repeat",),
    "startend:end_checker": ("end_phrase",),
    "change_case:capital_word_frequency": ("capital_frequency", "capital_relation"),
    "change_case:english_capital": (),
    "change_case:english_lowercase": (),
    "punctuation:no_comma": (),
    "startend:quotation": (),
}  # fmt: skip
"""The 25 instruction types and the arguments that each needs."""


class IFEvalVerifier(Verifier):
    """Decides whether every instruction of a problem is followed.

    ``problem.meta`` holds ``instruction_id_list`` and ``kwargs``, one mapping an instruction. The
    text that is judged is the last ``<answer>`` outside thinking, else everything outside thinking.
    ``loose`` also accepts it without its first line, its last line or its asterisks. ``reason``
    says what was followed and what was not; there is no majority vote, so ``canonical`` is None.

    Args:
        loose: also accept the text without first line, last line or asterisks.
        timeout_s: seconds that a response may take.
        num_workers: processes that work on responses side by side.
    """

    needs = (("instruction_id_list",), ("kwargs",))
    needs_answer = False
    in_background = True

    def __init__(self, loose: bool = False, timeout_s: float = 10.0, num_workers: int = 2) -> None:
        self.loose = loose
        self.splitter: str | None = None
        self.pool = WorkerPool(Path(__file__).with_name("ifeval_worker.py"), num_workers, timeout_s)

    def check(self) -> None:
        """Check that the checkers are installed."""
        _require_packages()

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        return self.verify_batch([response], [problem])[0]

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order.

        Raises:
            ValueError: if ``meta`` lacks an instruction list, or an instruction its arguments.
            ImportError: if lm-eval or what its checkers need is not installed.
        """
        _require_packages()
        verdicts: dict[int, Verdict] = {}
        requests: dict[int, dict[str, Any]] = {}
        for row, (response, problem) in enumerate(zip(responses, problems, strict=True)):
            start = time.perf_counter()
            instructions = instructions_of(problem)
            text = judged_text(response)
            if not text.strip():
                verdicts[row] = timed(conclude("unparsed", None, "nothing outside thinking"), start)
            elif len(text) > MAX_CHARACTERS:
                reason = f"is longer than {MAX_CHARACTERS} characters"
                verdicts[row] = timed(conclude("unparsed", None, reason), start)
            else:
                requests[row] = {"text": text, "instructions": instructions, "loose": self.loose}
        replies = self.pool.run(list(requests.values())) if requests else []
        for (row, request), reply in zip(requests.items(), replies, strict=True):
            verdicts[row] = self._verdict(reply, [name for name, _ in request["instructions"]])
        return [verdicts[row] for row in range(len(responses))]

    def close(self) -> None:
        """Kill the worker processes; a later call starts new ones."""
        self.pool.close()

    def _verdict(self, reply: ItemReply, names: Sequence[str]) -> Verdict:
        if "followed" not in reply.content:
            return Verdict(value=0.0, seconds=reply.seconds, **reply.content)
        self._tell(reply.content["splitter"])
        results = list(zip(names, reply.content["followed"], strict=True))
        right = all(followed for _, followed in results)
        parts = [
            f"{word} {', '.join(chosen)}"
            for word, wanted in (("followed", True), ("not followed", False))
            if (chosen := [name for name, followed in results if followed == wanted])
        ]
        return Verdict(
            value=float(right),
            status="right" if right else "wrong",
            canonical=None,
            reason="; ".join(parts),
            seconds=reply.seconds,
        )

    def _tell(self, splitter: str) -> None:
        if self.splitter is None and splitter != "punkt_tab":
            warnings.warn(
                f"IFEval: sentences are split by {splitter}: nltk's punkt_tab is not installed"
                " (python -c \"import nltk; nltk.download('punkt_tab')\"). It matters to"
                " number_sentences alone",
                stacklevel=3,
            )
        self.splitter = splitter


def judged_text(response: str) -> str:
    """Return the part of a response that instructions are about.

    >>> judged_text("<think> hm </think> Yes"), judged_text("<think> hm"), judged_text(" Yes")
    ('Yes', '', ' Yes')
    """
    answer = extract_answer(response)
    if answer is not None:
        return answer
    thinking, text = thinking_and_answer(response)
    return text.strip() if thinking else text


def instructions_of(problem: Problem) -> list[tuple[str, dict[str, Any]]]:
    """Return a problem's instructions with their arguments; those that are None are left out.

    Raises:
        ValueError: naming what is missing or unknown. The reference samples a missing argument at
            random, which can be no verdict.
    """
    where = f"problem {problem.uid!r}"
    names, arguments = problem.meta.get("instruction_id_list"), problem.meta.get("kwargs")
    if not isinstance(names, list | tuple) or not names:
        raise ValueError(f"meta: instruction_id_list of {where} is {names!r}, not a list of names")
    if not isinstance(arguments, list | tuple) or len(arguments) != len(names):
        raise ValueError(
            f"meta: kwargs of {where} is {arguments!r}, not a list of {len(names)} mappings"
        )
    found = []
    for name, given in zip(names, arguments, strict=True):
        if name not in INSTRUCTIONS:
            raise ValueError(
                f"meta: instruction_id_list of {where} names {name!r}, none of the"
                f" {len(INSTRUCTIONS)} types: {', '.join(INSTRUCTIONS)}"
            )
        kwargs = {key: value for key, value in (given or {}).items() if value is not None}
        missing = [key for key in INSTRUCTIONS[name] if key not in kwargs]
        if missing:
            raise ValueError(f"meta: kwargs of {where} give {name!r} no {' and no '.join(missing)}")
        found.append((name, {key: kwargs[key] for key in INSTRUCTIONS[name]}))
    return found


def _require_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"the IFEval verifiers need {', '.join(missing)}: pip install 'r1lit[ifeval]'"
        )
