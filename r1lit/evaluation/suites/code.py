r"""Programs as the suites grade them: LiveCodeBench's blocks, HumanEval in several languages.

They run in `r1lit.sandbox`, in worker processes that can be killed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r1lit.data import ProblemSource
from r1lit.data.tables import Table
from r1lit.problems import Problem, Verdict
from r1lit.sandbox import Limits
from r1lit.verifiers.base import Verifier
from r1lit.verifiers.code import CodeBlock, FunctionalCodeVerifier, StdinCodeVerifier
from r1lit.verifiers.ifeval import judged_text

FENCE = "`" * 3


def last_block(text: str) -> str:
    r"""Return what lies between the last two lines with a fence, as LiveCodeBench extracts it.

    >>> last_block(f"{FENCE}\nx = 1\n{FENCE}\nor\n{FENCE}python\nx = 2\n{FENCE}")
    'x = 2'
    >>> last_block("x = 1"), last_block(f"{FENCE}python\nx = 1")
    ('', '')
    """
    lines = text.split("\n")
    fences = [at for at, line in enumerate(lines) if FENCE in line]
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]) if len(fences) >= 2 else ""


class LiveCodeGrader(Verifier):
    """LiveCodeBench: the program between the last two fences passes all tests.

    Args:
        test_s: seconds of one test on standard input; the suite's 6.
        calls_s: seconds of all calls together, where a method is tested.
        num_workers: processes that work side by side.
    """

    needs_answer = False
    in_background = True

    def __init__(self, test_s: float = 6.0, calls_s: float = 60.0, num_workers: int = 2) -> None:
        limits = Limits(wall_s=test_s, cpu_s=test_s)
        self.stdin = StdinCodeVerifier(timeout_s=600.0, num_workers=num_workers, limits=limits)
        self.calls = FunctionalCodeVerifier(timeout_s=calls_s, num_workers=num_workers)

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        return self.verify_batch([response], [problem])[0]

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Decide about many responses, in order."""
        programs = [last_block(judged_text(response)) for response in responses]
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
LANGUAGES = {"python": "python", "cpp": "c++"}
"""The languages of HumanEval-X that the sandbox runs, under its own names."""


class HumanEvalMul(ProblemSource):
    """HumanEval in several languages, from HumanEval-X (CodeGeeX).

    Args:
        path: the file of one language, ``humaneval_x_python.jsonl.gz``, beside which the others
            lie. Languages without a file are left out.
        languages: of HumanEval-X; the sandbox must run them.
        limit: problems of each language.
    """

    def __init__(
        self, path: str, languages: Sequence[str] = ("python", "cpp"), limit: int | None = None
    ) -> None:
        unknown = [language for language in languages if language not in LANGUAGES]
        if unknown:
            raise ValueError(
                f"languages: the sandbox does not run {', '.join(unknown)}; it runs"
                f" {', '.join(LANGUAGES)}"
            )
        self.path = path
        self.languages = tuple(languages)
        self.limit = limit

    def problems(self) -> list[Problem]:
        """Return the problems, language by language."""
        problems = []
        for language in self.languages:
            path = Path(self.path)
            path = path.with_name(path.name.replace("python", language))
            if not path.is_file() and language != "python":
                continue
            table = Table(path=str(path), limit=self.limit)
            columns = {key: key for key in ("task_id", "prompt", "declaration", "test")}
            for _, row in table.rows(columns):
                question = INSTRUCT.replace("{language}", language)
                problems.append(
                    Problem(
                        uid=row["task_id"],
                        question=question.replace("{prompt}", row["prompt"]),
                        answer="",
                        source="humaneval_mul",
                        meta={key: row[key] for key in ("prompt", "declaration", "test")}
                        | {"programming_language": language},
                    )
                )
        return problems


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

    def request(self, block: CodeBlock, problem: Problem) -> Mapping[str, Any]:
        """Return what a worker needs to judge the program."""
        meta = problem.meta
        secret = hashlib.blake2b(meta["test"].encode(), digest_size=8).hexdigest()
        with_tests = {**meta, "tests": {"inputs": [""], "outputs": [secret]}}
        request = super().request(block, Problem(**{**vars(problem), "meta": with_tests}))
        language = LANGUAGES[meta["programming_language"]]
        return {**request, "language": language, "code": program(block.code, meta, secret)}

    def _refusal(self, block: CodeBlock | None) -> str:
        """Say why a block cannot be judged; the problem sets the language, not the fence."""
        plain = None if block is None else CodeBlock(language="", code=block.code)
        return super()._refusal(plain)


def program(code: str, meta: Mapping[str, Any], secret: str) -> str:
    """Return a program of a response and its tests, which prints ``secret`` at its end."""
    if meta["programming_language"] == "python":
        head = f"\n{meta['prompt']}".rpartition("\ndef ")[0]  # imports and helpers
        return f"{head}\n{code}\n{meta['test']}\nprint({secret!r})\n"
    head = "".join(re.findall(r"^(?:#include.*|using namespace.*)\n", meta["declaration"], re.M))
    body, brace, rest = meta["test"].rstrip().rpartition("}")
    return f'#include <cstdio>\n{head}\n{code}\n{body}    std::printf("{secret}");\n{brace}{rest}\n'
