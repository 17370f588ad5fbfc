"""Changes of a function's syntax tree that leave a program valid and make it do something else.

Formats and comments stay: only the changed characters differ. No two changes are known to do the
same: a condition is negated where no other change negates it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SWAPS: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "//"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "first": "last", "last": "first"}


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a function, whose lines are ``first`` to ``last``, with its decorators.

    The bytes from ``start`` to ``end`` of the file become ``text``.
    """

    path: str
    function: str
    first: int
    last: int
    kind: str
    start: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        """Return the file after the change."""
        whole = source.encode()
        return (whole[: self.start] + self.text.encode() + whole[self.end :]).decode()


def changes(path: str, source: str) -> Iterator[Change]:
    r"""Yield every change of every function of a file.

    >>> [c.kind for c in changes("f.py", "def f(a, b):\n    return a < b and g(a, b)\n")]
    ['and', '<', 'swapped arguments']
    """
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = b"".join(lines)

    def at(node: ast.AST, end: bool = False) -> int:
        line, column = ("end_lineno", "end_col_offset") if end else ("lineno", "col_offset")
        return int(starts[getattr(node, line) - 1] + getattr(node, column))

    for name, function in _functions(ast.parse(source), ""):
        first = min([function.lineno, *(part.lineno for part in function.decorator_list)])
        for node in _inside(function):
            for kind, start, end, text in _replacements(node, whole, at):
                yield Change(
                    path=path,
                    function=name,
                    first=first,
                    last=function.end_lineno or function.lineno,
                    kind=kind,
                    start=start,
                    end=end,
                    text=text,
                )


def _functions(owner: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield functions and methods with their qualified names; those inside others are theirs."""
    for node in ast.iter_child_nodes(owner):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _functions(node, prefix)


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body; what an f-string holds has no reliable place."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.JoinedStr):
            yield node
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _replacements(node: ast.AST, whole: bytes, at: Any) -> Iterator[tuple[str, int, int, str]]:
    """Yield the replacements of a node: their kind, the bytes that go, and the text that comes."""

    def between(left: ast.AST, right: ast.AST, operator: ast.AST) -> Iterator[Any]:
        old, new = SWAPS.get(type(operator), ("", ""))
        first, last = at(left, end=True), at(right)
        text = whole[first:last].decode()
        if old and text.count(old) == 1 and "#" not in text:
            yield old, first, last, text.replace(old, new)

    if isinstance(node, ast.Compare):
        yield from between(node.left, node.comparators[0], node.ops[0])
    elif isinstance(node, ast.BinOp):
        yield from between(node.left, node.right, node.op)
    elif isinstance(node, ast.BoolOp):
        yield from between(node.values[0], node.values[1], node.op)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield "constant", at(node), at(node, end=True), str(value)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        text = whole[at(node.test) : at(node.test, end=True)].decode()
        if not _is_negated_elsewhere(node.test):
            yield "negated condition", at(node.test), at(node.test, end=True), f"not ({text})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "removed not", at(node), at(node.operand), ""
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in NAMES:
            yield "other function", at(node.func), at(node.func, end=True), NAMES[node.func.id]
        if len(node.args) == 2 and not any(isinstance(a, ast.Starred) for a in node.args):
            one, two = (whole[at(a) : at(a, end=True)].decode() for a in node.args)
            middle = whole[at(node.args[0], end=True) : at(node.args[1])].decode()
            text = two + middle + one
            yield "swapped arguments", at(node.args[0]), at(node.args[1], end=True), text
    elif isinstance(node, ast.Assign | ast.AugAssign):
        yield "removed assignment", at(node), at(node, end=True), "pass"
    elif isinstance(node, ast.Break):
        yield "break", at(node), at(node, end=True), "continue"


def _is_negated_elsewhere(test: ast.expr) -> bool:
    """Return whether another change negates a condition: of its ``not``, or of its operator."""
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not)
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return False
    return isinstance(test.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is | ast.IsNot)
