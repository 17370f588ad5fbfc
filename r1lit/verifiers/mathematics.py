r"""Mathematics: equality of an answer and the gold answer.

Whole numbers are compared here. Everything else goes to math-verify, in worker processes that can
be killed: its own time limit is ``signal.alarm``, which off the main thread raises or silently
scores 0, and which cannot interrupt one long multiplication.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import extract_final
from r1lit.text.notation import (
    label_and_value,
    only_number,
    other_words,
    plain_answer,
    side_by_side,
    spelled_number,
    words_of,
)
from r1lit.text.plain_numbers import MAX_CHARACTERS, number_of
from r1lit.text.units import other_measure, without_long_symbol, without_symbol, without_units
from r1lit.verifiers.base import Verifier, conclude, timed
from r1lit.verifiers.last_expression import last_expression
from r1lit.verifiers.pool import WorkerPool

MAX_NESTING = 20
MAX_VOTE = 200
_END = re.compile(r"\s*(?<!\\)[.,;]+$")
_COMMA = re.compile(r"(?<=[0-9])(?:,\\!|\{,\})\s*(?=[0-9])")
_TIE = re.compile(r"(?<=[\w}])~(?=\S)")
_OPTION = re.compile(r"^\\?[a-z]*\{?\(?[A-J]\)?\}?$")
_PLAIN_NUMBER = re.compile(r"^[-+]?[0-9][0-9,]*(?:\.[0-9]+)?$", re.ASCII)
_ABOUT = re.compile(r"^(?:\\approx(?![A-Za-z])|≈)\s*")
_MARKS = re.compile(r"\\text\{[^\w{}]+\}")
_GOES_ON = re.compile(r"\.\.\s*\$?$")
_QUOTED = re.compile(r"^([\"'“])([^\"'“”]*)[\"'”]$")
_HUGE = re.compile(r"^[-+]?[0-9.]+[eE][-+]?[0-9]{4,}$", re.ASCII)


class MathVerifier(Verifier):
    r"""Decides about mathematics: ``problem.answer`` is the gold answer, in LaTeX or plain.

    The answer taken is the last ``<answer>`` or ``\boxed{}`` outside thinking. With
    ``last_expression``, a response that has neither is read at its end (``the answer is 5``, the
    last ``$…$``): for scoring, not for training. Words that follow a plain number are its unit and
    are dropped (``72 clips``), unless they change its value (``5 million``). ``canonical`` names
    the value, so that ``1/2`` and ``0.5`` vote together. An answer that takes longer than
    ``timeout_s`` has status ``timeout``; one that ends its worker process (memory, a crash) has
    status ``error``.

    Args:
        timeout_s: seconds that an answer may take.
        num_workers: processes that work on responses side by side.
        last_expression: read a response without ``<answer>`` and box at its end.

    >>> problem = Problem(uid="", question="", answer="1,080", source="")
    >>> MathVerifier().verify("<answer> $1080$ </answer>", problem).status
    'right'
    """

    needs = (("answer",),)
    in_background = True
    max_words = 8.0  # gold answers of GSM8K and MATH have 3 at most, solutions dozens

    def __init__(
        self, timeout_s: float = 5.0, num_workers: int = 2, last_expression: bool = False
    ) -> None:
        self.timeout_s = timeout_s
        self.num_workers = num_workers
        self.last_expression = last_expression
        self.pool = WorkerPool(Path(__file__).with_name("worker.py"), num_workers, timeout_s)

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        return self.verify_batch([response], [problem])[0]

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order; an answer given twice is compared once.

        A problem without a gold answer (MATH has them) gives status ``error``.

        Raises:
            RuntimeError: if the worker processes cannot start.
        """
        verdicts: dict[int, Verdict] = {}
        rows_of: dict[tuple[str, str], list[int]] = {}
        identical: set[int] = set()
        for row, (response, problem) in enumerate(zip(responses, problems, strict=True)):
            start = time.perf_counter()
            taken, given = find_answer(response, self.last_expression), gold_text(problem.answer)
            if taken is not None and given and " ".join(taken.split()) == " ".join(given.split()):
                identical.add(row)
            answer, gold, refusal = _written_alike(taken, given)
            verdict = conclude("wrong", answer, refusal) if refusal else _decide_here(answer, gold)
            if verdict is not None:
                verdicts[row] = timed(verdict, start)
            else:
                assert answer is not None
                rows_of.setdefault((answer, gold), []).append(row)
        requests = [{"answer": answer, "gold": gold} for answer, gold in rows_of]
        replies = self.pool.run(requests) if requests else []
        for rows, reply in zip(rows_of.values(), replies, strict=True):
            right = reply.content["status"] == "right"
            verdict = Verdict(value=float(right), seconds=reply.seconds, **reply.content)
            verdicts.update(dict.fromkeys(rows, verdict))
        for row in identical:  # whatever could or could not be read
            if verdicts[row].status != "right":
                name = verdicts[row].canonical or " ".join(gold_text(problems[row].answer).split())
                verdict = conclude("right", name[:MAX_VOTE], "")
                verdicts[row] = replace(verdict, seconds=verdicts[row].seconds)
        return [verdicts[row] for row in range(len(responses))]

    def close(self) -> None:
        """Kill the worker processes; a later call starts new ones."""
        self.pool.close()


