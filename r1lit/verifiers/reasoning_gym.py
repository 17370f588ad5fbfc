"""Reasoning-gym's tasks, decided by its own scorers: only the full score is right.

Some scorers also pay what is no answer. ``payment_of`` finds them with constants and hedges, and
training refuses their tasks.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import final_or_answer_part
from r1lit.verifiers.base import Verifier, conclude

NONSENSE = "?!"
MAX_CHARACTERS = 20_000
CONSTANTS = ("0", "1", "-1", "8675309", "nan", "inf", "[]", "{}", "True", "None", NONSENSE)
HEDGES = (
    "{gold} or 99", "99 {gold}", "not {gold}", "{gold}, 99", "{gold} or {other}",
    "{other} or {gold}",
)  # fmt: skip
NUM_PROBED = 8
PROBE_S = 2.0
"""Seconds after which no further problem of a task is probed."""


class ReasoningGymVerifier(Verifier):
    """Decides by the scorer of ``meta["task"]`` about ``meta["entry"]``; see `data.ReasoningGym`.

    Partial scores are wrong, as are answers on which the scorer raises. A scorer that pays a
    nonsense text in full (game_of_life_halting does) is not believed: the answer must then be the
    gold one, letter by letter.
    """

    needs = (("task",), ("entry",))
    needs_answer = False

    def check(self) -> None:
        """Check that reasoning-gym is installed."""
        import reasoning_gym  # noqa: F401

    def check_training(self, problems: Sequence[Problem]) -> None:
        """Check that no task pays a constant or a hedge; a second for most, ``PROBE_S`` a task.

        Raises:
            ValueError: naming the task, what it pays, and for which answer.
        """
        for task in dict.fromkeys(str(problem.meta["task"]) for problem in problems):
            own = [problem for problem in problems if problem.meta["task"] == task]
            payment, tried, wanted = payment_of(own, self)
            if payment is not None:
                raise ValueError(
                    f"the scorer of reasoning-gym's {task} pays {_short(payment.answer)} where the"
                    f" answer is {_short(payment.problem.answer)}; evaluate on it, and train on a"
                    " task that docs/REASONING_GYM.md does not list as paying"
                )
            if tried < wanted:
                warnings.warn(
                    f"reasoning-gym's {task} is slow: {tried} of {wanted} problems were probed for"
                    f" answers that it should not pay, in {PROBE_S:g} s",
                    stacklevel=2,
                )

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        answer = final_or_answer_part(response).strip()
        if not answer or len(answer) > MAX_CHARACTERS:
            return conclude("unparsed", None, "no answer, or one that is too long")
        score = score_of(answer, problem)
        right = score == 1.0
        if right and score_of(NONSENSE, problem) == 1.0:
            right = answer == problem.answer.strip()
        reason = "" if right else f"{answer[:60]!r} scores {score:g}"
        return conclude("right" if right else "wrong", answer[:200], reason)


def score_of(answer: str, problem: Problem) -> float:
    """Return the scorer's number for an answer; 0 where it raises."""
    score = _scorer(str(problem.meta["task"]))
    try:
        return float(score(answer, dict(problem.meta["entry"])))
    except Exception:  # on what a model wrote: of any kind, in 104 scorers
        return 0.0


@cache  # each makes a whole data set, which takes arc_agi half a second
def _scorer(task: str) -> Callable[[str, dict[str, Any]], float]:
    from reasoning_gym import get_score_answer_fn

    with contextlib.redirect_stdout(io.StringIO()):
        scorer: Callable[[str, dict[str, Any]], float] = get_score_answer_fn(task)
    return scorer


@dataclass(frozen=True, kw_only=True)
class Payment:
    """An answer that a task pays and should not: how it is made, its text, and the problem."""

    form: str
    answer: str
    problem: Problem


def payment_of(
    problems: Sequence[Problem], verifier: Verifier, seconds: float = PROBE_S
) -> tuple[Payment | None, int, int]:
    """Return a wrongly paid answer of a task, the number of problems probed, and of how many.

    ``None`` where no probe is paid. A constant counts only where it is not the gold answer. Up to
    ``NUM_PROBED`` problems are probed, evenly spaced, and none after ``seconds``.
    """
    sample = problems[:: -(-len(problems) // NUM_PROBED) or 1]
    start = time.perf_counter()
    for tried, problem in enumerate(sample):
        if tried and time.perf_counter() - start > seconds:
            return None, tried, len(sample)
        with contextlib.redirect_stdout(io.StringIO()):  # some scorers print what they refuse
            for form, text in _probes(problem, problems):
                if verifier.verify(f"<answer> {text} </answer>", problem).status == "right":
                    return Payment(form=form, answer=text, problem=problem), tried + 1, len(sample)
    return None, len(sample), len(sample)


def _probes(problem: Problem, problems: Sequence[Problem]) -> Iterator[tuple[str, str]]:
    """Yield forms and texts of which none is right: constants, and the gold answer hedged."""
    gold = problem.answer.strip()
    yield from ((constant, constant) for constant in CONSTANTS if not _alike(constant, gold))
    if not gold:
        return
    others = (p.answer.strip() for p in problems if p.answer.strip() not in gold)
    other = next((text for text in others if gold not in text), "98")
    yield from ((hedge, hedge.format(gold=gold, other=other)) for hedge in HEDGES)


def _alike(one: str, other: str) -> bool:
    """Decide whether two texts are equal, but for case, or numbers that are within 1 %."""
    if one.casefold() == other.casefold():
        return True
    left, right = _number(one), _number(other)
    if left is None or right is None:
        return False
    return abs(left - right) <= 0.01 * max(1.0, abs(left), abs(right))


def _number(text: str) -> complex | None:
    try:
        return complex(text.replace(" ", "").replace("i", "j"))
    except ValueError:
        return None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 40 else text[:39] + "…")
