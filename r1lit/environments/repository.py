"""The repository environment: view, search and edit files, run tests, then end with a patch."""

from __future__ import annotations

import ast
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from r1lit.environments.base import Environment, Episode, Reply, StepResult
from r1lit.environments.tools import answer_calls, need_jsonschema, schema_of
from r1lit.problems import Problem
from r1lit.sandbox import Limits, LocalSandbox
from r1lit.sandbox.repository import SuiteReport, function_of, is_test, name_of, run_suite
from r1lit.text.patches import Edit, PatchError, apply_edits, write_diff
from r1lit.text.prompts import Conversation, extended, question_of
from r1lit.verifiers.repository import files_of, refusal, refuse_guarded

TOOLS = ("files", "view", "search", "edit", "run_tests")
HOW = """
Mend the repository with the tools. Tests may not be changed. Answer without a call when you are
done; then all tests are run."""


class RepositoryEpisode(Episode):
    """The files of one task, as the model has changed them so far.

    The public methods named in ``TOOLS`` are what a model calls.
    """

    def __init__(self, problem: Problem, owner: Repository) -> None:
        self._owner = owner
        self._meta = problem.meta
        self._before = files_of(problem)
        self._changed: dict[str, str] = {}
        self._hidden = {name_of(test) for test in problem.meta.get("hidden") or ()}
        self._functions = {name: getattr(self, name) for name in TOOLS}

    def step(self, reply: Reply) -> StepResult:
        """Return the results of the calls; without one the patch is the answer."""
        step = answer_calls(self._functions, self._owner.schemas, reply)
        if step.messages:
            return step
        return StepResult(answer=write_diff(self._before, self._changed))

    def _file(self, path: str) -> str:
        now = self._changed.get(path, self._before.get(path))
        if now is None:
            raise ValueError(f"there is no file {path!r}")
        return without_tests(now, self._hidden) if is_test(path) else now

    def files(self) -> str:
        """List the paths of all files."""
        return "\n".join(sorted({*self._before, *self._changed}))

    def view(self, path: str, first: int = 1, last: int = 0) -> str:
        """Show lines of a file with their numbers.

        Args:
            path: of the file.
            first: the first line, from 1.
            last: the last line; 0 shows as many as there is room for.
        """
        lines = self._file(path).splitlines()
        most = self._owner.max_lines
        last = min(last or len(lines), len(lines), first + most - 1)
        shown = [f"{n:>5} {lines[n - 1]}" for n in range(max(first, 1), last + 1)]
        more = f"\n({len(lines) - last} more lines)" if last < len(lines) else ""
        return "\n".join(shown) + more

    def search(self, text: str) -> str:
        """Find the lines that hold a text, in all files.

        Args:
            text: what to look for, as it stands there.
        """
        found = [
            f"{path}:{number}: {line.strip()[:200]}"
            for path in sorted({*self._before, *self._changed})
            if path.endswith(".py")
            for number, line in enumerate(self._file(path).splitlines(), start=1)
            if text in line
        ]
        more = f"\n({len(found) - 40} more)" if len(found) > 40 else ""
        return "\n".join(found[:40]) + more or "no line holds it"

    def edit(self, path: str, old: str, new: str) -> str:
        """Replace lines of a file. They must stand there exactly once.

        Args:
            path: of the file; one that does not exist is made, if old is empty.
            old: the lines as they are.
            new: the lines as they should be.
        """
        changed = self._changed | apply_edits(self._now(), [Edit(path=path, old=old, new=new)])
        refused = refusal(self._before, changed)
        if refused:
            raise PatchError(refused)
        self._changed = changed
        return "changed"

    def run_tests(self) -> str:
        """Run the tests of the task on the files as they are now."""
        meta = self._meta
        wanted = [*meta["fail_to_pass"], *meta["pass_to_pass"]]
        shown = [test for test in wanted if name_of(test) not in self._hidden]
        report = self._suite(shown)
        if report.outcomes is None:
            return report.ended
        failed = [test for test in shown if report.outcomes.get(test) != "passed"]
        text = f"{len(shown) - len(failed)} passed, {len(failed)} failed"
        for test in failed[: self._owner.max_failures]:
            text += f"\n{test}\n{report.details.get(test, 'did not run')[-600:]}"
        outside = [text for at, text in report.details.items() if "::" not in at]
        return text + ("\n" + outside[0][-600:] if outside and failed else "")

    def _now(self) -> dict[str, str]:
        return {**self._before, **self._changed}

    def _suite(self, shown: Sequence[str]) -> SuiteReport:
        return self._run(self._now(), shown)

    def _run(self, files: Mapping[str, str], tests: Sequence[str]) -> SuiteReport:
        with self._owner.free:
            return run_suite(
                self._owner.sandbox,
                files,
                sorted({test.partition("::")[0] for test in tests}),
                self._owner.limits,
                roots=list(self._meta.get("roots") or ("src", "")),
                keep={function_of(test) for test in tests},
                details=True,
            )


def without_tests(source: str, names: set[str]) -> str:
    r"""Return a test file without functions of some names, all else as it stands.

    >>> without_tests("def test_a():\n    pass\n\ndef test_b():\n    pass\n", {"test_a"})
    '\ndef test_b():\n    pass\n'
    """
    try:
        nodes = ast.walk(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError):
        return source
    gone: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            gone.update(range(first, (node.end_lineno or first) + 1))
    lines = source.splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines, start=1) if number not in gone)


class Repository(Environment):
    """Files of a repository with a fault, which the model views and edits, and whose tests it runs.

    The episode's answer is the diff of all edits. The verifier ``repository`` decides about it, in
    processes of its own, while others generate or update. Hidden tests are neither shown nor run.

    Args:
        timeout_s: of one run of the tests.
        num_workers: sandboxes at once, for runs that the model asks for.
        max_lines: that one view shows.
        max_failures: that a run of the tests shows in full.
        guarded: gone, and refused.
    """

    in_background = True

    def __init__(
        self,
        timeout_s: float = 30.0,
        num_workers: int = 2,
        max_lines: int = 100,
        max_failures: int = 3,
        guarded: bool | None = None,
    ) -> None:
        refuse_guarded(guarded, "leave it out")
        need_jsonschema()
        self.limits = Limits(wall_s=timeout_s, cpu_s=timeout_s / 2, processes=64)
        self.max_lines = max_lines
        self.max_failures = max_failures
        self.free = threading.BoundedSemaphore(num_workers)
        self.sandbox = LocalSandbox()
        self.schemas: Mapping[str, Mapping[str, Any]] = {
            name: schema_of(getattr(RepositoryEpisode, name)) for name in TOOLS
        }

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools' schemas."""
        return list(self.schemas.values())

    def opening(self, problem: Problem) -> str | Conversation:
        """Return the statement, and what is to be done."""
        return extended(question_of(problem), HOW.strip())

    def begin(self, problem: Problem, seed: int) -> RepositoryEpisode:
        """Return an episode with the files as the problem has them."""
        return RepositoryEpisode(problem, self)

    def close(self) -> None:
        """Release the sandbox."""
        self.sandbox.close()
