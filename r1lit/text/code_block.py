r"""Finding the program in a response: its last fenced block outside thinking.

A fence is three or more backticks or tildes at the start of a line, closed by a line of at least as
many of the same. If the last ``<answer>`` outside thinking holds fenced blocks, the last of those
is taken. Blocks marked as something that is no program (``text``, ``bash``, ``json``) do not count,
nor does a block that never closes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from r1lit.text.extract import thinking_and_answer

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
_FENCE = re.compile(r"([ \t]{0,3})(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^`]*+")
_ANSWER = re.compile(r"</?answer>")


@dataclass(frozen=True, kw_only=True)
class CodeBlock:
    """A program and its language; the language is empty where the fence names none."""

    language: str
    code: str


def find_code(response: str) -> CodeBlock | None:
    r"""Return the program of a response, or ``None``.

    >>> find_code("<think>\n```python\nprint(1)\n```\n</think> It prints 1.")
    >>> find_code("Here:\n```" + "python\nprint(1)\n```\nIt prints 1.")
    CodeBlock(language='python', code='print(1)\n')
    """
    _, text = thinking_and_answer(response.replace("\r\n", "\n"))
    return _last_block(_last_answer(text)) or _last_block(text)


def _dedented(lines: list[str], indent: int) -> str:
    """Take from each line the spaces that stand before its fence, as Markdown does in a list."""
    return "".join(line[min(indent, len(line) - len(line.lstrip(" "))) :] + "\n" for line in lines)


def _last_answer(text: str) -> str:
    answer, start = "", None
    for tag in _ANSWER.finditer(text):
        if tag.group() == "<answer>":
            start = tag.end()
        elif start is not None:
            answer, start = text[start : tag.start()], None
    return answer


def _last_block(text: str) -> CodeBlock | None:
    """Return the last closed block: one pass over the lines, each read once."""
    block: CodeBlock | None = None
    opened: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        same = fence is not None and opened is not None and fence[2].startswith(opened[2])
        if fence is None or (opened is not None and not same):
            lines.append(line)
            continue
        if opened is not None and not fence[3]:
            language = LANGUAGES.get(opened[3].lower())
            if language is not None:
                code = _dedented(lines, opened[1].count(" "))
                block = CodeBlock(language=language, code=code)
            opened = None
        elif opened is None or LANGUAGES.get(fence[3].lower()):
            opened, lines = fence, []  # where one was open, it was never closed
        else:
            lines.append(line)
    return block
