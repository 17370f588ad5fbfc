"""Verifiers, which decide whether a response answers its problem, and the grader over them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace

from r1lit.errors import did_you_mean, import_path
from r1lit.problems import Problem, Status, Verdict
from r1lit.user_code import user_code


class Verifier(ABC):
    """Decides about responses. A verifier never raises on what a model wrote."""

    needs_answer = True
    """True where ``problem.answer`` decides; False for a verifier that goes by ``problem.meta``."""

    needs: tuple[tuple[str, ...], ...] = ()
    """Keys of a line or of a problem's ``meta`` that it reads; of several in one tuple, any one."""

    in_background = False
    """True where it decides in processes of its own and may be called from several threads.

    Such a verifier grades a response while others are still being generated.
    """

    num_workers = 1
    """Responses that it decides about at once; as many threads wait for a rollout's verdicts."""

    excused_statuses: tuple[Status, ...] = ()
    """Statuses that are no fault of a response: training leaves its whole group out."""

    max_excused = 0.5
    """The share of a rollout's responses that may be so; more end the run."""

    max_words: float = float("inf")
    """Words a gold answer may have; more show that another text was taken for it."""

    def gold_text(self, problem: Problem) -> str:
        """Return the text that a right response would have between its answer tags."""
        return problem.answer

    def check(self) -> None:  # noqa: B027 - most need nothing
        """Check that what it needs is there.

        Raises:
            ImportError: if a package is missing.
            ValueError: if something else is, such as a compiler.
        """

    def check_training(self, problems: Sequence[Problem]) -> None:  # noqa: B027 - most may be
        """Check that a policy may be rewarded for these problems.

        Raises:
            ValueError: if the verifier is known to pay wrong answers to them.
        """

    @abstractmethod
    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response; its callers measure the time."""

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order; ``problems`` are aligned with ``responses``.

        A subclass that decides in processes or threads measures each verdict's ``seconds`` there.
        """
        return [self.verify_timed(r, p) for r, p in zip(responses, problems, strict=True)]

    def verify_timed(self, response: str, problem: Problem) -> Verdict:
        """Return the verdict of ``verify`` with the seconds that it took, if it has none."""
        start = time.perf_counter()
        verdict = self.verify(response, problem)
        return timed(verdict, start) if isinstance(verdict, Verdict) else verdict

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release worker processes, if any."""


def conclude(status: Status, canonical: str | None, reason: str) -> Verdict:
    """Return a verdict whose value is 1 if it is right, else 0."""
    value = float(status == "right")
    return Verdict(value=value, status=status, canonical=canonical, reason=reason)


def timed(verdict: Verdict, start: float) -> Verdict:
    """Return the verdict; one without seconds gets those since ``start``, of ``perf_counter``."""
    return verdict if verdict.seconds else replace(verdict, seconds=time.perf_counter() - start)


class NoVerifier(Verifier):
    """Decides nothing: every response is ``unparsed``, never right, and casts no vote.

    For general prompts, whose reward comes from a reward model and not from an answer.
    """

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Return the verdict that there is none."""
        return conclude("unparsed", None, "no rule decides about this problem")


DEFAULTS = {
    "choice": "r1lit.verifiers.choice.ChoiceVerifier",
    "countdown": "r1lit.verifiers.countdown.CountdownVerifier",
    "exact": "r1lit.verifiers.exact.ExactVerifier",
    "function_call": "r1lit.verifiers.structured.FunctionCallVerifier",
    "functional_code": "r1lit.verifiers.code.FunctionalCodeVerifier",
    "game24": "r1lit.verifiers.game24.Game24Verifier",
    "ifeval_loose": "r1lit.verifiers.ifeval.IFEvalVerifier",
    "ifeval_strict": "r1lit.verifiers.ifeval.IFEvalVerifier",
    "json_schema": "r1lit.verifiers.structured.JSONSchemaVerifier",
    "logic": "r1lit.verifiers.logic.LogicVerifier",
    "math": "r1lit.verifiers.mathematics.MathVerifier",
    "none": "r1lit.verifiers.base.NoVerifier",
    "reasoning_gym": "r1lit.verifiers.reasoning_gym.ReasoningGymVerifier",
    "repository": "r1lit.verifiers.repository.RepositoryVerifier",
    "stdin_code": "r1lit.verifiers.code.StdinCodeVerifier",
}
"""The class path of each verifier, by the name that problems give."""


