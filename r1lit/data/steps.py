"""Solutions whose steps are labelled, for process reward models."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from r1lit.data.preferences import Example, PreferenceSource
from r1lit.data.tables import Row, Table


class TableSteps(PreferenceSource):
    r"""Solutions cut into steps, from a table of JSON or Parquet; one example a row.

    A row's label is the index of its first wrong step, -1 for none (ProcessBench, 2412.06559): the
    steps up to it are labelled, those behind it are not. Or it is a list with a number from 0 to 1
    for each step, as ``r1lit.curation.step_labels`` writes them: the share of completions from
    there that are right (Math-Shepherd 2312.08935).

    For ``RewardModule`` with ``SafeUnsafe`` a row is one labelled response, right if its last
    labelled step is: an outcome reward model learns from the same table.

    The problem names the group.

    Args:
        path: a local .jsonl, .json (each may end in .gz) or .parquet file, or the name of a Hugging
            Face data set.
        problem: the column of the problem.
        steps: the column of the steps, a list of texts.
        label: the column of the label.
        joined_by: what stands between two steps in the response, and belongs to the former; ""
            where the steps hold it.
        hard: labels above 0 become 1: a step is right if any completion is.
        **table: of ``Table``: name, split, skip and limit.
    """

    rows_per_example = 1
    labels_steps = True

    def __init__(
        self,
        path: str,
        problem: str = "problem",
        steps: str = "steps",
        label: str = "label",
        joined_by: str = "\n\n",
        hard: bool = False,
        **table: Any,
    ) -> None:
        self.table = Table(path=path, **table)
        self.problem = problem
        self.steps = steps
        self.label = label
        self.joined_by = joined_by
        self.hard = hard

    def examples(self) -> list[Example]:
        """Return every solution in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        columns = {"problem": self.problem, "steps": self.steps, "label": self.label}
        return [self._example(row, n) for n, row in self.table.rows(columns)]

    def _example(self, row: Row, n: int) -> Example:
        question = self.table.text(row, n, "problem", self.problem)
        steps = row.get(self.steps)
        if not (isinstance(steps, list) and steps and all(isinstance(s, str) and s for s in steps)):
            raise ValueError(
                f"steps: row {n} of {self.table.path} holds {steps!r:.80} in column {self.steps!r},"
                " where a list of texts is needed"
            )
        labels = self._labels(row.get(self.label), len(steps), n)
        texts = [*(step + self.joined_by for step in steps[:-1]), steps[-1]]
        return Example(
            question=question,
            responses=("".join(texts),),
            label=float(labels[-1] > 0.5),
            group=question,
            step_ends=tuple(accumulate(map(len, texts)))[: len(labels)],
            step_labels=labels,
        )

    def _labels(self, cell: Any, num_steps: int, n: int) -> tuple[float, ...]:
        if isinstance(cell, int) and not isinstance(cell, bool) and -1 <= cell < num_steps:
            return (1.0,) * num_steps if cell < 0 else (*[1.0] * cell, 0.0)
        if not (
            isinstance(cell, list)
            and len(cell) == num_steps
            and all(isinstance(x, int | float) and 0 <= x <= 1 for x in cell)
        ):
            raise ValueError(
                f"label: row {n} of {self.table.path} holds {cell!r:.80} in column {self.label!r};"
                f" its {num_steps} steps need the index of the first wrong one (-1: none), or a"
                " list of as many numbers from 0 to 1"
            )
        return tuple(float(x > 0) if self.hard else float(x) for x in cell)
