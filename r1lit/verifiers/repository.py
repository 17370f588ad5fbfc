"""Repository tasks: a patch is right if it makes failing tests pass and breaks no passing test.

`problem.meta` holds ``repository`` (a folder, or texts of files by path), ``bug`` (a diff that is
applied to it; may be empty), ``roots`` (folders to import from), ``fail_to_pass`` and
``pass_to_pass`` (pytest's test ids) and ``hidden`` (tests that the model is not shown).
`problem.answer` is the diff that fixes it. The response is one patch: search/replace blocks or a
unified diff.
"""

from __future__ import annotations

import ast
import importlib.util
import re
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
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.code import GRACE_S, WORKER
from r1lit.verifiers.pool import WorkerPool

MAX_FILE_BYTES = 1 << 20
MAX_BYTES = 16 << 20
LEFT_OUT = (".git", "__pycache__", ".tox", ".venv", "node_modules")


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
        if not path.is_file() or path.is_symlink() or not {*LEFT_OUT}.isdisjoint(parts):
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


def check_task(problem: Problem) -> None:
    """Check that ``problem.meta`` is a task.

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


RESERVED = frozenset({
    "_exit", "_getframe", "_pytest", "pytest", "unittest", "mock", "gc", "inspect", "ctypes",
    "atexit", "builtins", "importlib", "exec", "eval", "compile", "globals", "modules", "settrace",
    "setprofile", "quit", "abort", "kill", "killpg", "fork", "signal", "open", "fdopen",
    "subprocess", "meta_path", "path_hooks", "posix",
})  # fmt: skip
_INNOCENT = frozenset(
    f"__{name}__"
    for name in (
        "init", "name", "len", "iter", "next", "repr", "str", "all", "enter", "exit", "call", "doc",
        "contains", "getitem", "setitem", "delitem", "add", "lt", "slots", "new", "hash", "wrapped",
        "reversed",
    )
)  # fmt: skip
_DUNDER = re.compile(r"__\w+__")


def refusal(before: Mapping[str, str], changed: Mapping[str, str], guarded: bool = True) -> str:
    """Say why changed files are refused; empty where they may be tested.

    Tests and what steers them stay as they are. New files stand in packages that exist: elsewhere
    they could take the place of the standard library. With ``guarded``, a file may not begin to use
    names by which a program ends, watches or forges its tests.
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
            new = _identifiers(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{path}: does not parse: {error}"
        try:
            old = _identifiers(before.get(path, ""))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            old = set()
        brought = sorted(
            name
            for name in new - old
            if name in RESERVED or (_DUNDER.fullmatch(name) and name not in _INNOCENT)
        )
        if guarded and brought:
            return f"{path}: brings {', '.join(brought)}, by which tests can be ended or forged"
    return ""


def _identifiers(source: str) -> set[str]:
    """Return the words of a program's code and short strings, without comments and docstrings."""
    tree = ast.parse(source)
    words: set[str] = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "arg", "module", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                words.update(value.split("."))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 80:
            words.update(re.findall(r"\w+", node.value) if " " not in node.value else ())
    return words


class RepositoryVerifier(Verifier):
    """Runs the tests of a repository on a patch, in at most ``num_workers`` sandboxes at once.

    Test files are those of the repository, whatever the patch; see `r1lit.sandbox.repository` for
    what keeps a verdict from being forged. A run that reaches its CPU time is wrong, one that
    reaches ``timeout_s`` of the clock has no verdict (``timeout``): training leaves its group out.
    Programs cast no votes.

    Args:
        timeout_s: seconds that a patch's tests may take.
        num_workers: sandboxes at once.
        limits: of one run; by default half of ``timeout_s`` is CPU time.
        max_left_out: the share of a rollout's responses that may have no verdict; more end the run.
        guarded: refuse patches that bring names by which a program ends or forges its tests.
        delay_s: seconds that a verdict takes more: for studies of slow evaluation.
    """

    in_background = True
    left_out = ("timeout", "error")

    def __init__(
        self,
        timeout_s: float = 60.0,
        num_workers: int = 2,
        limits: Limits | None = None,
        max_left_out: float = 0.5,
        guarded: bool = True,
        delay_s: float = 0.0,
    ) -> None:
        self.max_left_out = max_left_out
        self.pool = WorkerPool(WORKER, num_workers, timeout_s + delay_s, GRACE_S)
        self.num_workers = num_workers
        self.limits = limits or Limits(wall_s=timeout_s, cpu_s=timeout_s / 2, processes=64)
        self.guarded = guarded
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
            ValueError: if a problem is no task, or its repository is not there.
            RuntimeError: if the worker processes cannot start, as where there is no sandbox.
        """
        verdicts: dict[int, Verdict] = {}
        requests: dict[int, Mapping[str, Any]] = {}
        for row, (response, problem) in enumerate(zip(responses, problems, strict=True)):
            check_task(problem)
            start = time.perf_counter()
            try:
                edits = read_patch(response)
                if not edits:
                    raise PatchError("neither search/replace blocks nor a diff outside thinking")
                before = files_of(problem)
                changed = apply_edits(before, edits)
            except PatchError as error:
                verdicts[row] = conclude("unparsed", None, str(error), start)
                continue
            refused = refusal(before, changed, self.guarded)
            if refused:
                verdicts[row] = conclude("wrong", None, refused, start)
                continue
            requests[row] = self._request(before | changed, problem)
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

    def _request(self, files: Mapping[str, str], problem: Problem) -> dict[str, Any]:
        meta = problem.meta
        return {
            "kind": "repository",
            "limits": asdict(self.limits),
            "files": dict(files),
            "roots": list(meta.get("roots") or ("src", "")),
            "fail_to_pass": list(meta["fail_to_pass"]),
            "pass_to_pass": list(meta["pass_to_pass"]),
            "delay_s": self.delay_s,
        }

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self.pool.close()
