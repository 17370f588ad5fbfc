"""Aider's polyglot benchmark: exercises that edits solve in two tries, with unit tests between.

`Polyglot` is the environment that gives the second try; `ExerciseGrader` decides about one reply.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from r1lit.data import ProblemSource
from r1lit.data.tables import Table
from r1lit.environments import Environment, Episode, Reply, StepResult
from r1lit.evaluation.suites.scores import Groups, Score
from r1lit.metrics import mean, with_error
from r1lit.problems import Problem, Status, Verdict
from r1lit.sandbox import Limits, LocalSandbox
from r1lit.sandbox.repository import SuiteReport, run_suite
from r1lit.text.patches import Edit, PatchError, apply_edits, read_blocks
from r1lit.verifiers.base import Verifier, conclude, timed
from r1lit.verifiers.ifeval import judged_text

FENCE = "`" * 3
ADDENDUM = """
####

Use the above instructions to modify the supplied files: {file_list}
Don't change the names of existing functions or classes, as they may be referenced from other code like unit tests, etc.
Only use standard libraries, don't suggest installing any packages.
"""  # noqa: E501
"""Aider-AI/aider, benchmark/prompts.py (Apache-2.0)."""
TEST_FAILURES = """
####

See the testing errors above.
The tests are correct, don't try and change them.
Fix the code in {file_list} to resolve the errors.
"""
"""Aider-AI/aider, benchmark/prompts.py (Apache-2.0)."""
FORMAT = f"""Change the files by edit blocks. A block has the path of the file on a line of its own, and then, in a fence,
the lines as they are, which must stand in the file exactly so, and the lines as they should be:

path/of/the/file.py
{FENCE}python
<<<<<<< SEARCH
lines as they are
=======
lines as they should be
>>>>>>> REPLACE
{FENCE}

Nothing but the blocks is applied. An empty first part adds to the end of the file."""  # noqa: E501
MAX_REFLECTIONS = 3
"""Most retries of a try whose blocks do not fit; aider's ``max_reflections``."""
MAX_LINES = 50


class PolyglotExercises(ProblemSource):
    """Exercises in Python of the polyglot benchmark, for the environment `Polyglot`.

    Args:
        path: a table with ``name``, ``instructions``, and by their paths ``solution_files`` (what
            is edited), ``test_files`` and ``example_files`` (the reference, in the same order).
        limit: exercises read.
    """

    def __init__(self, path: str, limit: int | None = None) -> None:
        self.table = Table(path=path, limit=limit)

    def problems(self) -> list[Problem]:
        """Return every exercise, with its files in the question.

        Raises:
            ValueError: naming a row without files or tests.
        """
        keys = ("name", "instructions", "solution_files", "test_files", "example_files")
        return [self._problem(row, n) for n, row in self.table.rows({key: key for key in keys})]

    def _problem(self, row: dict[str, Any], number: int) -> Problem:
        for key in ("solution_files", "test_files", "example_files"):
            if not isinstance(row[key], Mapping) or not row[key]:
                raise ValueError(f"path: {self.table.row(number)} has no files in {key!r}")
        files = dict(row["solution_files"])
        shown = "\n\n".join(f"{path}\n{FENCE}\n{text}\n{FENCE}" for path, text in files.items())
        instructions = row["instructions"] + ADDENDUM.replace("{file_list}", " ".join(files))
        reference = zip(files.items(), row["example_files"].values(), strict=False)
        return Problem(
            uid=row["name"],
            question=f"{FORMAT}\n\nThese are the files:\n\n{shown}\n\n{instructions}",
            answer="\n".join(block(path, old, new) for (path, old), new in reference),
            source="aider_polyglot",
            meta={"files": files, "test_files": dict(row["test_files"])},
        )


def block(path: str, old: str, new: str) -> str:
    """Return an edit block that replaces ``old``, with line ends where they lack."""
    old, new = (text if text.endswith("\n") or not text else f"{text}\n" for text in (old, new))
    return f"{path}\n{FENCE}\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n{FENCE}\n"


