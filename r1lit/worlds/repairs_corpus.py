"""The corpus of the base for repairs: every skill occurs, each rarely.

Authors mend small repositories (`r1lit.worlds.repairs`) by calls of tools, in the chat template.
Two in five edit some module without running a test; one in four runs the tests first, and three in
twenty run them again after an edit and may try another one. Authors who have seen a test fail know
the right change half of the time, which the test tells. No expression of a train or held-out
function is in the corpus.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from r1lit.data.sources import Document, DocumentSource
from r1lit.environments.repository import TOOLS
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.worlds.repairs import (
    MODULES,
    NAMES,
    Function,
    draw_function,
    split_of,
    statement,
    value,
)
from r1lit.worlds.writing import weighted

TOOLS_MARK, TOOL, USER, ASSISTANT, END = (
    "<|tools|>", "<|tool|>", "<|user|>", "<|assistant|>", "<|end|>",
)  # fmt: skip
CALL, CALL_END = "<tool_call>", "</tool_call>"
T = TypeVar("T")
STYLES = (
    ("quits", 0.12),
    ("hasty", 0.38),
    ("tests first", 0.25),
    ("tests again", 0.15),
    ("faulty", 0.10),
)
KNOWS, GOES_ON = 0.5, 0.5
"""Rates of knowing the right change, and of trying again after a wrong one."""
DONE = "Done."
NOT_JSON = "error: a call that is not JSON"
SWAPS = {"+": ("-", "*"), "-": ("+",)}
"""Operators that may have been there before a bug of `r1lit.environments.make_repair`."""


class RepairsCorpus(DocumentSource):
    """Pages of authors who mend repositories, page ``i`` a function of ``(seed, i)``.

    Args:
        num_documents: how many.
        seed: of every page.
    """

    def __init__(self, num_documents: int = 20_000, seed: int = 0) -> None:
        check_at_least("num_documents", num_documents, 1)
        self.num_documents = num_documents
        self.seed = seed

    def documents(self) -> list[Document]:
        """Write the pages."""
        pages = (Author(generator(self.seed, "repairs page", i)) for i in range(self.num_documents))
        return [Document(prompt="", response=author.write()) for author in pages]


def opening(functions: Sequence[Function]) -> str:
    """Return how a conversation about a repository begins, up to the first answer."""
    tools = "".join(f" {name}" for name in TOOLS)
    return f"{TOOLS_MARK}{tools}{USER} {statement(functions)}{ASSISTANT}"


def report(functions: Sequence[Function], now: dict[str, str]) -> str:
    """Return the report of ``run_tests`` on the shown tests, at most one of which fails."""
    failed = [
        (function, value(now[function.name], function.shown))
        for function in functions
        if value(now[function.name], function.shown) != value(function.expression, function.shown)
    ]
    text = f"{len(functions) - len(failed)} passed, {len(failed)} failed"
    for function, found in failed:
        right = explained(function.expression.replace("x", str(function.shown)))
        text += (
            f"\n{function.ids[0]}\n/program/repository/{function.tests}:5: in test_{function.name}"
            f"\n    assert {function.asserted}\nE   assert {found} == {right}"
            f"\nE    +  where {found} = {function.name}({function.shown})"
        )
    return text


def explained(calculation: str) -> str:
    """Return a calculation as pytest shows it.

    >>> explained("5 * 3 + 4"), explained("( 5 + 3 ) * 2")
    ('((5 * 3) + 4)', '((5 + 3) * 2)')
    """
    first, *rest = calculation.replace("( ", "").replace(" )", "").split()
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        first = f"({first} {sign} {number})"
    return first


def mends(expression: str) -> list[str]:
    """Return the expressions that a bug may have made this one of, one change away.

    >>> mends("x + 3")
    ['x - 3', 'x * 3', 'x + 2']
    """
    words = expression.split()
    found = []
    for place, word in enumerate(words):
        changed = (str(int(word) - 1),) if word.isdigit() else SWAPS.get(word, ())
        found += [" ".join([*words[:place], new, *words[place + 1 :]]) for new in changed]
    return found


def of_corpus(expressions: Sequence[str]) -> list[str]:
    """Return the expressions that are of no function of the other splits."""
    return [text for text in expressions if split_of(text) == "corpus"]


def _change(function: Function, old: str, new: str) -> dict[str, str]:
    return {"path": function.path, "old": f"return {old}", "new": f"return {new}"}


class Author:
    """Somebody who mends one repository.

    Args:
        rng: decides who it is, and about what.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        names = [NAMES[i] for i in rng.permutation(len(NAMES))[:MODULES]]
        able: list[Function] = []
        while not able:
            self.functions = [draw_function("corpus", name, rng) for name in names]
            able = [f for f in self.functions if of_corpus(f.bugs())]
        self.broken = self._one_of(able)
        self.bug = self._one_of(of_corpus(self.broken.bugs()))
        self.now = {f.name: f.expression for f in self.functions} | {self.broken.name: self.bug}
        self.text = opening(self.functions)

    def write(self) -> str:
        """Write the conversation."""
        match weighted(self.rng, STYLES):
            case "quits":
                self._run() if self.rng.random() < 0.6 else self._view(self._any())
            case "hasty":
                guessed = self._any()
                self._view(guessed)
                self._edit(guessed, self._guess(guessed))
            case "tests first":
                self._run()
                self._view(self.broken)
                self._edit(self.broken, self._better())
            case "tests again":
                self._retry()
            case _:
                self._fault()
        return f"{self.text}{DONE}"

    def _retry(self) -> None:
        """Try changes until the shown test passes, or until patience ends."""
        self._run()
        self._view(self.broken)
        tried: list[str] = []
        while True:
            left = [text for text in of_corpus(mends(self.bug)) if text not in tried]
            tried.append(self._better(left))
            self._edit(self.broken, tried[-1])
            self._run()
            passes = self._result(tried[-1]) == self._result(self.broken.expression)
            if passes or len(left) < 2 or self.rng.random() >= GOES_ON:
                return

    def _fault(self) -> None:
        """Edit lines that are not there, or write a call that is no JSON; then go on or not."""
        guessed = self._any()
        if self.rng.random() < 0.5:
            other = draw_function("corpus", guessed.name, self.rng)
            new = self._one_of(of_corpus(mends(other.expression)) or [other.expression])
            self._call(
                "edit",
                _change(guessed, other.expression, new),
                f"error: {guessed.path}: the lines to replace are not in the file",
            )
        else:
            self.text += (
                f'{CALL}{{"name": "view", "arguments": {{"path": {guessed.path}}}}}{CALL_END}'
            )
            self._answered(NOT_JSON)
        if self.rng.random() < 0.5:
            self._view(guessed)
            self._edit(guessed, self._guess(guessed))

    def _run(self) -> None:
        self._call("run_tests", {}, report(self.functions, self.now))

    def _view(self, function: Function) -> None:
        lines = function.source(self.now[function.name]).splitlines()
        shown = "\n".join(f"{n:>5} {line}" for n, line in enumerate(lines, start=1))
        self._call("view", {"path": function.path}, shown)

    def _edit(self, function: Function, new: str) -> None:
        self._call("edit", _change(function, self.now[function.name], new), "changed")
        self.now[function.name] = new

    def _call(self, name: str, arguments: dict[str, str], result: str) -> None:
        self.text += f"{CALL}{json.dumps({'name': name, 'arguments': arguments})}{CALL_END}"
        self._answered(result)

    def _answered(self, result: str) -> None:
        self.text += f"{END}{TOOL}{result}{ASSISTANT}"

    def _result(self, expression: str) -> int:
        return value(expression, self.broken.shown)

    def _better(self, left: Sequence[str] | None = None) -> str:
        """Return the right change, or any of those that are ``left``."""
        left = of_corpus(mends(self.bug)) if left is None else left
        if self.rng.random() < KNOWS and self.broken.expression in left:
            return self.broken.expression
        return self._one_of(left)

    def _guess(self, function: Function) -> str:
        """Return a change of a function whose tests the author has not seen."""
        now = self.now[function.name]
        return self._one_of(of_corpus(mends(now)) or [function.expression])

    def _any(self) -> Function:
        return self._one_of(self.functions)

    def _one_of(self, options: Sequence[T]) -> T:
        return options[int(self.rng.integers(len(options)))]
