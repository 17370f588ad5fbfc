r"""Programs as the suites grade them: LiveCodeBench's blocks, HumanEval in several languages.

They run in `r1lit.sandbox`, in worker processes that can be killed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from r1lit.data import ProblemSource
from r1lit.data.tables import Table
from r1lit.problems import Problem, Verdict
from r1lit.sandbox import Limits, LocalSandbox
from r1lit.sandbox.local import TOOLCHAINS
from r1lit.verifiers.base import Verifier
from r1lit.verifiers.code import CodeBlock, FunctionalCodeVerifier, StdinCodeVerifier
from r1lit.verifiers.ifeval import judged_text

FENCE = "`" * 3


def last_block(text: str) -> str:
    r"""Return the text between the last two lines with a fence, as LiveCodeBench extracts it.

    >>> last_block(f"{FENCE}\nx = 1\n{FENCE}\nor\n{FENCE}python\nx = 2\n{FENCE}")
    'x = 2'
    >>> last_block("x = 1"), last_block(f"{FENCE}python\nx = 1")
    ('', '')
    """
    lines = text.split("\n")
    fences = [at for at, line in enumerate(lines) if FENCE in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) >= 2 else ""


def last_block_in(text: str, language: str) -> str:
    r"""Return the last fenced block whose fence names ``language``.

    >>> text = f"{FENCE}python\nx = 2\n{FENCE}\nprints\n{FENCE}\n2\n{FENCE}"
    >>> last_block_in(text, "python"), last_block_in("x = 1", "python")
    ('x = 2', '')
    """
    lines = text.split("\n")
    fences = [at for at, line in enumerate(lines) if FENCE in line]
    named = [
        (start, end)
        for start, end in pairwise(fences)
        if lines[start].rpartition(FENCE)[2].strip().lower() == language
    ]
    return "\n".join(lines[named[-1][0] + 1 : named[-1][1]]) if named else ""


class LiveCodeGrader(Verifier):
    """LiveCodeBench: the program in the last fenced block passes all tests.

    Args:
        test_s: seconds of one test on standard input; the suite's 6.
        calls_s: seconds of all calls together, where a method is tested.
        num_workers: processes that work side by side.
        language: read the last block whose fence names it, as the paper does; the last of any
            kind, as LiveCodeBench does, if left out.
    """

    needs_answer = False
    in_background = True

    def __init__(
        self,
        test_s: float = 6.0,
        calls_s: float = 60.0,
        num_workers: int = 2,
        language: str = "",
    ) -> None:
        self.language = language
        limits = Limits(wall_s=test_s, cpu_s=test_s)
        self.stdin = StdinCodeVerifier(timeout_s=600.0, num_workers=num_workers, limits=limits)
        self.calls = FunctionalCodeVerifier(timeout_s=calls_s, num_workers=num_workers)

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        return self.verify_batch([response], [problem])[0]

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order."""
        texts = [judged_text(response) for response in responses]
        programs = [
            last_block_in(text, self.language) if self.language else last_block(text)
            for text in texts
        ]
        fenced = [f"{FENCE}python\n{code}\n{FENCE}" if code.strip() else "" for code in programs]
        verdicts: dict[int, Verdict] = {}
        for verifier, called in ((self.stdin, False), (self.calls, True)):
            rows = [n for n, problem in enumerate(problems) if ("test" in problem.meta) == called]
            found = verifier.verify_batch([fenced[n] for n in rows], [problems[n] for n in rows])
            verdicts |= dict(zip(rows, found, strict=True))
        return [verdicts[row] for row in range(len(responses))]

    def close(self) -> None:
        """End the worker processes."""
        self.stdin.close()
        self.calls.close()


INSTRUCT = (
    "Please continue to complete the function. You are not allowed to modify the given code and do"
    " the completion only. Please return all completed function in a codeblock. Here is the given"
    " code to do completion:\n" + FENCE + "{language}\n{prompt}\n" + FENCE
)
"""deepseek-ai/DeepSeek-Coder, Evaluation/HumanEval/eval_instruct.py (MIT)."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The names and the tests' form of a language of HumanEval-Mul.

    ``tag`` is its name in files and fences, ``short`` MultiPL-E's name for it, ``fences`` further
    marks of fences. ``ending`` prints {secret}; it stands before the last ``depth`` braces.
    """

    sandbox: str
    tag: str
    short: str
    ending: str
    depth: int = 0
    fences: tuple[str, ...] = ()
    closers: int = 1


