"""Repository tasks: a patch is right if it makes failing tests pass and breaks no passing test.

`problem.meta` holds ``repository`` (a folder, or texts of files by path), ``bug`` (a diff that is
applied to it; may be empty), ``roots`` (folders to import from), ``fail_to_pass`` and
``pass_to_pass`` (pytest's test ids) and ``hidden`` (tests that the model is not shown).
``calls`` are recorded calls of the changed function, for the hidden part of a verdict:
``packages``, and ``functions`` with ``module``, ``name`` and ``calls``, rows of packed
arguments, outcome, and whether the bug shows. `problem.answer` is the diff that fixes it. The
response is one patch: search/replace blocks or a unified diff.
"""

from __future__ import annotations

import ast
import importlib.util
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from r1lit.problems import Problem, Verdict
from r1lit.sandbox.base import Limits
from r1lit.sandbox.repository import is_test
from r1lit.text.patches import PatchError, apply_edits, read_diff, read_patch
from r1lit.verifiers.base import Verifier, conclude, timed
from r1lit.verifiers.code import GRACE_S, WORKER
from r1lit.verifiers.pool import WorkerPool

HIDDEN_S = 60.0
MAX_FILE_BYTES = 1 << 20
MAX_BYTES = 16 << 20
IGNORED_FOLDERS = (".git", "__pycache__", ".tox", ".venv", "node_modules")


