r"""Code verifiers: extract a response's program, and run its tests in a sandbox.

Two verifiers: `FunctionalCodeVerifier` calls a program's functions (HumanEval, MBPP, LeetCode),
`StdinCodeVerifier` compares what it prints (CodeContests, LiveCodeBench).

The program is the last fenced block outside thinking.

A fence is three or more backticks or tildes at the start of a line, however far that is indented,
closed by a line of at least as many of the same; a last block may lack its end. If the last
``<answer>`` outside thinking holds fenced blocks, they alone count. Blocks marked as something that
is no program (``text``, ``bash``, ``json``) do not count, and unmarked ones only where no other is
marked: behind a program they show its output. Of several programs the last counts that defines what
the tests call, so that a usage example behind it does not. A helper that it uses, or the tests do,
and that only an earlier block defines is taken from there.
"""

from __future__ import annotations

import ast
import contextlib
import re
import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import r1lit.sandbox
from r1lit.problems import Problem, Verdict
from r1lit.sandbox.base import Limits
from r1lit.sandbox.grading import language_of
from r1lit.sandbox.piston import PistonSandbox
from r1lit.sandbox.run_tests import free_names, unknown_names
from r1lit.text.extract import thinking_and_answer
from r1lit.verifiers.base import Verifier, conclude, timed
from r1lit.verifiers.pool import WorkerPool

MAX_CHARACTERS = 200_000
MAX_WITH_HELPERS = 50_000  # characters of all blocks, to be read here for helpers
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
GRACE_S = 2.0
CPU_S = 10.0  # a reference of MBPP takes 5; wall-clock time has to do on crowded cores too
WORKER = Path(r1lit.sandbox.__file__).with_name("worker.py")
LANGUAGES = {
    "": "",
    "python": "python",
    "python3": "python",
    "py": "python",
    "py3": "python",
    "cpp": "c++",
    "c++": "c++",
    "cc": "c++",
    "cxx": "c++",
    "c++17": "c++",
    "cpp17": "c++",
}
_FENCE = re.compile(r"([ \t]{0,20})(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^`]*+")
_ANSWER = re.compile(r"</?answer>")
_ENTRY = re.compile(r"[^\W\d]\w*(?:\(\)\.[^\W\d]\w*)?")


@dataclass(frozen=True, kw_only=True)
class CodeBlock:
    """A program and its language; the language is empty where the fence names none."""

    language: str
    code: str


def find_code(response: str, names: Collection[str] = ()) -> CodeBlock | None:
    r"""Return the program of a response, or ``None``.

    ``names`` are what the program should define: the last block that defines one of them is taken,
    else the last of all.

    >>> find_code("<think>\n```python\nprint(1)\n```\n</think> It prints 1.")
    >>> find_code("Here:\n```" + "python\nprint(1)\n```\nIt prints 1.")
    CodeBlock(language='python', code='print(1)\n')
    >>> find_code("```py\ndef f(): pass\n```\n```py\nprint(f())\n```", ["f"]).code
    'def f(): pass\n'
    """
    _, text = thinking_and_answer(response.replace("\r\n", "\n"))
    blocks = _blocks(_last_answer(text)) or _blocks(text)
    blocks = [block for block in blocks if block.language] or blocks
    defining = [block for block in blocks if any(_defines(block.code, name) for name in names)]
    if not blocks:
        return None
    block = (defining or blocks)[-1]
    earlier = blocks[: blocks.index(block)]
    if not earlier or block.language == "c++":
        return block
    return CodeBlock(
        language=block.language, code=_helpers(block.code, earlier, names) + block.code
    )