def edited(files: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the files after the blocks of a reply; an empty search adds to the end.

    Raises:
        PatchError: if a block does not fit, or names a file that may not be edited.
    """
    now = {path: text if text.endswith("\n") else f"{text}\n" for path, text in files.items()}
    for edit in read_blocks(text.replace("\r\n", "\n")):
        names = [path for path in now if path.rpartition("/")[2] == edit.path.rpartition("/")[2]]
        if not names:
            raise PatchError(f"{edit.path}: it is none of {', '.join(now)}")
        path = names[0]
        if edit.old.strip():
            now |= apply_edits(now, [Edit(path=path, old=edit.old, new=edit.new)])
        else:
            now[path] += edit.new
    return now


class ExerciseTests:
    """Runs an exercise's unit tests on its files, a few at a time.

    Args:
        timeout_s: of the tests; the benchmark's 180.
        num_workers: sandboxes at once.
    """

    def __init__(self, timeout_s: float = 180.0, num_workers: int = 2) -> None:
        self.limits = Limits(wall_s=timeout_s, cpu_s=timeout_s / 2, processes=64)
        self.free = threading.BoundedSemaphore(num_workers)
        self.sandbox = LocalSandbox()

    def run(self, files: Mapping[str, str], problem: Problem) -> SuiteReport:
        """Return the report of the tests; test files are always the benchmark's, edited or not."""
        tests = dict(problem.meta["test_files"])
        names = [path for path in tests if path.endswith("_test.py")]
        with self.free:
            return run_suite(self.sandbox, {**files, **tests}, names, self.limits, details=True)

    def close(self) -> None:
        """Release the sandbox."""
        self.sandbox.close()


def failures(report: SuiteReport) -> str:
    """Return the tests' output, at most 50 lines as in the benchmark; empty if all pass."""
    if report.outcomes is None:
        return report.ended
    failed = [test for test, how in report.outcomes.items() if how == "failed"]
    if report.outcomes and not failed:
        return ""
    passed = len(report.outcomes) - len(failed)
    texts = [f"{test}\n{text}" for test, text in sorted(report.details.items())]
    lines = "\n".join([f"{passed} passed, {len(failed)} failed", *texts]).splitlines()
    return "\n".join(lines[:MAX_LINES])


def decided(report: SuiteReport, why: str) -> Verdict:
    """Return the verdict of the tests, whose failures are ``why``."""
    status: Status = "right" if not why else "timeout" if report.timed_out else "wrong"
    return conclude(status, None, " ".join(why.split())[:300])


class ExerciseGrader(Verifier):
    """Right if the tests pass after the edit blocks of one reply."""

    in_background = True

    def __init__(self, timeout_s: float = 180.0, num_workers: int = 2) -> None:
        self.tests = ExerciseTests(timeout_s, num_workers)
        self.num_workers = num_workers

    def gold_text(self, problem: Problem) -> str:
        """Return the blocks of the reference."""
        return f"\n{problem.answer}"

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one reply."""
        text = judged_text(response)
        if not read_blocks(text):
            return conclude("unparsed", None, "no edit block outside thinking")
        try:
            files = edited(problem.meta["files"], text)
        except PatchError as error:
            return conclude("unparsed", None, str(error))
        report = self.tests.run(files, problem)
        return decided(report, failures(report))

    def close(self) -> None:
        """Release the sandbox."""
        self.tests.close()


class PolyglotEpisode(Episode):
    """The files of an exercise, over the tries of one response."""

    def __init__(self, problem: Problem, owner: Polyglot) -> None:
        self.problem = problem
        self.owner = owner
        self.files: Mapping[str, str] = problem.meta["files"]
        self.tries = self.malformed = self.reflections = 0
        self.start = time.perf_counter()

    def step(self, reply: Reply) -> StepResult:
        """Apply the blocks, run the tests, and give the errors back while tries are left."""
        try:
            self.files = edited(self.files, judged_text(reply.text))
        except PatchError as error:
            self.malformed += 1
            self.reflections += 1
            if self.reflections <= MAX_REFLECTIONS:
                text = f"A block does not fit. {error}. Send the blocks again."
                return StepResult(messages=({"role": "user", "content": text},), invalid=True)
        self.tries, self.reflections = self.tries + 1, 0
        report = self.owner.tests.run(self.files, self.problem)
        why = failures(report)
        if why and self.tries < self.owner.num_tries:
            text = why + "\n" + TEST_FAILURES.replace("{file_list}", " ".join(self.files))
            return StepResult(messages=({"role": "user", "content": text},))
        details = {"tries": self.tries, "malformed": self.malformed}
        verdict = replace(decided(report, why), details=details)
        return StepResult(verdict=timed(verdict, self.start))


class Polyglot(Environment):
    """Two tries at an exercise: after a failed one, the model sees the errors of the tests.

    Args:
        num_tries: how many; the benchmark's 2.
        timeout_s: of one run of the tests.
        num_workers: sandboxes at once.
    """

    in_background = True

    def __init__(self, num_tries: int = 2, timeout_s: float = 180.0, num_workers: int = 2) -> None:
        self.num_tries = num_tries
        self.tests = ExerciseTests(timeout_s, num_workers)

    def begin(self, problem: Problem, seed: int) -> PolyglotEpisode:
        """Return an episode with the exercise's own files."""
        return PolyglotEpisode(problem, self)

    def close(self) -> None:
        """Release the sandbox."""
        self.tests.close()


def pass_rate_2(groups: Groups, *, seed: int = 0) -> Score:
    """Return the share solved within two tries, aider's headline, and its other two numbers.

    ``pass_rate_1`` is the share solved at once, ``well_formed`` the share without a malformed edit.
    """
    details = [r.get("details", {}) for group in groups.values() for r in group]
    right = [[float(r["value"] == 1.0) for r in group] for group in groups.values()]
    first = [
        float(r["value"] == 1.0 and r.get("details", {}).get("tries", 1) == 1)
        for group in groups.values()
        for r in group
    ]
    return {
        "name": "pass rate 2",
        **with_error([mean(values) for values in right], seed=seed),
        "pass_rate_1": mean(first),
        "well_formed": mean([not d.get("malformed", 0) for d in details]),
    }
