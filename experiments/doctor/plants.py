"""Classes that plant a fault which no key of a configuration can."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from r1lit.batches import Problem, Response, Status, Verdict
from r1lit.data import ProblemSource
from r1lit.rewards import RewardFunction
from r1lit.rollout import Completion, InProcessEngine, ModelSpec, OnFinished, Request
from r1lit.verifiers import DefaultVerifiers, Verifier


class Unreliable(Verifier):
    """Gives up on a share of the responses, as a verifier does on a machine that is too busy."""

    def __init__(self, status: Status = "timeout", one_in: int = 3, of: str = "countdown") -> None:
        self.status, self.one_in, self.inner = status, one_in, DefaultVerifiers()[of]

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Return the inner verdict, or none for some lengths."""
        verdict = self.inner.verify(response, problem)
        if len(response) % self.one_in == 0:
            return replace(verdict, value=0.0, status=self.status, reason="no decision")
        return verdict


class Strict(Verifier):
    """Compares whole texts: accepts the gold answer in its tags, and not what is thought before."""

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Compare a response with the gold answer."""
        right = response.strip() == f"<answer> {problem.answer} </answer>"
        status: Status = "right" if right else "wrong"
        return Verdict(
            value=float(right), status=status, canonical=None, reason="not the same text"
        )


class HasNumber(Verifier):
    """Accepts every response that has a number in it, which the base solves nearly always."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Look for a digit."""
        right = any(character.isdigit() for character in response)
        status: Status = "right" if right else "wrong"
        return Verdict(value=float(right), status=status, canonical=None, reason="no number")


class AskForNumber(ProblemSource):
    """Another source's questions, solved by any number."""

    def __init__(self, source: ProblemSource) -> None:
        self.source = source

    def problems(self) -> list[Problem]:
        """Return them without an answer."""
        return [replace(p, answer="", verifier="number") for p in self.source.problems()]


class WrongGold(ProblemSource):
    """Another source's problems, each with its neighbour's gold answer."""

    def __init__(self, source: ProblemSource) -> None:
        self.source = source

    def problems(self) -> list[Problem]:
        """Return them, answers moved by one."""
        problems = self.source.problems()
        answers = [problem.answer for problem in problems]
        return [
            replace(problem, answer=answer)
            for problem, answer in zip(problems, [*answers[1:], answers[0]], strict=True)
        ]


class OneWord(RewardFunction):
    """Pays for one word, said again and again."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Count the word, up to 40 times."""
        return [min(response.text.count(" ="), 40) / 10 for response in responses]


class Longer(RewardFunction):
    """Pays for length, whatever is said."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return a fiftieth a token."""
        return [response.num_tokens / 50 for response in responses]


class StaleEngine(InProcessEngine):
    """Generates with the weights of the beginning for ever."""

    def bind(self, model: ModelSpec) -> None:
        """Keep a copy of the weights."""
        super().bind(replace(model, policy=copy.deepcopy(model.policy)))


class Hotter(InProcessEngine):
    """Samples at another temperature than it was asked for."""

    temperature = 1.4

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Hand over what is sampled so."""
        hot = [
            replace(r, sampling=replace(r.sampling, temperature=self.temperature)) for r in requests
        ]
        super().stream(hot, on_finished)


class Rounded(InProcessEngine):
    """Reports log-probs rounded to halves, as a server with a coarse format does."""

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Hand over coarse log-probs."""

        def rounded(indices: Sequence[int], completions: Sequence[Completion]) -> None:
            coarse = [
                replace(c, logps=c.logps if c.logps is None else (c.logps * 2).round() / 2)
                for c in completions
            ]
            on_finished(indices, coarse)

        super().stream(requests, rounded)
