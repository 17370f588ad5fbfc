"""LiveCodeBench's own files: problems by date, with their public and private tests."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from typing import Any

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.data.tables import Row, Table
from r1lit.errors import check_at_least
from r1lit.text.stdin_tests import inputs_and_outputs

PROMPT = (
    "You will be given a question (problem specification) and will generate a correct Python"
    " program that matches the specification and passes all tests.\n\nQuestion: {question}\n\n"
)
STDIN = PROMPT + (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly"
    " test on the sample inputs). Enclose your code within delimiters as follows. Ensure that when"
    " the python program runs, it reads the inputs, runs the algorithm and writes output to"
    " STDOUT.\n```python\n# YOUR CODE HERE\n```\n\n"
)
FUNCTION = PROMPT + (
    "You will use the following starter code to write the solution to the problem and enclose your"
    " code within delimiters.\n```python\n{starter}\n```\n\n"
)
"""LiveCodeBench's words for DeepSeek-R1 (lcb_runner/prompts/code_generation.py, MIT)."""
COLUMNS = ("question_id", "question_content", "starter_code", "contest_date", "difficulty")
MAX_BYTES = 1 << 30
IMPORTS = """\
from string import *
from re import *
from datetime import *
from collections import *
from heapq import *
from bisect import *
from copy import *
from math import *
from random import *
from statistics import *
from itertools import *
from functools import *
from operator import *
import sys
import json
from typing import *
"""
"""Imports that a solution may leave out, as on the contests' own sites."""


class LiveCodeBench(ProblemSource):
    """Problems of one or more files of ``livecodebench/code_generation_lite``.

    The data set is a loading script, which ``datasets`` no longer runs, so its files are read as
    they are. R1 reports August 2024 to January 2025.

    A problem with starter code, a class ``Solution``, is judged by calls of its method
    (``functional_code``), any other by stdin and stdout (``stdin_code``). Private tests are pickled
    text: unpickling admits nothing but text.

    Args:
        path: a file or several, local or ``hf://datasets/<owner>/<name>/<file>``.
        since: the first date of a contest, as 2024-08-01; empty: any.
        until: the last date, included.
        wording: the prompt of a problem that reads standard input, with {question} in it.
        source: the name to report by.
        limit: problems read; null reads all.
    """

    def __init__(
        self,
        path: str | list[str],
        since: str = "",
        until: str = "",
        wording: str = STDIN,
        source: str = "livecodebench",
        limit: int | None = None,
    ) -> None:
        self.paths = [path] if isinstance(path, str) else list(path)
        if not self.paths:
            raise ValueError("path: no file is named")
        check_at_least("limit", limit, 1, "null means every row")
        if "{question}" not in wording:
            raise ValueError(f"wording: {wording!r} does not contain {{question}}")
        self.wording = wording
        self.since = since
        self.until = until
        self.source = source
        self.limit = limit

    def problems(self) -> list[Problem]:
        """Return every problem between the dates, in the files' order.

        Raises:
            ValueError: naming the file, row and column that cannot be used, or if none is left.
        """
        problems: list[Problem] = []
        for path in self.paths:
            table = Table(path=path)
            for n, row in table.rows({column: column for column in COLUMNS}):
                day = str(row["contest_date"])[:10]
                if (self.since and day < self.since) or (self.until and day > self.until):
                    continue
                problems.append(self._problem(table, row, n))
                if len(problems) == self.limit:
                    return problems
        if not problems:
            raise ValueError(
                f"since: no problem of {', '.join(self.paths)} lies between {self.since!r} and"
                f" {self.until!r}"
            )
        return problems

    def _problem(self, table: Table, row: Row, n: int) -> Problem:
        try:
            tests = _tests(row["public_test_cases"]) + _tests(row.get("private_test_cases") or "[]")
            starter = str(row.get("starter_code") or "")
            if starter:
                entry = f"Solution().{json.loads(row['metadata'])['func_name']}"
                meta: dict[str, Any] = {"prompt": IMPORTS, "entry_point": entry}
                meta |= {"test": _check(tests)}
            else:
                meta = {"tests": inputs_and_outputs(tests)}
        except (KeyError, TypeError, ValueError, zlib.error, pickle.UnpicklingError) as error:
            raise ValueError(
                f"path: the tests in {table.row(n)} cannot be read"
                f" ({type(error).__name__}: {error})"
            ) from error
        if not tests:
            raise ValueError(f"path: {table.row(n)} has no tests")
        wording = FUNCTION if starter else self.wording
        question = table.text(row, n, "question_content", "question_content")
        return Problem(
            uid=f"livecodebench-{row['question_id']}",
            question=wording.replace("{starter}", starter).replace("{question}", question),
            answer="",
            source=self.source,
            verifier="functional_code" if starter else "stdin_code",
            meta=meta | {"difficulty": row["difficulty"], "contest_date": row["contest_date"]},
        )


def _check(tests: list[dict[str, Any]]) -> str:
    """Return source of a ``check`` that calls a method: one argument in JSON a line of its test."""
    lines = ["def check(candidate):"]
    for test in tests:
        arguments = [json.loads(line) for line in test["input"].split("\n") if line.strip()]
        listed = ", ".join(map(repr, arguments))
        lines.append(f"    assert candidate({listed}) == {json.loads(test['output'])!r}")
    return "\n".join(lines) + "\n"


def _tests(cell: str) -> list[dict[str, Any]]:
    try:
        return json.loads(cell)
    except json.JSONDecodeError:
        pass
    try:
        packed = base64.b64decode(cell, validate=True)
    except binascii.Error as error:
        raise ValueError(f"neither JSON nor base64: {error}") from error
    unpacked = zlib.decompressobj().decompress(packed, MAX_BYTES)
    return json.loads(_TextOnly(io.BytesIO(unpacked)).load())


class _TextOnly(pickle.Unpickler):
    """Loads plain data and refuses every class and function, so nothing can be run."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not text")
