"""CLUEWSC as the paper's Table 27 has it: name what a pronoun stands for, after five examples."""

from __future__ import annotations

from typing import Any

from r1lit.data import ProblemSource
from r1lit.data.problem_tables import row_uid
from r1lit.data.tables import Row, Table
from r1lit.evaluation.suites.choice import last_line
from r1lit.evaluation.suites.judged import prompt
from r1lit.problems import Problem, Verdict
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.ifeval import judged_text

AROUND = " \t。.，,、：:；;！!？?“”‘’\"'`*（）()【】「」"
"""Marks around an answer that are no part of it."""
LABELS = {"true": True, "false": False, "0": True, "1": False}
"""Truth by label. On the Hub a label is a class, of which ``true`` is the first and so 0."""
LEAD = "指的是"
"""Where a response repeats the question's last line, the answer stands after this."""


class Cluewsc(ProblemSource):
    """CLUEWSC's pronouns (``span2_text``), each with the name that it stands for (``span1_text``).

    Of the data set's pairs only those of label true hold the right name, so only they are problems.

    Args:
        path: a table with ``text``, ``target`` (a mapping of spans) and ``label`` (true or false;
            the Hub's 0 is true and its 1 false).
        split: the split of a Hugging Face data set.
        **table: of ``Table``: name and limit.
    """

    def __init__(self, path: str, split: str = "validation", **table: Any) -> None:
        self.table = Table(path=path, split=split, **table)

    def problems(self) -> list[Problem]:
        """Return every problem in the table's order.

        Raises:
            ValueError: naming a row whose label is not one of ``LABELS``, or if none is true.
        """
        columns = {key: key for key in ("text", "target", "label")}
        rows = self.table.rows(columns)
        problems = [self._problem(row, n) for n, row in rows if self._is_true(row, n)]
        if not problems:
            raise ValueError(f"label: no row of {self.table.path} is true, so none names one")
        return problems

    def _is_true(self, row: Row, n: int) -> bool:
        label = str(row["label"]).lower()
        if label not in LABELS:
            raise ValueError(
                f"label: {self.table.row(n)} holds {row['label']!r}, not true or false (on the"
                " Hub 0 or 1)"
            )
        return LABELS[label]

    def _problem(self, row: Row, n: int) -> Problem:
        target = row["target"]
        words = prompt("cluewsc", text=row["text"], pronoun=target["span2_text"])
        return Problem(
            uid=row_uid(self.table, n, words),
            question=words,
            answer=target["span1_text"],
            source="cluewsc",
        )


class ReferentLine(Verifier):
    r"""Right if the last line of a response is the name, but for marks around it.

    >>> problem = Problem(uid="", question="", answer="张浃", source="")
    >>> [ReferentLine().verify(t, problem).status for t in ("所以\n张浃。", "指的是“张浃”", "张")]
    ['right', 'right', 'wrong']
    """

    def gold_text(self, problem: Problem) -> str:
        """Return the name alone."""
        return problem.answer

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        line = last_line(judged_text(response))
        name = line.rpartition(LEAD)[2].strip(AROUND)
        if not name:
            return conclude("unparsed", None, "no answer in the last line")
        right = name == problem.answer.strip(AROUND)
        reason = "" if right else f"{name[:60]!r}, not {problem.answer!r}"
        return conclude("right" if right else "wrong", name, reason)
