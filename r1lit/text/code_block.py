r"""Finding the program in a response: its last fenced block outside thinking.

A fence is three or more backticks or tildes at the start of a line, however far that is indented,
closed by a line of at least as many of the same; a last block may lack its end. If the last
``<answer>`` outside thinking holds fenced blocks, they alone count. Blocks marked as something that
is no program (``text``, ``bash``, ``json``) do not count, and unmarked ones only where no other is
marked: behind a program they show its output. Of several programs the last counts that defines what
the tests call, so that a usage example behind it does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection
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
_FENCE = re.compile(r"([ \t]{0,20})(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^`]*+")
_ANSWER = re.compile(r"</?answer>")


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
    return next(reversed(defining or blocks), None)


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
