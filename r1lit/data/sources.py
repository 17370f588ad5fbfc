"""Sources of problems and documents: the interface, late and generated problems, solved examples.

Reasoning-gym's problems are made as they are needed.
"""

from __future__ import annotations

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from r1lit.batches import Problem
from r1lit.errors import check_at_least, hint
from r1lit.files import read_existing
from r1lit.seeding import permutation
from r1lit.text.prompts import Conversation, Message


@dataclass(frozen=True, kw_only=True)
class Document:
    """One supervised example: a prompt as templated text, and the response to train on.

    An empty ``prompt`` means that the whole of ``response`` is text to model. With ``chat``,
    ``prompt`` is a question yet, and becomes text by the chat template of the policy's tokenizer,
    which a source does not set. Of a conversation ``before`` are the turns that lead to the
    assistant's turn ``answer``, which is trained on; ``prompt`` and ``response`` show them as text.
    ``asked`` is the template, and the question, that ``prompt`` was made of. In a question special
    tokens' texts are text, unless ``special_tokens_in_questions``; in a prompt that was made
    elsewhere, and in a response, they are these tokens.
    """

    prompt: str
    response: str
    chat: bool = False
    before: Conversation | None = None
    answer: Message | None = None
    asked: tuple[str, str] | None = field(default=None, compare=False)
    special_tokens_in_questions: bool = False

    @classmethod
    def of(cls, before: Conversation, answer: Message) -> Document:
        """Return the document of an assistant turn."""
        response = answer.get("content") or ""
        question = before.as_text()
        return cls(prompt=question, response=response, chat=True, before=before, answer=answer)


class ProblemSource(ABC):
    """Returns problems, which training uses from iteration ``from_iteration`` on."""

    from_iteration: int = 0

    @abstractmethod
    def problems(self) -> list[Problem]:
        """Return every problem, in an order that is the same on every call."""


class DocumentSource(ABC):
    """Returns documents."""

    @abstractmethod
    def documents(self) -> list[Document]:
        """Return every document, in an order that is the same on every call."""


class LateProblems(ProblemSource):
    """``source``, whose problems training uses from iteration ``from_iteration`` on.

    R1's second RL stage adds general prompts, as it does preference rewards, in the last 400 of
    its 1,700 steps only (Nature 645:633, Methods). A step there is an update; an iteration makes
    ``updates`` of the batch plan, 16 at the paper's sizes. Evaluation always uses them.

    Args:
        source: a source of problems.
        from_iteration: the first training iteration that uses them, from 0; another source of
            ``data.train`` must begin at 0.
    """

    def __init__(self, source: ProblemSource, from_iteration: int) -> None:
        remedy = "a source that is used from the start is given as it is"
        check_at_least("from_iteration", from_iteration, 1, remedy)
        self.source = source
        self.from_iteration = from_iteration

    def problems(self) -> list[Problem]:
        """Return the problems of ``source``."""
        return self.source.problems()


class PassRates(ProblemSource):
    """``source``, of which the problems that a policy solves at a rate within [low, high] are kept.

    The rates are those of a run of ``r1lit predict`` or ``r1lit test`` over the same problems: the
    shares of right responses in its ``responses.jsonl``, by uid. A problem that it has no response
    to is left out. Problems that are always or never solved make no mixed group, so they teach
    nothing (DAPO 2503.14476, §3.2) and cost as many samples as the others.

    Args:
        source: a source of problems.
        responses: that run's folder, or its ``responses.jsonl``.
        low: least share of right responses.
        high: largest.
    """

    def __init__(
        self, source: ProblemSource, responses: str, low: float = 0.05, high: float = 0.95
    ) -> None:
        if not 0 <= low <= high <= 1:
            raise ValueError(f"low: {low} and high: {high} are not 0 <= low <= high <= 1")
        self.source = source
        self.from_iteration = source.from_iteration
        self.responses = responses
        self.low = low
        self.high = high

    def problems(self) -> list[Problem]:
        """Return the problems of ``source`` within the bounds, in its order.

        Raises:
            ValueError: if there are no responses, to none of these problems, or none is left.
        """
        path = Path(self.responses)
        path = path / "responses.jsonl" if path.is_dir() else path
        right: dict[str, list[bool]] = {}
        for line in read_existing(path, "responses"):
            right.setdefault(str(line.get("uid")), []).append(line.get("status") == "right")
        problems = self.source.problems()
        rate = {uid: sum(own) / len(own) for uid, own in right.items()}
        rated = [problem for problem in problems if problem.uid in rate]
        kept = [problem for problem in rated if self.low <= rate[problem.uid] <= self.high]
        if not kept:
            raise ValueError(
                f"responses: {path} has responses to {len(rated)} of the source's {len(problems)}"
                f" problems, and none of these is solved at a rate from {self.low} to {self.high}"
            )
        counts = f"{len(kept)} of {len(problems)} problems are solved at {self.low} to {self.high}"
        rank_zero_info(f"data: {counts}; {len(problems) - len(rated)} have no response in {path}")
        return kept


class InEnvironment(ProblemSource):
    """``source``, whose problems are played in an environment of ``data.environments``.

    Args:
        source: a source of problems.
        environment: the environment's name there.
        verifier: of the last reply, where the environment gives no verdict; the problems' own if
            left out.
    """

    def __init__(
        self, source: ProblemSource, environment: str, verifier: str | None = None
    ) -> None:
        self.source = source
        self.environment = environment
        self.verifier = verifier
        self.from_iteration = source.from_iteration

    def problems(self) -> list[Problem]:
        """Return the problems of ``source`` with the environment's name."""
        return [
            replace(p, environment=self.environment, verifier=self.verifier or p.verifier)
            for p in self.source.problems()
        ]


