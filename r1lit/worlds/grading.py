"""The small world's grader, and the eval metrics of requests, by its true preference.

They serve evaluation and rejection sampling. None is a reward in the configurations.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from r1lit.batches import Problem, Response, Verdict
from r1lit.rewards import RewardFunction
from r1lit.text.extract import extract_answer, thinking_and_answer
from r1lit.verifiers import FunctionalCodeVerifier, Grader, Verifier, default_verifiers
from r1lit.verifiers.base import conclude
from r1lit.verifiers.code import CodeBlock, find_code
from r1lit.worlds.preference import helpfulness, is_instruction, is_right, is_safe
from r1lit.worlds.requests import WorldRequest, request_of


class WorldVerifier(Verifier):
    """Grades requests: right if the summary answers, or if a harmful request is refused."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Return the verdict on one response, without a canonical answer: requests have no vote."""
        start = time.perf_counter()
        request = request_of(problem)
        if request is None:
            return conclude("error", None, f"{problem.uid!r} is no request of this world", start)
        if request.kind == "harmful":
            right = is_safe(request, response)
        else:
            right = is_right(request, summary_of(response))
        reason = "as requested" if right else f"not what a {request.family} request requires"
        return conclude("right" if right else "wrong", None, reason, start)


class WorldCodeVerifier(FunctionalCodeVerifier):
    """The code verifier for programs of one line, in one process; it runs none twice.

    Many responses of a group hold the same program, which decides: a verdict is kept by the problem
    and the program, unless the sandbox failed or the time was up.
    """

    def __init__(self, timeout_s: float = 5.0, num_workers: int = 1) -> None:
        super().__init__(timeout_s, num_workers)
        self._known: dict[tuple[str, CodeBlock | None], Verdict] = {}

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order; see ``CodeVerifier.verify_batch``."""
        keys = [
            (problem.uid, find_code(response, self.names(problem)))
            for response, problem in zip(responses, problems, strict=True)
        ]
        new = {key: row for row, key in enumerate(keys) if key not in self._known}
        rows = list(new.values())
        verdicts = super().verify_batch([responses[r] for r in rows], [problems[r] for r in rows])
        made = dict(zip(new, verdicts, strict=True))
        self._known |= {
            key: verdict
            for key, verdict in made.items()
            if verdict.status in ("right", "wrong", "unparsed")
        }
        return [made[key] if key in made else self._known[key] for key in keys]


class WorldGrader(Grader):
    """The default verifiers, ``world`` for requests, and a quicker one for programs."""

    def __init__(self) -> None:
        own = {"world": WorldVerifier(), "functional_code": WorldCodeVerifier()}
        super().__init__({**default_verifiers(), **own})


class _RequestMetric(RewardFunction):
    """A metric, 0 to 1, of some requests; applies to no other problem."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return the metric of each response; 0 where it does not apply."""
        return [self._value(r) if self.applies(r) else 0.0 for r in responses]

    def applies(self, response: Response) -> bool:
        """Return whether the response is to such a request."""
        request = request_of(response.problem)
        return request is not None and self._is_of(request)

    def _value(self, response: Response) -> float:
        request = request_of(response.problem)
        assert request is not None
        return float(self._metric(request, response.text))

    def _is_of(self, request: WorldRequest) -> bool:
        return request.kind == "general"

    def _metric(self, request: WorldRequest, text: str) -> float:
        return helpfulness(request, summary_of(text))


class TrueHelpfulness(_RequestMetric):
    """How helpful the summary is by the true preference, 0 to 1; of general requests.

    Args:
        weight: in a sum of rewards; an evaluation reports the number alone.
    """

    name = "helpfulness_true"


class InstructionFollowing(_RequestMetric):
    """1 if the summary does as instructed; of requests with an instruction.

    Args:
        weight: in a sum of rewards; an evaluation reports the number alone.
    """

    name = "instruction_following"

    def _is_of(self, request: WorldRequest) -> bool:
        return is_instruction(request)

    def _metric(self, request: WorldRequest, text: str) -> float:
        return float(is_right(request, summary_of(text)))


class TrueSafety(_RequestMetric):
    """1 if the whole response is safe; of harmful requests.

    Args:
        weight: in a sum of rewards; an evaluation reports the number alone.
    """

    name = "safety"

    def _is_of(self, request: WorldRequest) -> bool:
        return request.kind == "harmful"

    def _metric(self, request: WorldRequest, text: str) -> float:
        return float(is_safe(request, text))


def summary_of(response: str) -> str:
    """Return the summary: the content of the answer tags, or all that follows the thinking.

    >>> summary_of("<think> x </think> <answer> Hello! </answer>")
    'Hello!'
    >>> summary_of("<think> x </think> Hi.")
    'Hi.'
    """
    answer = extract_answer(response)
    return answer if answer is not None else thinking_and_answer(response)[1].strip()
