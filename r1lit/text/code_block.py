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
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*$", re.MULTILINE)
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


def _dedented(code: str, fence: re.Match[str]) -> str:
    """Take from each line the spaces that stand before its fence, as Markdown does in a list."""
    indent = len(fence[0]) - len(fence[0].lstrip(" "))
    return re.sub(rf"^ {{1,{indent}}}", "", code, flags=re.MULTILINE) if indent else code


def _last_answer(text: str) -> str:
    answer, start = "", None
    for tag in _ANSWER.finditer(text):
        if tag.group() == "<answer>":
            start = tag.end()
        elif start is not None:
            answer, start = text[start : tag.start()], None
    return answer


def _last_block(text: str) -> CodeBlock | None:
    block, opened = None, None
    for fence in _FENCE.finditer(text):
        marks, tag = fence.group(1), fence.group(2).lower()
        if opened is None:
            opened = fence
        elif marks.startswith(opened.group(1)) and not tag:
            language = LANGUAGES.get(opened.group(2).lower())
            if language is not None:
                code = _dedented(text[opened.end() + 1 : fence.start()], opened)
                block = CodeBlock(language=language, code=code)
            opened = None
        elif marks.startswith(opened.group(1)) and LANGUAGES.get(tag):
            opened = fence  # the one before was never closed
    return block