def read_problems(
    sources: Sequence[ProblemSource], split: str
) -> tuple[list[Problem], dict[int, int]]:
    """Return all problems, the earliest first, and their number by iteration.

    Raises:
        ValueError: naming ``split`` if there is none.
    """
    problems: list[Problem] = []
    num_problems_from: dict[int, int] = {}
    for source in sorted(sources, key=lambda source: source.from_iteration):
        problems += source.problems()
        num_problems_from[source.from_iteration] = len(problems)
    if not problems:
        raise ValueError(f"data.{split}: its sources yield no problems")
    return problems, num_problems_from


def check_beginnings(
    num_problems_from: Mapping[int, int], num_iterations: int | None, max_epochs: int | None
) -> None:
    """Check that a run has problems from its first iteration on; warn of those never used.

    Args:
        num_problems_from: problems there are from each iteration on at which a source begins.
        num_iterations: of an epoch.
        max_epochs: of the run; -1 is without end.

    Raises:
        ValueError: if there are none at iteration 0, or if some come late in a run of one pass.
    """
    first, last = min(num_problems_from), max(num_problems_from)
    if first or not num_problems_from[0]:
        raise ValueError(
            "data.train: no source has problems for iteration 0; give one that is not within"
            " r1lit.data.LateProblems"
        )
    if last and num_iterations is None:
        raise ValueError(
            f"data.num_iterations: null is one pass over the problems, of which some come from"
            f" iteration {last} on; give the number of iterations"
        )
    if num_iterations and max_epochs and 0 <= num_iterations * max_epochs <= last:
        rank_zero_warn(
            f"data.train: the problems from iteration {last} on are never used in a run of"
            f" {num_iterations * max_epochs} iterations"
        )


class FewShot:
    """Solved problems that stand before each question, within the template, the same for all.

    A problem that is prompted is never shown, nor one without an answer. They are chosen by the
    data's ``seed``.

    Args:
        problems: sources of what is shown: the training split.
        num_shots: how many are shown; 0 is zero-shot.
        wording: of one of them; it holds {question} and {answer}, the gold answer.
    """

    def __init__(
        self,
        problems: list[ProblemSource],
        num_shots: int = 3,
        wording: str = "{question}\nAnswer: {answer}\n\n",
    ) -> None:
        check_at_least("data.shots.num_shots", num_shots, 0)
        if "{question}" not in wording or "{answer}" not in wording:
            raise ValueError(
                f"data.shots.wording: {wording!r} does not contain both {{question}} and {{answer}}"
            )
        self.sources = problems
        self.num_shots = num_shots
        self.wording = wording

    def before(
        self, asked: Sequence[Problem], seed: int, literal: Callable[[str], str] = str
    ) -> str:
        """Return the text that stands before each question.

        Args:
            asked: the problems that are prompted.
            seed: of the choice.
            literal: what becomes of a shown question and answer, which are data.

        Raises:
            ValueError: if there are fewer problems to show.
        """
        hidden = {problem.uid for problem in asked} | {problem.question for problem in asked}
        pool = [
            problem
            for source in self.sources
            for problem in source.problems()
            if problem.answer and problem.uid not in hidden and problem.question not in hidden
        ]
        if len(pool) < self.num_shots:
            raise ValueError(
                f"data.shots.num_shots: {self.num_shots} are to be shown, and data.shots.problems"
                f" has {len(pool)} with an answer that are not prompts themselves"
            )
        shown = [pool[i] for i in permutation(len(pool), seed, "shots")[: self.num_shots]]
        return "".join(
            self.wording.replace("{question}", literal(problem.question)).replace(
                "{answer}", literal(problem.answer)
            )
            for problem in shown
        )


class ReasoningGym(ProblemSource):
    """Problems of one of reasoning-gym's tasks, for the verifier ``reasoning_gym``.

    Args:
        task: its name, such as ``gcd``.
        num_problems: how many.
        seed: of the task's own generator: another one for held-out problems.
        options: of the task, such as the size of its numbers.
    """

    def __init__(
        self, task: str, num_problems: int, seed: int = 0, options: dict[str, Any] | None = None
    ) -> None:
        check_at_least("num_problems", num_problems, 1)
        self.task = task
        self.num_problems = num_problems
        self.seed = seed
        self.options = options or {}

    def problems(self) -> list[Problem]:
        """Return the problems.

        Raises:
            ValueError: if reasoning-gym is missing, knows no such task, or takes no such options.
        """
        try:
            from reasoning_gym import create_dataset
            from reasoning_gym.factory import DATASETS
        except ImportError as error:
            raise ValueError(
                "task: ReasoningGym needs the package reasoning-gym; pip install 'r1lit[real]'"
            ) from error
        if self.task not in DATASETS:
            raise ValueError(f"task: reasoning-gym has no {self.task!r}{hint(self.task, DATASETS)}")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                data = create_dataset(
                    self.task, size=self.num_problems, seed=self.seed, **self.options
                )
                entries = [data[i] for i in range(self.num_problems)]
        except (TypeError, AssertionError) as error:
            raise ValueError(f"options: {self.task} refuses {self.options}: {error}") from error
        return [
            Problem(
                uid=f"{self.task}-{self.seed}-{i}",
                question=entry["question"],
                answer=str(entry["answer"] or ""),
                source=self.task,
                verifier="reasoning_gym",
                meta={"task": self.task, "entry": entry},
            )
            for i, entry in enumerate(entries)
        ]