def _helpers(code: str, earlier: Sequence[CodeBlock], names: Collection[str]) -> str:
    """Return the definitions in ``earlier`` blocks that a program lacks, in their order.

    Only definitions, imports and assignments are taken: nothing else of those blocks shall run.
    """
    if len(code) + sum(len(block.code) for block in earlier) > MAX_WITH_HELPERS:
        return ""
    try:
        needed = {*free_names([code]), *(n for n in names if not _defines(code, n))}
    except UNREADABLE:
        return ""
    statements: list[tuple[set[str], str]] = []
    for block in earlier:
        with contextlib.suppress(*UNREADABLE):
            statements += [
                (bound, ast.unparse(node) + "\n")
                for node in ast.parse(block.code).body
                if (bound := _bound_names(node))
            ]
    chosen: dict[int, str] = {}
    while needed:
        found = {
            number: text
            for number, (bound, text) in enumerate(statements)
            if bound & needed and number not in chosen
        }
        chosen |= found
        needed = set(free_names(list(found.values()))) if found else set()
    return "".join(chosen[number] for number in sorted(chosen))


def _bound_names(node: ast.stmt) -> set[str]:
    """Return the names that a definition, an import or an assignment at the top level binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _defines(code: str, name: str) -> bool:
    """Decide whether a line of a program begins the definition of ``name``."""
    return bool(
        re.search(
            rf"^[ \t]{{0,8}}(?:async +def|def|class) +{re.escape(name)}\b|^{re.escape(name)} *[:=]",
            code,
            re.MULTILINE,
        )
    )


def _dedented(lines: list[str], indent: int) -> str:
    """Remove from each line the space that stands before its fence, as Markdown does in a list."""
    return "".join(
        line[min(indent, len(line) - len(line.lstrip(" \t"))) :] + "\n" for line in lines
    )


def _last_answer(text: str) -> str:
    answer, start = "", None
    for tag in _ANSWER.finditer(text):
        if tag.group() == "<answer>":
            start = tag.end()
        elif start is not None:
            answer, start = text[start : tag.start()], None
    return answer


def _blocks(text: str) -> list[CodeBlock]:
    """Return the blocks that may be programs: one pass over the lines, each read once."""
    blocks: list[CodeBlock] = []
    opened: re.Match[str] | None = None
    lines: list[str] = []

    def close() -> None:
        language = LANGUAGES.get(opened[3].lower()) if opened is not None else None
        if opened is not None and language is not None:
            blocks.append(CodeBlock(language=language, code=_dedented(lines, len(opened[1]))))

    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if fence is not None and opened is not None and len(fence[1]) > len(opened[1]) + 3:
            fence = None  # a line of the program's own, as in a docstring
        same = fence is not None and opened is not None and fence[2].startswith(opened[2])
        if fence is None or (opened is not None and not same):
            lines.append(line)
        elif opened is not None and not fence[3]:
            close()
            opened, lines = None, []
        elif opened is None or LANGUAGES.get(fence[3].lower()):
            opened, lines = fence, []  # where one was open, it was never closed
        else:
            lines.append(line)
    if any(map(str.strip, lines)):  # the last block lacks its end
        close()
    return blocks


class CodeVerifier(Verifier):
    """Judges the program of a response in a sandbox, in at most ``num_workers`` at once.

    ``timeout_s`` is the time for one program with all its tests; one that takes longer has status
    ``timeout``. Unless ``limits`` say otherwise, half of it may be CPU time, and 10 s in any case:
    the rest is for waiting where others use the cores. Nothing starts before the first program.
    ``canonical`` is ``None``: programs cast no votes.
    """

    needs_answer = False
    in_background = True
    kind: str
    languages: tuple[str, ...]

    def __init__(
        self, timeout_s: float = 20.0, num_workers: int = 2, limits: Limits | None = None
    ) -> None:
        self.pool = WorkerPool(WORKER, num_workers, timeout_s, GRACE_S)
        self.timeout_s = timeout_s
        self.num_workers = num_workers
        cpu_s = min(timeout_s, max(CPU_S, timeout_s / 2))
        self.limits = limits or Limits(wall_s=timeout_s, cpu_s=cpu_s)

    @abstractmethod
    def request(self, block: CodeBlock, problem: Problem) -> Mapping[str, Any]:
        """Return a worker's request to judge the program."""

    @abstractmethod
    def check_meta(self, problem: Problem) -> None:
        """Check that ``problem.meta`` has tests, or raise ``ValueError``."""

    def names(self, problem: Problem) -> Sequence[str]:
        """Return the names that the program should define; none where that is not known."""
        return ()

    def complaint(self, problem: Problem, key: str, right: str) -> ValueError:
        """Return the error about a malformed ``meta[key]``."""
        found = repr(problem.meta.get(key))
        return ValueError(
            f"meta.{key}: problem {problem.uid!r} has {found[:60]}; {type(self).__name__} needs"
            f" {right}"
        )

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        return self.verify_batch([response], [problem])[0]

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order.

        Raises:
            ValueError: if a problem has no tests, or malformed ones; or if there is no sandbox.
            RuntimeError: if the worker processes cannot start.
        """
        for problem in problems:
            self.check_meta(problem)
        verdicts: dict[int, Verdict] = {}
        requests: dict[int, Mapping[str, Any]] = {}
        for row, (response, problem) in enumerate(zip(responses, problems, strict=True)):
            start = time.perf_counter()
            block = find_code(response, self.names(problem))
            refusal = self._refusal(block)
            if block is None or refusal:
                verdicts[row] = timed(conclude("unparsed", None, refusal), start)
            else:
                request = self.request(block, problem)
                requests[row] = {**request, "kind": self.kind, "limits": asdict(self.limits)}
        replies = self.pool.run(list(requests.values())) if requests else []
        for row, reply in zip(requests, replies, strict=True):
            content = {"value": 0.0, "canonical": None, **reply.content}
            verdicts[row] = Verdict(seconds=reply.seconds, **content)
        return [verdicts[row] for row in range(len(responses))]

    def _refusal(self, block: CodeBlock | None) -> str:
        """Say why a block cannot be judged; empty when it can."""
        if block is None:
            return "no fenced block outside thinking"
        if not block.code.strip():
            return "an empty block"
        if len(block.code) > MAX_CHARACTERS:
            return f"a program longer than {MAX_CHARACTERS} characters"
        if block.language and block.language not in self.languages:
            return f"a program in {block.language}, not {' or '.join(self.languages)}"
        return ""

    def close(self) -> None:
        """End the worker processes; a later call starts new ones."""
        self.pool.close()


class FunctionalCodeVerifier(CodeVerifier):
    r"""Decides about Python functions by asserts.

    HumanEval: ``problem.meta`` holds ``prompt`` (the beginning of the program), ``entry_point`` (a
    function, or LeetCode's ``Solution().method``) and ``test`` (source that defines ``check``). A
    response may give the whole function or only what
    follows the prompt. MBPP: ``meta`` holds ``tests``, a list of asserts, and may hold ``setup``,
    source that they need.

    The asserts run in a sandbox of their own and call the program, in another, by plain data. Tests
    that look at the program's objects cannot be decided so. Where they fail the status is
    ``error``, and training leaves the group out.

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

    needs = (("test", "tests"),)
    kind = "functional"
    languages = ("python",)
    excused_statuses = ("error",)

    def request(self, block: CodeBlock, problem: Problem) -> Mapping[str, Any]:
        """Return a worker's request to judge the program."""
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
        """Return the names that the tests call, and none that ``setup`` defines."""
        meta = problem.meta
        if "test" in meta:
            return [meta["entry_point"].partition("(")[0]]
        try:
            return unknown_names(meta["tests"], defined_names(meta.get("setup", "")))[0]
        except UNREADABLE:
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
    except UNREADABLE:
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
        with contextlib.suppress(*UNREADABLE):
            ast.parse(text)
            return text
    return texts[0]


def defined_names(source: str) -> set[str]:
    """Return the functions, classes, modules and variables that a source defines or imports.

    >>> sorted(defined_names("import math; from os import path; f = 1"))
    ['f', 'math', 'path']
    """
    return set().union(*(_bound_names(node) for node in ast.parse(source).body))


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


class StdinCodeVerifier(CodeVerifier):
    r"""Decides about programs that read standard input and write standard output.

    ``problem.meta["tests"]`` holds ``inputs`` and ``outputs``, lists of texts. Outputs are compared
    token by token; where a decimal fraction is expected, within ``tolerance`` (absolute or
    relative). ``problem.meta["checker"]`` may hold a program in Python that decides in their place
    (`r1lit.sandbox.grading.refused`). With ``partial`` the value is the fraction of tests passed,
    and only all of them make it right. A block whose fence names no language is Python, or C++ if
    it includes a header.

    Programs run on this machine, or on the Piston server whose URL is ``piston``. ``limits`` hold
    for one test, ``timeout_s`` for all tests of a program together.

    Args:
        timeout_s: seconds that all tests of a program may take.
        num_workers: processes that work on responses side by side.
        limits: of time, memory and output of one test; `r1lit.sandbox.Limits`' own if left
            out.
        tolerance: how far a decimal fraction may be off, absolutely or relatively.
        partial: give the share of tests passed as the value.
        piston: URL of the Piston server that runs programs; this machine if left out.

    >>> meta = {"tests": {"inputs": ["1 2"], "outputs": ["3"]}}
    >>> problem = Problem(uid="", question="", answer="", source="", meta=meta)
    >>> fence = "`" * 3
    >>> response = f"{fence}python\nprint(sum(map(int, input().split())))\n{fence}"
    >>> verifier = StdinCodeVerifier(num_workers=1)
    >>> verifier.verify(response, problem).value
    1.0
    >>> verifier.close()
    """

    needs = (("tests",),)
    kind = "stdin"
    languages = ("python", "c++")

    def __init__(
        self,
        timeout_s: float = 60.0,
        num_workers: int = 2,
        limits: Limits | None = None,
        tolerance: float = 1e-6,
        partial: bool = False,
        piston: str | None = None,
    ) -> None:
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance: {tolerance} must be from 0 to 1, such as 1e-6")
        super().__init__(timeout_s, num_workers, limits or Limits(wall_s=min(10.0, timeout_s)))
        if piston is not None:
            PistonSandbox(piston)  # is it a URL?
            self.pool = WorkerPool(WORKER, num_workers, timeout_s, GRACE_S, ("remote",))
        self.piston = piston
        self.tolerance = tolerance
        self.partial = partial

    def request(self, block: CodeBlock, problem: Problem) -> Mapping[str, Any]:
        """Return a worker's request to judge the program."""
        tests = problem.meta["tests"]
        return {
            "language": block.language or language_of(block.code),
            "code": block.code,
            "inputs": list(tests["inputs"]),
            "outputs": list(tests["outputs"]),
            "tolerance": self.tolerance,
            "partial": self.partial,
            "total_s": self.timeout_s,
            "piston": self.piston,
            "checker": str(problem.meta.get("checker") or ""),
        }

    def check_meta(self, problem: Problem) -> None:
        """Check that ``problem.meta`` has tests.

        Raises:
            ValueError: naming the problem and what is missing or malformed.
        """
        tests = problem.meta.get("tests")
        if not isinstance(tests, Mapping) or not {"inputs", "outputs"} <= tests.keys():
            raise self.complaint(problem, "tests", "{inputs: [...], outputs: [...]}")
        inputs, outputs = tests["inputs"], tests["outputs"]
        if len(inputs) != len(outputs) or not inputs:
            raise self.complaint(problem, "tests", "as many inputs as outputs, at least one")
        if not all(isinstance(text, str) for text in (*inputs, *outputs)):
            raise self.complaint(problem, "tests", "inputs and outputs that are texts")