DIALECTS = {
    "python": Dialect(sandbox="python", tag="python", short="py", ending='print("{secret}")'),
    "java": Dialect(
        sandbox="java",
        tag="java",
        short="java",
        ending='System.out.print("{secret}");',
        depth=2,
        closers=2,
    ),
    "cpp": Dialect(
        sandbox="c++",
        tag="cpp",
        short="cpp",
        ending='std::printf("{secret}");',
        depth=1,
        fences=("c++", "cc"),
    ),
    "javascript": Dialect(
        sandbox="javascript",
        tag="js",
        short="js",
        ending='console.log("{secret}")',
        fences=("javascript",),
    ),
    "typescript": Dialect(
        sandbox="typescript",
        tag="ts",
        short="ts",
        ending='console.log("{secret}")',
        fences=("typescript",),
    ),
    "php": Dialect(sandbox="php", tag="php", short="php", ending='echo "{secret}";'),
    "bash": Dialect(
        sandbox="bash", tag="bash", short="sh", ending='printf "{secret}"', fences=("sh", "shell")
    ),
}
"""Seven of the eight languages of the paper's HumanEval-Mul; C# does not run in the sandbox."""
PYTHON_ON_THE_HUB = "openai/openai_humaneval"


class HumanEvalMul(ProblemSource):
    """HumanEval in several languages: rows of MultiPL-E, of HumanEval-X (CodeGeeX), or of both.

    Languages whose compiler or interpreter this machine lacks are left out, as are those without a
    file; ``left_out`` names them.

    Args:
        path: a data set on the Hub with MultiPL-E's configurations; or a local file of Python,
            ``humaneval_x_python.jsonl.gz``, beside which the others lie: ``humaneval_x_<language>``
            or ``multipl_e_<language>.jsonl``, with MultiPL-E's short names.
        languages: of the seven.
        limit: problems of each language.
    """

    def __init__(
        self, path: str, languages: Sequence[str] = tuple(DIALECTS), limit: int | None = None
    ) -> None:
        unknown = [language for language in languages if language not in DIALECTS]
        if unknown:
            raise ValueError(
                f"languages: {', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} not among"
                f" {', '.join(DIALECTS)}"
            )
        self.path = path
        self.languages = tuple(languages)
        self.limit = limit

    def left_out(self) -> list[str]:
        """Return which languages are left out and why, a sentence each."""
        return [
            f"{language} is left out: {why}"
            for language in self.languages
            if (why := self._lacks(language))
        ]

    def _lacks(self, language: str) -> str:
        dialect = DIALECTS[language]
        if dialect.sandbox not in LocalSandbox().languages:
            toolchain = TOOLCHAINS[dialect.sandbox]
            needed = (toolchain.compilers, toolchain.runners)
            names = " and ".join(" or ".join(tools) for tools in needed if tools)
            return f"it needs {names} in /usr/bin"
        if self._local and self._file(language) is None:
            return f"there is no file of it beside {self.path}"
        return ""

    @property
    def _local(self) -> bool:
        return ".json" in self.path

    def _file(self, language: str) -> Path | None:
        """Return the local file of a language, if there is one."""
        dialect, path = DIALECTS[language], Path(self.path).expanduser()
        if language == "python":
            return path
        names = (
            path.name.replace("python", dialect.tag),
            f"multipl_e_{dialect.short}.jsonl",
        )
        found = [path.with_name(name) for name in names if path.with_name(name).is_file()]
        return found[0] if found else None

    def problems(self) -> list[Problem]:
        """Return the problems, language by language.

        Raises:
            ValueError: if none of the languages can run.
        """
        languages = [language for language in self.languages if not self._lacks(language)]
        if not languages:
            raise ValueError(f"languages: none can run: {'; '.join(self.left_out())}")
        return [problem for language in languages for problem in self._problems(language)]

    def _problems(self, language: str) -> list[Problem]:
        dialect = DIALECTS[language]
        if self._local:
            table = Table(path=str(self._file(language)), limit=self.limit)
        elif language == "python":
            table = Table(path=PYTHON_ON_THE_HUB, split="test", limit=self.limit)
        else:
            name = f"humaneval-{dialect.short}"
            table = Table(path=self.path, name=name, split="test", limit=self.limit)
        return [
            self._problem(row, table.row(n), language)
            for n, row in table.rows({"prompt": "prompt"})
        ]

    def _problem(self, row: Mapping[str, Any], where: str, language: str) -> Problem:
        test, name = row.get("test", row.get("tests")), row.get("task_id", row.get("name"))
        if not isinstance(test, str) or not isinstance(name, str):
            raise ValueError(
                f"path: {where} has neither task_id and test (HumanEval-X) nor name and tests"
                " (MultiPL-E)"
            )
        entry = row.get("entry_point")  # HumanEval's own tests are not called
        if language == "python" and entry and f"check({entry})" not in test:
            test += f"\ncheck({entry})\n"
        question = INSTRUCT.replace("{language}", DIALECTS[language].tag)
        return Problem(
            uid=name if "/" in name else f"{language}/{name}",
            question=question.replace("{prompt}", row["prompt"]),
            answer="",
            source="humaneval_mul",
            meta={
                "prompt": row["prompt"],
                "declaration": row.get("declaration", row["prompt"]),
                "test": test,
                "programming_language": language,
            },
        )


