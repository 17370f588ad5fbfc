"""Problems of the Berkeley Function-Calling Leaderboard's multi-turn categories."""

from __future__ import annotations

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.environments.bfcl import read_lines
from r1lit.errors import hint

CATEGORIES = ("base", "long_context", "miss_param")


class BFCLTasks(ProblemSource):
    """200 conversations a category, for the environment `r1lit.environments.BFCL`.

    Args:
        category: base, long_context, or miss_param, where a request lacks what a call needs.
            (miss_func shows functions in the middle of a conversation, which no template does.)
        num_problems: the first so many; all if left out.
        environment: its name in ``data.environments``.
    """

    def __init__(
        self, category: str = "base", num_problems: int | None = None, environment: str = "bfcl"
    ) -> None:
        if category not in CATEGORIES:
            known = ", ".join(CATEGORIES)
            raise ValueError(
                f"category: {category!r} is none of {known}{hint(category, CATEGORIES)}"
            )
        self.category, self.num_problems, self.environment = category, num_problems, environment

    def problems(self) -> list[Problem]:
        """Return the problems in BFCL's order."""
        name = f"BFCL_v4_multi_turn_{self.category}.json"
        gold = {line["id"]: line["ground_truth"] for line in read_lines(f"possible_answer/{name}")}
        return [
            Problem(
                uid=row["id"],
                question=str(row["question"][0][0]["content"]),
                answer="",
                source=f"bfcl-{self.category}",
                verifier="none",
                environment=self.environment,
                meta={"row": row, "ground_truth": gold[row["id"]]},
            )
            for row in read_lines(name)[: self.num_problems]
        ]