@lru_cache(maxsize=16)
def read_repository(folder: str) -> Mapping[str, str]:
    """Return the text files of a repository by their paths.

    Raises:
        ValueError: if there is no such folder, or it holds too much.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise ValueError(f"repository: there is no folder {folder!r}")
    files: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if not path.is_file() or path.is_symlink() or not {*IGNORED_FOLDERS}.isdisjoint(parts):
            continue
        if path.stat().st_size <= MAX_FILE_BYTES:
            try:
                files["/".join(parts)] = path.read_bytes().decode()
            except UnicodeDecodeError:
                continue
    if sum(map(len, files.values())) > MAX_BYTES:
        raise ValueError(f"repository: {folder!r} holds more than {MAX_BYTES} bytes of text")
    return MappingProxyType(files)


def files_of(problem: Problem) -> dict[str, str]:
    """Return the files of a task as a model finds them: with the bug.

    Raises:
        ValueError: if the bug does not fit the repository.
    """
    where = problem.meta["repository"]
    files = dict(where if isinstance(where, Mapping) else read_repository(str(where)))
    try:
        return files | apply_edits(files, read_diff(str(problem.meta.get("bug") or "")))
    except PatchError as error:
        raise ValueError(f"bug: problem {problem.uid!r}: {error}") from error


def mended_files(problem: Problem, before: Mapping[str, str]) -> dict[str, str]:
    """Return the files that a task's fix changes, as they are then.

    Raises:
        ValueError: if the fix does not fit the repository.
    """
    try:
        return apply_edits(before, read_patch(f"\n{problem.answer}"))
    except PatchError as error:
        raise ValueError(f"answer: problem {problem.uid!r}: {error}") from error


def check_task(problem: Problem, tests_alone: bool = True) -> None:
    """Check that ``problem.meta`` is a task, and has recorded calls unless tests decide alone.

    Raises:
        ValueError: naming the problem, the key and what would be right.
    """
    for key in ("repository", "fail_to_pass", "pass_to_pass"):
        value = problem.meta.get(key)
        is_list = isinstance(value, list | tuple) and all("::" in str(test) for test in value)
        is_place = bool(value) and isinstance(value, str | Mapping)
        fits = is_place if key == "repository" else is_list
        if not fits or (key == "fail_to_pass" and not value):
            right = "a folder, or files" if key == "repository" else "a list of pytest's test ids"
            raise ValueError(
                f"meta.{key}: problem {problem.uid!r} has {str(value)[:60]!r}; a task of a"
                f" repository needs {right}"
            )
    calls = problem.meta.get("calls")
    if not calls and tests_alone:
        return
    functions = calls.get("functions") if isinstance(calls, Mapping) else None
    if not functions or not all(f.get("calls") for f in functions):
        raise ValueError(
            f"meta.calls: problem {problem.uid!r} has {str(calls)[:60]!r}, and tests alone can be"
            " forged; make the task with r1lit.environments.make_repair, or set tests_alone: true"
        )


def refusal(before: Mapping[str, str], changed: Mapping[str, str]) -> str:
    """Say why changed files are refused; empty where they may be tested.

    Tests and what steers them stay as they are. New files stand in packages that exist: elsewhere
    they could take the place of the standard library.
    """
    for path, source in changed.items():
        folder = path.rpartition("/")[0]
        if path.startswith("/") or ".." in path.split("/") or not path.endswith(".py"):
            return f"{path}: only Python files of the repository may be changed"
        if is_test(path):
            return f"{path}: tests may not be changed"
        if path not in before and (not folder or f"{folder}/__init__.py" not in before):
            return f"{path}: a new file has to be in a package that exists"
        try:
            ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{path}: does not parse: {error}"
    return ""


def refuse_guarded(guarded: object, instead: str) -> None:
    """Refuse a key that is gone.

    Raises:
        ValueError: if it is there; the message says what to write.
    """
    if guarded is not None:
        raise ValueError(f"guarded: {guarded!r} has no meaning any more; {instead}")


class RepositoryVerifier(Verifier):
    """Runs the tests of a repository on a patch, and then the calls of its task's hidden part.

    Test files are those of the repository, whatever the patch. Tests can be forged by the patched
    code, the hidden part cannot: see `r1lit.sandbox.hidden_calls`. A run that reaches its CPU time
    is wrong, and so is one that reaches ``timeout_s`` of the clock, if the tests end in that time
    without the patch. If they do not, there is no verdict (``timeout``): training leaves the group
    out. Programs cast no votes.

    Args:
        timeout_s: seconds that a patch's tests may take.
        num_workers: sandboxes at once.
        limits: of one run; by default half of ``timeout_s`` is CPU time.
        max_excused: the share of a rollout's responses that may have no verdict; more end the run.
        tests_alone: take tasks without recorded calls. Their verdicts can be forged.
        delay_s: seconds that a verdict takes more: for studies of slow evaluation.
        guarded: gone, and refused.
    """

    needs = (("repository",), ("fail_to_pass",), ("pass_to_pass",), ("calls",))
    in_background = True
    excused_statuses = ("timeout", "error")

    def __init__(
        self,
        timeout_s: float = 60.0,
        num_workers: int = 2,
        limits: Limits | None = None,
        max_excused: float = 0.5,
        tests_alone: bool = False,
        delay_s: float = 0.0,
        guarded: bool | None = None,
    ) -> None:
        refuse_guarded(
            guarded, "leave it out, and write tests_alone: true for tasks without recorded calls"
        )
        self.max_excused = max_excused
        self.num_workers = num_workers
        self.limits = limits or Limits(wall_s=timeout_s, cpu_s=timeout_s / 2, processes=64)
        # the tests, again without the patch if they hang, and the hidden part
        patience = 4 * max(timeout_s, self.limits.wall_s) + HIDDEN_S + delay_s
        self.pool = WorkerPool(WORKER, num_workers, patience, GRACE_S)
        self.tests_alone = tests_alone
        self.delay_s = delay_s

    def check(self) -> None:
        """Check that pytest is there.

        Raises:
            ImportError: if it is missing.
        """
        if importlib.util.find_spec("pytest") is None:
            raise ImportError(
                "verifier: 'repository' needs the package pytest; pip install 'r1lit[tools]'"
            )

    def gold_text(self, problem: Problem) -> str:
        """Return the diff that mends the repository, and a fence, so that it ends there."""
        text = problem.answer.rstrip("\n")
        return f"\n{text}\n```\n"

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        return self.verify_batch([response], [problem])[0]

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order.

        Raises:
            ValueError: if a problem is no task, its repository is not there, or no sandbox is.
            RuntimeError: if the worker processes cannot start.
        """
        verdicts: dict[int, Verdict] = {}
        requests: dict[int, Mapping[str, Any]] = {}
        for row, (response, problem) in enumerate(zip(responses, problems, strict=True)):
            check_task(problem, self.tests_alone)
            start = time.perf_counter()
            try:
                edits = read_patch(response)
                if not edits:
                    raise PatchError("neither search/replace blocks nor a diff outside thinking")
                before = files_of(problem)
                changed = apply_edits(before, edits)
            except PatchError as error:
                verdicts[row] = timed(conclude("unparsed", None, str(error)), start)
                continue
            refused = refusal(before, changed)
            if refused:
                verdicts[row] = timed(conclude("wrong", None, refused), start)
                continue
            requests[row] = self._request(before, changed, problem)
        decided = self.decided(list(requests.values())) if requests else []
        for row, content in zip(requests, decided, strict=True):
            verdicts[row] = Verdict(**content)
        return [verdicts[row] for row in range(len(responses))]

    def decided(self, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the fields of a verdict for each request, by running its tests."""
        return [
            {"value": 0.0, "canonical": None, **reply.content, "seconds": reply.seconds}
            for reply in self.pool.run(requests)
        ]

    def _request(
        self, before: Mapping[str, str], changed: Mapping[str, str], problem: Problem
    ) -> dict[str, Any]:
        meta = problem.meta
        mended = mended_files(problem, before) if meta.get("calls") else {}
        touched = {*changed, *mended}
        right = {**before, **mended}
        hidden = {"right": {path: right.get(path) for path in touched}, **(meta.get("calls") or {})}
        return {
            "kind": "repository",
            "limits": asdict(self.limits),
            "files": {**before, **changed},
            "unpatched": {path: before.get(path) for path in touched},
            "roots": list(meta.get("roots") or ("src", "")),
            "fail_to_pass": list(meta["fail_to_pass"]),
            "pass_to_pass": list(meta["pass_to_pass"]),
            "delay_s": self.delay_s,
            "hidden": hidden if meta.get("calls") else None,
        }

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self.pool.close()
