"""Code with functional tests, as HumanEval and MBPP have them."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from r1lit.problems import Problem
from r1lit.sandbox.run_tests import unknown_names
from r1lit.text.code_block import CodeBlock
from r1lit.verifiers.code import CodeVerifier

_ENTRY = re.compile(r"[^\W\d]\w*(?:\(\)\.[^\W\d]\w*)?")


class FunctionalCodeVerifier(CodeVerifier):
    r"""Decides about Python functions by asserts.

    HumanEval: ``problem.meta`` holds ``prompt`` (the beginning of the program), ``entry_point`` (a
    function, or LeetCode's ``Solution().method``) and ``test`` (source that defines ``check``). A
    response may give the whole function or only what
    follows the prompt. MBPP: ``meta`` holds ``tests``, a list of asserts, and may hold ``setup``,
    source that they need.

    The asserts run in a sandbox of their own and call the program, in another, by plain data.

    Args:
        timeout_s: seconds that all asserts of a program may take.
        num_workers: processes that work on responses side by side.
        limits: of time, memory and output of one test; `r1lit.sandbox.Limits`' own if left
            out.

    >>> meta = {"tests": ["assert add(1, 2) == 3"]}
    >>> problem = Problem(uid="", question="", answer="", source="", meta=meta)
    >>> fence = "`" * 3
    >>> response = f"{fence}python\ndef add(a, b):\n    return a + b\n{fence}"
    >>> verifier = FunctionalCodeVerifier(num_workers=1)
    >>> verifier.verify(response, problem).status
    'right'
    >>> verifier.close()
    """

    kind = "functional"
    languages = ("python",)

    def request(self, block: CodeBlock, problem: Problem) -> Mapping[str, Any]:
        """Return what a worker needs to judge the program."""
        meta = problem.meta
        if "test" in meta:
            prompt, entry = meta["prompt"], meta["entry_point"]
            return {
                "files": program_files(block.code, prompt, entry),
                "given": ended(prompt),
                "tests": [meta["test"]],
                "check": entry,
            }
        tests: Sequence[str] = meta["tests"]
        return {"files": {"main.py": block.code}, "given": meta.get("setup", ""), "tests": tests}

    def names(self, problem: Problem) -> Sequence[str]:
        """Return what the tests call, and nothing that ``setup`` defines."""
        meta = problem.meta
        if "test" in meta:
            return [meta["entry_point"].partition("(")[0]]
        try:
            return unknown_names(meta["tests"], dict.fromkeys(defined_names(meta.get("setup", ""))))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ()  # running them says what is wrong

    def check_meta(self, problem: Problem) -> None:
        """Check that ``problem.meta`` has tests.

        Raises:
            ValueError: naming the problem and what is missing or malformed.
        """
        meta = problem.meta
        if "test" in meta:
            for key in ("test", "prompt", "entry_point"):
                if not isinstance(meta.get(key), str):
                    raise self.complaint(problem, key, "a text, as HumanEval has it")
            if not _ENTRY.fullmatch(meta["entry_point"]):
                raise self.complaint(problem, "entry_point", "a function, or Solution().method")
            if not re.search(r"\bcheck\b", meta["test"]):
                raise self.complaint(problem, "test", "source that defines check")
            return
        tests = meta.get("tests")
        if (
            not isinstance(tests, list | tuple)
            or not tests
            or not all(isinstance(test, str) for test in tests)
        ):
            raise self.complaint(problem, "tests", "a list of asserts, or give test (HumanEval)")
        if not runs_something(tests):
            raise self.complaint(problem, "tests", "asserts that run, and these only define")


def runs_something(tests: Sequence[str]) -> bool:
    r"""Decide whether tests do anything but define; if not, every program would pass them.

    >>> runs_something(["assert f(1) == 2"]), runs_something(["def check(f):\n    assert f(1)"])
    (True, False)
    """
    try:
        nodes = [node for test in tests for node in ast.parse(test).body]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # running them says what is wrong
    defines = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)
    values = (ast.Expr, ast.Assign)
    return not all(
        isinstance(node, defines) or (isinstance(node, values) and not _calls(node))
        for node in nodes
    )


def ended(prompt: str) -> str:
    """Return the beginning of a program with as many ``pass`` as make it one that can be run."""
    texts = [prompt.rstrip() + end for end in ("\n    pass\n", "\n", "\n        pass\n")]
    for text in texts:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            ast.parse(text)
            return text
    return texts[0]


def defined_names(source: str) -> set[str]:
    """Return the functions, classes and modules that a source defines or imports.

    >>> sorted(defined_names("import math; from os import path; f = 1"))
    ['math', 'path']
    """
    nodes = ast.parse(source).body
    names = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    imports = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
    return names | {(a.asname or a.name).partition(".")[0] for n in imports for a in n.names}


def _calls(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def program_files(code: str, prompt: str, entry_point: str) -> dict[str, str]:
    """Return the files of a program that continues ``prompt``, or holds the whole function.

    A whole function still gets what the prompt defines before it.
    """
    name = entry_point.partition("(")[0]
    if re.search(rf"^(?:async +def|def|class) +{name}\b|^{name}\s*[:=]", code, re.M):
        start = re.search(rf"^(?:async +def|def|class) +{name}\b", prompt, re.M)
        before = prompt[: start.start()] if start else "" if name == entry_point else prompt
        return {"prompt.py": before, "main.py": code}
    return {"main.py": prompt.rstrip() + "\n" + code}