class HumanEvalGrader(StdinCodeVerifier):
    """Right if a program, before its language's tests, runs to their end.

    After the tests it prints a text that a response cannot know, so that leaving early is wrong.
    """

    def __init__(self, timeout_s: float = 60.0, num_workers: int = 2) -> None:
        super().__init__(timeout_s, num_workers, Limits(wall_s=timeout_s, cpu_s=timeout_s))

    def check_meta(self, problem: Problem) -> None:
        """Check that there are tests."""
        if not isinstance(problem.meta.get("test"), str):
            raise self.complaint(problem, "test", "the source of tests")

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order."""
        texts = []
        for response, problem in zip(responses, problems, strict=True):
            language = str(problem.meta.get("programming_language"))
            known = language in ("python", "cpp")  # to the blocks of every code verifier
            own = response if known else refenced(judged_text(response), DIALECTS[language])
            texts.append(own)
        return super().verify_batch(texts, problems)

    def request(self, block: CodeBlock, problem: Problem) -> Mapping[str, Any]:
        """Return a worker's request to judge the program."""
        meta = problem.meta
        secret = hashlib.blake2b(meta["test"].encode(), digest_size=8).hexdigest()
        with_tests = {**meta, "tests": {"inputs": [""], "outputs": [secret]}}
        request = super().request(block, Problem(**{**vars(problem), "meta": with_tests}))
        language = DIALECTS[meta["programming_language"]].sandbox
        return {**request, "language": language, "code": program(block.code, meta, secret)}

    def _refusal(self, block: CodeBlock | None) -> str:
        """Say why a block cannot be judged; the problem sets the language, not the fence."""
        plain = None if block is None else CodeBlock(language="", code=block.code)
        return super()._refusal(plain)


def refenced(text: str, dialect: Dialect) -> str:
    r"""Return the last block of a language, or of none where no block names it, in a plain fence.

    >>> refenced(f"{FENCE}js\nf()\n{FENCE}\nIt prints\n{FENCE}\n1\n{FENCE}", DIALECTS["javascript"])
    '```\nf()\n```'
    """
    blocks = re.findall(rf"^[ \t]*{FENCE}([^\s`]*)[^\n`]*\n(.*?)^[ \t]*{FENCE}", text, re.M | re.S)
    names = (dialect.tag, *dialect.fences)
    own = [code for tag, code in blocks if tag.lower() in names]
    plain = [code for tag, code in blocks if not tag]
    chosen = own or plain
    return f"{FENCE}\n{chosen[-1]}{FENCE}" if chosen else ""