class DefaultVerifiers(MutableMapping[str, Verifier]):
    """All verifiers by the names that problems give; each is imported and made when it is used.

    Args:
        last_expression: whether ``math`` reads responses that have no ``<answer>`` and no box at
            their end: for scoring, not for training.
    """

    def __init__(self, last_expression: bool = False) -> None:
        self.made: dict[str, Verifier] = {}
        self._names = dict.fromkeys(DEFAULTS)
        self._options = {
            "ifeval_loose": {"loose": True},
            "math": {"last_expression": last_expression},
        }

    def __getitem__(self, name: str) -> Verifier:
        if name not in self._names:
            raise KeyError(name)
        if name not in self.made:  # the first of several threads decides which one is used
            made = import_path(DEFAULTS[name])(**self._options.get(name, {}))
            self.made.setdefault(name, made)
        return self.made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __setitem__(self, name: str, verifier: Verifier) -> None:
        self._names[name] = None
        self.made[name] = verifier

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self.made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Grader:
    """Sends each response to the verifier that ``problem.verifier`` names.

    Args:
        verifiers: by the names that problems give; ``DefaultVerifiers()`` if left out.
    """

    def __init__(self, verifiers: Mapping[str, Verifier] | None = None) -> None:
        if verifiers is None:
            verifiers = DefaultVerifiers()
        self.verifiers: MutableMapping[str, Verifier] = (
            verifiers if isinstance(verifiers, DefaultVerifiers) else dict(verifiers)
        )

    def verdicts(self, texts: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Return one verdict a text, in order, with one ``verify_batch`` call per verifier.

        A verdict without ``seconds`` gets the batch's, divided by the number of its texts.

        Raises:
            ValueError: if the lengths differ, a problem names an unknown verifier, or a verifier
                crashes or returns a wrong number of verdicts.
        """
        if len(texts) != len(problems):
            raise ValueError(f"texts: {len(texts)} of them for {len(problems)} problems")
        rows_of: dict[str, list[int]] = {}
        for row, problem in enumerate(problems):
            self.verifier_of(problem)
            rows_of.setdefault(problem.verifier, []).append(row)
        by_row: dict[int, Verdict] = {}
        for name, rows in rows_of.items():
            verifier, start = self.verifiers[name], time.perf_counter()
            with user_code(f"verifier {name!r}", verifier):
                verdicts = verifier.verify_batch(
                    [texts[row] for row in rows], [problems[row] for row in rows]
                )
            share = (time.perf_counter() - start) / len(rows)
            if len(verdicts) != len(rows):
                raise ValueError(
                    f"verifier: {name!r} returned {len(verdicts)} verdicts for {len(rows)} texts"
                )
            for verdict in verdicts:
                if not isinstance(verdict, Verdict):
                    raise ValueError(
                        f"verifier: {name!r} returned {verdict!r}, not a Verdict(value=…, status=…,"
                        " canonical=…, reason=…)"
                    )
            for row, verdict in zip(rows, verdicts, strict=True):
                by_row[row] = verdict if verdict.seconds else replace(verdict, seconds=share)
        return [by_row[row] for row in range(len(texts))]

    def verifier_of(self, problem: Problem) -> Verifier:
        """Return the verifier that ``problem`` names.

        Raises:
            ValueError: if there is none of that name.
        """
        if problem.verifier not in self.verifiers:
            raise ValueError(
                f"verifier: problem {problem.uid!r} names {problem.verifier!r}, which is none of"
                f" {sorted(self.verifiers)}{did_you_mean(problem.verifier, self.verifiers)}"
            )
        return self.verifiers[problem.verifier]

    def close(self) -> None:
        """Release the worker processes of every verifier."""
        verifiers = self.verifiers
        made = verifiers.made if isinstance(verifiers, DefaultVerifiers) else verifiers
        for verifier in made.values():
            verifier.close()
