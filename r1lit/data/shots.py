"""Few-shot prompting: solved problems before each question."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.data.base import ProblemSource
from r1lit.errors import check_at_least
from r1lit.problems import Problem
from r1lit.seeding import permutation


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
                f"data.shots.wording: {wording!r} does not hold both {{question}} and {{answer}}"
            )
        self.sources = problems
        self.num_shots = num_shots
        self.wording = wording

    def before(self, asked: Sequence[Problem], seed: int) -> str:
        """Return the text that stands before each question.

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
            self.wording.replace("{question}", problem.question).replace("{answer}", problem.answer)
            for problem in shown
        )
