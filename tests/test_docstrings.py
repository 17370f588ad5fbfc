"""First sentences of docstrings, which name their object: after the verb comes a noun."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import ROOT

FILES = sorted((ROOT / "r1lit").rglob("*.py"))
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NAMELESS = re.compile(
    r"(?:What|Whether|Which|How|Those|It)\b"
    r"|[A-Z][a-z]+ (?:back |down |in |out |up )?(?:those|that of|them|it|so|the same|what)\b"
)


def first_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and first line of each docstring, those below constants and fields too."""
    for node in ast.walk(ast.parse(path.read_text())):
        body = node.body if isinstance(node, DOCUMENTED) else []
        for before, statement in zip([node, *body], body, strict=False):
            if not isinstance(before, (*DOCUMENTED, ast.Assign, ast.AnnAssign)):
                continue
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text.split("\n")[0]


def test_first_sentences_name_their_object() -> None:
    lines = [(path, line, text) for path in FILES for line, text in first_lines(path)]
    assert len(lines) > 3_000, "docstrings are read"
    nameless = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path, line, text in lines
        if NAMELESS.match(text)
    ]
    assert not nameless, "say the noun, as in 'Return the rewards of …':\n" + "\n".join(nameless)


@pytest.mark.parametrize(
    "text",
    [
        "Return the candidates of a row's tokens.",
        "True where the response ended by itself.",
        "Return whether a response has a status.",
        "Settings of how a question becomes a prompt.",
        "Start the server, and end it when the run ends.",
    ],
)
def test_a_sentence_with_its_noun_passes(text: str) -> None:
    assert not NAMELESS.match(text)


@pytest.mark.parametrize(
    "text",
    [
        "Return those of a row.",
        "Take it back.",
        "Give back what malloc has kept.",
        "Whether the response ended by itself.",
        "How a question becomes a prompt.",
    ],
)
def test_a_sentence_without_its_noun_is_found(text: str) -> None:
    assert NAMELESS.match(text)
