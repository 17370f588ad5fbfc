"""Patches as text: search/replace blocks and unified diffs, to read, to apply and to write.

A search/replace block has the file's path on a line, then ``<<<<<<< SEARCH``, the lines to replace,
``=======``, the lines that replace them, and ``REPLACE`` after seven ``>``. Hunks of a diff are
found by their lines, not by their numbers, which models miscount.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r1lit.text.extract import thinking_and_answer

_MARK = re.compile(r"(<{5,9} SEARCH|={5,9}|>{5,9} REPLACE)\s*")
_FILE = re.compile(r"^--- (?:a/)?(\S+).*\n\+\+\+ (?:b/)?(\S+).*\n", re.MULTILINE)
_HUNK = re.compile(r"^@@[^\n]*\n", re.MULTILINE)
MAX_CHARACTERS = 200_000
MAX_EDITS = 100
NO_END = "\\ No newline at end of file"


class PatchError(ValueError):
    """A patch that cannot be read or applied; the text is for the model."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Lines ``old`` of a file become ``new``; an empty ``old`` makes the file."""

    path: str
    old: str
    new: str


def read_patch(response: str) -> list[Edit]:
    r"""Return the edits of a response: its search/replace blocks, else its unified diff.

    Thinking does not count. An empty list means that there is neither.

    >>> read_patch("--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n")
    [Edit(path='f.py', old='x = 1\n', new='x = 2\n')]
    """
    _, text = thinking_and_answer(response.replace("\r\n", "\n"))
    if len(text) > MAX_CHARACTERS:
        raise PatchError(f"a patch longer than {MAX_CHARACTERS} characters")
    edits = read_blocks(text) or read_diff(text)
    if len(edits) > MAX_EDITS:
        raise PatchError(f"a patch of more than {MAX_EDITS} edits")
    return edits


def read_blocks(text: str) -> list[Edit]:
    r"""Return the search/replace blocks of a text; one that does not end is none.

    >>> read_blocks("f.py\n<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n")
    [Edit(path='f.py', old='x = 1\n', new='x = 2\n')]
    """
    edits: list[Edit] = []
    sides: list[list[str]] = []
    path = ""
    for line in text.splitlines(keepends=True):
        found = _MARK.fullmatch(line)
        mark = found[1][0] if found else ""
        if mark == "<":
            sides = [[]]
        elif mark == "=" and len(sides) == 1:
            sides.append([])
        elif mark == ">" and len(sides) == 2:
            edits.append(Edit(path=path, old="".join(sides[0]), new="".join(sides[1])))
            sides = []
        elif sides:
            sides[-1].append(line)
        elif line.strip() and not line.startswith("```"):
            path = line.strip().strip("#*`: ")
    return edits


def read_diff(text: str) -> list[Edit]:
    """Return the hunks of a unified diff as edits."""
    edits = []
    heads = list(_FILE.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=False):  # without a head there is an end
        body = text[head.end() : end]
        path = head[2] if head[2] != "/dev/null" else head[1]
        for hunk in _HUNK.split(body)[1:]:
            old, new = _sides(hunk)
            edits.append(Edit(path=path, old=old, new=new))
    return edits


def _sides(hunk: str) -> tuple[str, str]:
    """Return the lines of a hunk before and after it."""
    sides: tuple[list[str], list[str]] = ([], [])
    last: tuple[int, ...] = ()
    for line in hunk.splitlines():
        if line.startswith("\\"):  # the line before has no end
            for side in last:
                sides[side][-1] = sides[side][-1].removesuffix("\n")
            continue
        mark = line[:1] or " "  # editors strip the space of an empty line
        if mark not in " +-":
            break
        last = {" ": (0, 1), "-": (0,), "+": (1,)}[mark]
        for side in last:
            sides[side].append(line[1:] + "\n")
    return "".join(sides[0]), "".join(sides[1])


def apply_edits(files: Mapping[str, str], edits: Sequence[Edit]) -> dict[str, str]:
    """Return the files that edits change, with their new contents.

    Raises:
        PatchError: naming the file, if the old lines are not there, or more than once.
    """
    changed: dict[str, str] = {}
    for edit in edits:
        before = changed.get(edit.path, files.get(edit.path))
        if before is None:
            if edit.old:
                raise PatchError(f"{edit.path}: there is no such file")
            changed[edit.path] = edit.new
            continue
        if not edit.old:
            raise PatchError(f"{edit.path}: an empty search in a file that exists")
        found = before.count(edit.old)
        if found != 1:
            what = "are not in the file" if not found else f"are in the file {found} times"
            raise PatchError(f"{edit.path}: the lines to replace {what}")
        changed[edit.path] = before.replace(edit.old, edit.new)
    return changed


def write_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    r"""Return the unified diff that leads from some files to their new contents.

    >>> print(write_diff({"f.py": "x = 1\n"}, {"f.py": "x = 2\n"}), end="")
    --- a/f.py
    +++ b/f.py
    @@ -1 +1 @@
    -x = 1
    +x = 2
    """
    lines: list[str] = []
    for path in sorted(after):
        old, new = (side.get(path, "").splitlines(keepends=True) for side in (before, after))
        source = f"a/{path}" if path in before else "/dev/null"
        for num in range(3, 1000):  # more context, until each hunk stands in one place alone
            hunks = list(difflib.unified_diff(old, new, source, f"b/{path}", n=num))
            ended = [x if x.endswith("\n") else f"{x}\n{NO_END}\n" for x in hunks]
            edits = read_diff("".join(ended))
            if path not in before or all("".join(old).count(e.old) == 1 for e in edits):
                break
        lines += ended
    return "".join(lines)


def reverse_diff(text: str) -> str:
    r"""Return the diff that takes a diff back.

    >>> reverse_diff("--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-x\n+y\n+z\n")
    '--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n+x\n-y\n-z\n'
    """
    lines = []
    for line in text.splitlines(keepends=True):
        if line.startswith(("--- ", "+++ ")):
            lines.append(line)
        elif found := re.match(r"@@ -(\S+) \+(\S+) @@(.*)", line, re.DOTALL):
            lines.append(f"@@ -{found[2]} +{found[1]} @@{found[3]}")
        elif line[:1] in "+-":
            lines.append(("-" if line[0] == "+" else "+") + line[1:])
        else:
            lines.append(line)
    return "".join(lines)
