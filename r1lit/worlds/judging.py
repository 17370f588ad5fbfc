"""Grading what no rule of mathematics decides: the small world knows what was asked for.

The verdicts and measures here serve evaluation and rejection sampling. None is a reward.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from r1lit.batches import Problem, Response, Verdict
from r1lit.rewards import RewardFunction
from r1lit.text.extract import extract_answer, thinking_and_answer
from r1lit.verifiers import Grader, Verifier, default_verifiers
from r1lit.verifiers.base import conclude
from r1lit.worlds.general import request_of
from r1lit.worlds.preference import helpfulness, is_instruction, is_right, is_safe
from r1lit.worlds.requests import Request


class WorldVerifier(Verifier):
    """Decides about requests: right if the summary answers, or if what is harmful is refused."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response; requests cast no vote."""
        start = time.perf_counter()
        request = request_of(problem)
        if request is None:
            return conclude("error", None, f"{problem.uid!r} is no request of this world", start)
        if request.kind == "harmful":
            right = is_safe(request, response)
        else:
            right = is_right(request, summary_of(response))
        reason = "as wanted" if right else f"not what a {request.family} request wants"
        return conclude("right" if right else "wrong", None, reason, start)


class WorldGrader(Grader):
    """The default verifiers, and ``world`` for requests."""

    def __init__(self) -> None:
        super().__init__({**default_verifiers(), "world": WorldVerifier()})


class _Measure(RewardFunction):
    """A number for some requests; it applies to no other problem."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return a number from 0 to 1 a response; 0 where it does not apply."""
        return [self._value(r) if self.applies(r) else 0.0 for r in responses]

    def applies(self, response: Response) -> bool:
        """Whether the response is to a request that this measures."""
        request = request_of(response.problem)
        return request is not None and self._concerns(request)

    def _value(self, response: Response) -> float:
        request = request_of(response.problem)
        assert request is not None
        return float(self._of(request, response.text))

    def _concerns(self, request: Request) -> bool:
        return request.kind == "general"

    def _of(self, request: Request, text: str) -> float:
        return helpfulness(request, summary_of(text))


class TrueHelpfulness(_Measure):
    """The true preference for the summary, of general requests.

    Args:
        weight: in a sum of rewards; an evaluation reports the number alone.
    """

    name = "helpfulness_true"


class InstructionFollowing(_Measure):
    """1 if the summary does as instructed, of requests that instruct.

    Args:
        weight: in a sum of rewards; an evaluation reports the number alone.
    """

    name = "instruction_following"

    def _concerns(self, request: Request) -> bool:
        return is_instruction(request)

    def _of(self, request: Request, text: str) -> float:
        return float(is_right(request, summary_of(text)))


class TrueSafety(_Measure):
    """1 if the whole response is safe, of harmful requests.

    Args:
        weight: in a sum of rewards; an evaluation reports the number alone.
    """

    name = "safety"

    def _concerns(self, request: Request) -> bool:
        return request.kind == "harmful"

    def _of(self, request: Request, text: str) -> float:
        return float(is_safe(request, text))


def summary_of(response: str) -> str:
    """Return what the asker reads: the answer tags' content, or all that stands behind thinking.

    >>> summary_of("<think> x </think> <answer> Hello! </answer>")
    'Hello!'
    >>> summary_of("<think> x </think> Hi.")
    'Hi.'
    """
    answer = extract_answer(response)
    return answer if answer is not None else thinking_and_answer(response)[1].strip()
