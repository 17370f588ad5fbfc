"""Tasks about repositories, of `make_repair`, SWE-bench or SWE-smith."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.data.tables import Row, Table, read_rows
from r1lit.text.patches import reverse_diff
from r1lit.verifiers.repository import files_of

ONE_TURN = """{statement}

{files}
Mend it with one or more blocks of this form, whose SEARCH lines stand in the file exactly once:

path/of/the/file.py
<<<<<<< SEARCH
lines as they are
=======
lines as they should be
>>>>>>> REPLACE
"""


class RepositoryTasks(ProblemSource):
    """Tasks whose answer is a patch, for the verifier ``repository``.

    A row has SWE-bench's fields: ``instance_id``, ``repo``, ``problem_statement``, ``patch`` (which
    mends it), ``FAIL_TO_PASS`` and ``PASS_TO_PASS`` (lists, or lists as JSON), and ``test_patch``,
    which brings the tests. A row with ``image_name`` is SWE-smith's: its ``patch`` makes the bug.
    Rows of `r1lit.environments.make_repair` have ``bug``, ``roots``, ``hidden``, ``calls``,
    ``context`` and ``split`` besides. Rows without ``calls`` need a verifier with ``tests_alone``.
    Tests have pytest's ids and run in the sandbox, with the packages that are installed; where
    tasks need containers, SWE-bench's own harness decides.

    Args:
        path: a table, as `r1lit.data.tables` reads them.
        repositories: the folder of the repositories, one a folder named after ``instance_id`` or
            ``repo`` (with ``__`` for ``/``); beside the table, ``repositories``, if left out.
        split: only rows of this split; all if left out.
        turns: "one" shows the place and asks for a patch; "many" is for the environment
            `r1lit.environments.Repository`.
        environment: its name in ``data.environments``, with ``turns: many``.
        source: the name to report by.
        limit: rows read; null reads all.
        most_chars: tasks whose question is longer are left out; null leaves none out.
        meta: of every problem besides, such as ``kind: reasoning``.
    """

    def __init__(
        self,
        path: str,
        repositories: str | None = None,
        split: str | None = None,
        turns: Literal["one", "many"] = "one",
        environment: str = "repository",
        source: str = "repository",
        limit: int | None = None,
        most_chars: int | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> None:
        self.table = Table(path=path)
        self.folder = Path(repositories or Path(path).parent / "repositories").expanduser()
        self.split = split
        self.turns = turns
        self.environment = environment if turns == "many" else ""
        self.source = source
        self.limit = limit
        self.most_chars = most_chars
        self.meta = dict(meta or {})

    def problems(self) -> list[Problem]:
        """Return the tasks, in the table's order.

        Raises:
            ValueError: naming the row and what it lacks, or if there are no rows of the split, or
                all are too long.
        """
        rows = [
            (number, row)
            for number, row in enumerate(read_rows(self.table.path))
            if self.split is None or row.get("split") == self.split
        ]
        if not rows:
            raise ValueError(f"split: {self.table.path} has no row whose split is {self.split!r}")
        problems = [self._problem(number, row) for number, row in rows[: self.limit]]
        if self.most_chars is None:
            return problems
        short = [problem for problem in problems if len(problem.question) <= self.most_chars]
        if not short:
            shortest = min(len(problem.question) for problem in problems)
            raise ValueError(
                f"most_chars: {self.most_chars} leaves out all {len(problems)} tasks of"
                f" {self.table.path}; the shortest question has {shortest}"
            )
        return short

    def _problem(self, number: int, row: Row) -> Problem:
        missing = {"instance_id", "repo", "problem_statement", "patch", "FAIL_TO_PASS"} - row.keys()
        if missing:
            raise ValueError(f"path: {self.table.row(number)} has no {min(missing)!r}")
        uid, repo = str(row["instance_id"]), str(row["repo"])
        names = (uid, repo.replace("/", "__"), repo.rpartition("/")[2])
        folders = [self.folder / name for name in names if (self.folder / name).is_dir()]
        if not folders:
            raise ValueError(
                f"repositories: {self.folder} has no folder {names[0]!r} or {names[1]!r} for"
                f" {self.table.row(number)}; check the repository out there"
            )
        patch, bug = str(row["patch"]), str(row.get("bug") or row.get("test_patch") or "")
        if row.get("image_name"):
            patch, bug = reverse_diff(patch), patch
        problem = Problem(
            uid=uid,
            question=str(row["problem_statement"]),
            answer=patch,
            source=self.source,
            verifier="repository",
            environment=self.environment,
            meta={
                "repository": str(folders[0]),
                "bug": bug,
                "roots": list(row.get("roots") or ("src", "")),
                "fail_to_pass": _tests(row["FAIL_TO_PASS"]),
                "pass_to_pass": _tests(row.get("PASS_TO_PASS") or []),
                "hidden": _tests(row.get("hidden") or []),
                "calls": row.get("calls") or None,
                **self.meta,
            },
        )
        if self.turns == "many":
            return problem
        shown = _shown(problem, row.get("context") or [])
        question = ONE_TURN.replace("{files}", shown).replace("{statement}", problem.question)
        return replace(problem, question=question)


def _tests(value: Any) -> list[str]:
    tests = json.loads(value) if isinstance(value, str) else value
    return [str(test) for test in tests]


def _shown(problem: Problem, context: Sequence[Any]) -> str:
    """Return the parts of files that a prompt of one turn shows: ``[path, first line, last]``."""
    files, parts = files_of(problem), []
    for path, first, last in context:
        lines = files[path].splitlines()[first - 1 : last]
        parts.append(
            f"{path}, lines {first} to {last}:\n```python\n" + "\n".join(lines) + "\n```\n"
        )
    return "\n".join(parts)
