"""Problems of reasoning-gym, made as they are needed."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.errors import check_at_least, hint


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