def find_answer(response: str, at_the_end: bool = False) -> str | None:
    r"""Return the answer of a response as it is written: the last ``<answer>`` or ``\boxed{}``.

    With ``at_the_end``, a response without either gives the expression it ends on.

    >>> find_answer("<think> 70 + 2 </think> <answer> 72 clips </answer>")
    '72 clips'
    """
    answer = extract_final(response)
    return last_expression(response) if answer is None and at_the_end else answer


def gold_text(text: str) -> str:
    r"""Return the gold answer in a data set's column, which may hold the solution, too.

    GSM8K's own column has the answer behind ``####``, MATH's solutions have it in ``\boxed{}``.
    """
    text = text.rpartition("####")[2].strip()
    return (extract_final(text) or text) if r"\boxed" in text else text


def _written_alike(taken: str | None, given: str) -> tuple[str | None, str, str]:
    """Return answer and gold answer without units and words, and why they differ if those do."""
    if taken is not None and _PLAIN_NUMBER.match(given) and _PLAIN_NUMBER.match(taken):
        return taken, given, ""
    gold_named = _plainly(given)
    if taken is not None and _PLAIN_NUMBER.match(taken):
        gold_named = spelled_number(gold_named) or gold_named
    gold = without_units(gold_named) if len(given) <= MAX_CHARACTERS else gold_named
    if taken is None or len(taken) > MAX_CHARACTERS or not gold:
        return taken, gold, ""
    named = _plainly(taken)
    if _PLAIN_NUMBER.match(gold):
        named = spelled_number(named) or named
    if "." in gold:  # 8.24 may be called about right
        named, gold = _ABOUT.sub("", named), _ABOUT.sub("", gold)
    for mark in _MARKS.findall(gold_named):  # of the gold answer, too
        named, gold = named.replace(mark, "").strip(), gold.replace(mark, "").strip()
    answer = without_units(named)
    if _PLAIN_NUMBER.match(gold):
        answer = without_symbol(answer)
        answer = only_number(answer) or answer
    elif _PLAIN_NUMBER.match(answer):
        gold = without_long_symbol(gold)
    if other_measure(taken, given):
        return named, gold, f"{named[:60]!r} has another unit than {gold_named[:60]!r}"
    labelled = label_and_value(answer)
    if labelled is not None and labelled != label_and_value(gold):
        answer = labelled[0] if _OPTION.match(gold) else labelled[1]
    return answer, gold, ""


def _plainly(text: str) -> str:
    if _GOES_ON.search(text):
        return text
    text = _QUOTED.sub(r"\2", text.strip())
    return tidy(plain_answer(text)) if len(text) <= MAX_CHARACTERS else tidy(text)


def tidy(text: str) -> str:
    r"""Drop full stops and commas at the end, and LaTeX's ways to set a comma in a number.

    >>> tidy(r" 11,\! 111. "), tidy(r"30^\circ.")
    ('11111', '30^\\circ')
    """
    return _END.sub("", _COMMA.sub("", _TIE.sub(" ", text.strip())))


def _decide_here(answer: str | None, gold: str) -> Verdict | None:
    """Decide without a worker process, or return ``None``."""
    if not gold:
        return conclude("error", None, "the problem has no gold answer")
    if answer is None:
        return conclude("unparsed", None, r"no <answer> and no \boxed{}")
    if not answer:
        return conclude("unparsed", None, "an empty answer")
    if len(answer) > MAX_CHARACTERS:
        return conclude("unparsed", None, f"is longer than {MAX_CHARACTERS} characters")
    if _nesting(answer) > MAX_NESTING:  # the LaTeX parser is exponential in it
        return conclude("unparsed", None, f"nests brackets deeper than {MAX_NESTING}")
    gold_words = words_of(gold, wrapped=True)  # east, not the product that is also seat
    if gold_words is not None:
        taken = words_of(answer) or answer.casefold()
        return _compared(taken == gold_words, taken, answer, gold)
    words, gold_words = words_of(answer), words_of(gold)
    if words and gold_words and min(len(words), len(gold_words)) > 2:
        return _compared(words == gold_words, words, answer, gold)
    if _HUGE.match(answer):
        return conclude("unparsed", None, "a power of ten beyond 999")
    if side_by_side(answer):
        return conclude("unparsed", None, "two numbers with nothing between them")
    changing = other_words(answer, gold)
    if changing is not None:
        return conclude("unparsed", None, f"{changing[:60]!r} next to a value")
    number, gold_number = number_of(answer), number_of(gold)
    if number is None or gold_number is None or ("." in answer + gold and number != gold_number):
        return None  # a decimal may be rounded
    return _compared(number == gold_number, str(number), answer, gold)


def _compared(right: bool, canonical: str, answer: str, gold: str) -> Verdict:
    reason = "" if right else f"{answer[:60]!r} is not {gold[:60]!r}"
    return conclude("right" if right else "wrong", canonical[:MAX_VOTE], reason)


def _nesting(text: str) -> int:
    """Return how many brackets of any kind are open at once."""
    depths = accumulate(1 if c in "([{" else -1 if c in ")]}" else 0 for c in text)
    return max(depths, default=0)
