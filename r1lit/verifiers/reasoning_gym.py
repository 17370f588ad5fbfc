"""Reasoning-gym's tasks, decided by its own scorers: only the full score is right."""

from __future__ import annotations

import time

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import final_or_answer_part
from r1lit.verifiers.base import Verifier, conclude

NONSENSE = "?!"
MAX_CHARACTERS = 20_000


class ReasoningGymVerifier(Verifier):
    """Decides by the scorer of ``meta["task"]`` about ``meta["entry"]``; see `data.ReasoningGym`.

    Partial scores are wrong, as are answers on which the scorer raises. A scorer that pays a
    nonsense text in full (game_of_life_halting does) is not believed: the answer must then be the
    gold one, letter by letter.
    """

    needs_answer = False

    def check(self) -> None:
        """Check that reasoning-gym is installed."""
        import reasoning_gym  # noqa: F401

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        start = time.perf_counter()
        answer = final_or_answer_part(response).strip()
        if not answer or len(answer) > MAX_CHARACTERS:
            return conclude("unparsed", None, "no answer, or one that is too long", start)
        score = score_of(answer, problem)
        right = score == 1.0
        if right and score_of(NONSENSE, problem) == 1.0:
            right = answer == problem.answer.strip()
        reason = "" if right else f"{answer[:60]!r} scores {score:g}"
        return conclude("right" if right else "wrong", answer[:200], reason, start)


def score_of(answer: str, problem: Problem) -> float:
    """Return the scorer's number for an answer; 0 where it raises."""
    from reasoning_gym import get_score_answer_fn

    score = get_score_answer_fn(str(problem.meta["task"]))
    try:
        return float(score(answer, dict(problem.meta["entry"])))
    except Exception:  # on what a model wrote: of any kind, in 104 scorers
        return 0.0
