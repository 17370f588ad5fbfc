"""Problems that training uses from a later iteration on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lightning.pytorch.utilities import rank_zero_warn

from r1lit.batches import Problem
from r1lit.data.base import ProblemSource


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
        if from_iteration < 1:
            raise ValueError(
                f"from_iteration: {from_iteration} is not at least 1; a source that is used from"
                " the start is given as it is"
            )
        self.source = source
        self.from_iteration = from_iteration

    def problems(self) -> list[Problem]:
        """Return the problems of ``source``."""
        return self.source.problems()


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