def program(code: str, meta: Mapping[str, Any], secret: str) -> str:
    """Return a program of a response and its tests, which prints ``secret`` at its end.

    MultiPL-E's tests of most languages begin by closing what its prompt opens, which a response
    has closed itself: those braces are taken from it.
    """
    language, test = meta["programming_language"], meta["test"].rstrip()
    dialect = DIALECTS[language]
    continues = test.lstrip().startswith("}")
    if language == "python":
        head = f"\n{meta['prompt']}".rpartition("\ndef ")[0]  # imports and helpers
        code = f"{head}\n{code}"
    elif language == "cpp":
        lines = re.findall(r"^(?:#include.*|using namespace.*)\n", meta["declaration"], re.M)
        code = f"#include <cstdio>\n{''.join(lines)}\n{code}"
    elif language == "javascript":
        throws = "console.assert = (ok) => { if (!ok) throw new Error('assertion failed') }\n"
        code = f"{code}\n{throws}"
    elif language == "php":  # as DeepSeek-Coder's evaluation; else PHP prints code as it stands
        inside = code.strip().removeprefix("<?php").removesuffix("?>")
        code = f"<?php\n{inside}"
    for _ in range(dialect.closers if continues else 0):
        code = code.rpartition("}")[0] or code
    ending = dialect.ending.replace("{secret}", secret)
    rest = ""
    for _ in range(dialect.depth):
        test, _, behind = test.rpartition("}")
        rest = "}" + behind + rest
    test = f"{test}\n{ending}\n{rest}\n"
    if language != "java" or continues:
        return f"{code}\n{test}"
    imports = re.compile(r"^import [^\n;]*;", re.M)  # the first class of the file is run
    found = imports.findall(f"{meta['declaration']}\n{code}")
    return "\n".join([*dict.fromkeys(found), test, imports.sub("", code)])


REPAIR = (
    "This Python program has a bug in one line. Mend it. End with the whole program in one"
    f" {FENCE}python code block.\n\n{FENCE}python\n{{program}}\n{FENCE}"
)

SLOW = {"knapsack": (9,), "levenshtein": (3,)}
"""Cases of QuixBugs, by program and place, for which the references take over 5 s."""


class QuixBugs(ProblemSource):
    """QuixBugs' programs with a bug in one line each, for the verifier ``functional_code``.

    Args:
        path: a table with ``name``, ``buggy``, ``fixed`` and ``cases``, lists of arguments and
            result; rows without cases are left out.
        limit: rows read.
    """

    def __init__(self, path: str, limit: int | None = None) -> None:
        self.table = Table(path=path, limit=limit)

    def problems(self) -> list[Problem]:
        """Return every program whose cases are plain data."""
        columns = {key: key for key in ("name", "buggy", "fixed", "cases")}
        return [
            Problem(
                uid=row["name"],
                question=REPAIR.replace("{program}", row["buggy"].strip()),
                answer=row["fixed"],
                source="quixbugs",
                verifier="functional_code",
                meta={"tests": asserts(row["name"], row["cases"])},
            )
            for _, row in self.table.rows(columns)
            if row.get("cases")
        ]


def asserts(name: str, cases: Sequence[Sequence[Any]]) -> list[str]:
    """Return QuixBugs' cases as tests; tuples and generators count as lists, as in JSON.

    >>> asserts("gcd", [[[4, 6], 2]])[1]
    'assert plain(gcd(*[4, 6])) == 2'
    """
    listed = "isinstance(x, list | tuple) or hasattr(x, '__next__')"
    tests = [f"def plain(x):\n    return [plain(y) for y in x] if {listed} else x"]
    for place, (arguments, expected) in enumerate(cases):
        if place in SLOW.get(name, ()):
            continue
        if name == "sqrt":
            tests.append(f"assert abs(sqrt(*{arguments}) - {expected}) <= {arguments[-1]}")
        else:
            tests.append(f"assert plain({name}(*{arguments})) == {expected!r}")
    return tests
