"""Uses of a program's objects and exceptions in functional tests, by the tests' text.

Objects stay in the program's sandbox, so tests that look at them (a list's ``next``, an enum's
member, what was printed) cannot be decided. Which tests do so depends on their text alone, not on
the program, which can gain nothing by it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from types import TracebackType
from typing import Any

WATCHED = "_watched"
PRINTED = "what it prints"
_ARRAYS = frozenset({"shape", "size", "T", "dtype", "ndim", "flat", "nbytes", "itemsize"})
_PRINTED = frozenset({"redirect_stdout", "redirect_stderr", "capsys", "capfd", "stdout", "stderr"})


class Watch:
    """A context that notes a program's exceptions which go through it."""

    def __init__(self) -> None:
        self.seen = ""

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if getattr(error, "of_program", False):
            self.seen = type(error).__name__


def watch_swallowed(tree: ast.Module) -> None:
    """Put a `Watch` around asserts whose failure a test may swallow, as ``except KeyError: pass``.

    A handler that checks something itself is left alone, and so is an assert that never holds: both
    expect the exception.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            swallows = node.handlers and not any(_checks(h.body) for h in node.handlers)
        elif isinstance(node, ast.With):
            calls = (i.context_expr for i in node.items if isinstance(i.context_expr, ast.Call))
            swallows = any(_name(call.func) == "suppress" for call in calls)
        else:
            continue
        if swallows and _checks(node.body):
            item = ast.withitem(ast.Name(WATCHED, ast.Load()), None)
            node.body = [ast.copy_location(ast.With([item], node.body), node.body[0])]


def _checks(body: Sequence[ast.stmt]) -> bool:
    """Decide whether statements check something that may hold."""
    for node in (part for statement in body for part in ast.walk(statement)):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Assert) and not _never_holds(node.test):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name.startswith("assert") and "Raises" not in name:
                return True
    return False


def _never_holds(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(_never_holds, test.values))
    return isinstance(test, ast.Constant) and not test.value


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def looks_at(trees: Sequence[ast.Module], remote: Collection[str], suspect: Collection[str]) -> str:
    """Return the part of a program's objects that tests look at, or an empty text.

    Args:
        trees: the tests.
        remote: names of the program's functions and classes, without its dataclasses.
        suspect: variables that may hold what the program gave.

    >>> looks_at([ast.parse("assert f([1]).value == 2")], {"f"}, {"f"})
    '.value'
    >>> looks_at([ast.parse("assert f([1]).pop() == 2")], {"f"}, {"f"})
    ''
    """
    for tree in trees:
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        made = set(_made(tree, remote))
        for node in ast.walk(tree):
            if found := _look(node, parents, remote, suspect, made):
                return found
    return ""


def _made(tree: ast.Module, remote: Collection[str]) -> Iterator[str]:
    """Yield the variables that hold an object of the program's, made by its class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_made(node.value, remote):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_made(node: ast.AST, remote: Collection[str]) -> bool:
    return isinstance(node, ast.Call) and _is_class(node.func, remote)


def _is_class(node: ast.AST, remote: Collection[str]) -> bool:
    return (
        isinstance(node, ast.Name)
        and node.id in remote
        and node.id[0].isupper()
        and not (node.id.isupper() and len(node.id) > 1)
    )


def _look(
    node: ast.AST,
    parents: dict[Any, Any],
    remote: Collection[str],
    suspect: Collection[str],
    made: Collection[str],
) -> str:
    parent = parents.get(node)
    if isinstance(node, ast.Name | ast.Attribute) and _name(node) in _PRINTED:
        return PRINTED
    called = isinstance(parent, ast.Call) and parent.func is node
    if isinstance(node, ast.Attribute):
        names = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        plain = node.attr in _ARRAYS or node.attr in _plain_attributes()
        return "" if called or plain or not names & set(suspect) else f".{node.attr}"
    if isinstance(node, ast.Subscript) and _is_class(node.value, remote):
        return f"{_name(node.value)}[…]"
    if isinstance(node, ast.Name) and node.id in remote and isinstance(parent, ast.Call):
        kind = _name(parent.func)
        if kind in ("isinstance", "issubclass") and node in parent.args[1:]:
            return f"{kind}(…, {node.id})"
    if not (_is_made(node, remote) or (isinstance(node, ast.Name) and node.id in made)):
        return ""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return ""
    if isinstance(parent, ast.Call) and parent.func is not node:
        name = _name(parent.func)
        return f"{name}(…)" if isinstance(parent.func, ast.Name) and _is_builtin(name) else ""
    if isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Eq | ast.NotEq):
        return ""  # as dataclasses are compared, by their fields
    if isinstance(
        parent, ast.Attribute | ast.Assign | ast.Expr | ast.List | ast.Tuple | ast.keyword
    ):
        return ""
    return ast.unparse(parent if isinstance(parent, ast.expr) else node)[:40]


@cache
def _plain_attributes() -> frozenset[str]:
    """Return the attributes of plain data, which crosses as it is."""
    import datetime
    from decimal import Decimal
    from fractions import Fraction

    kinds = [int, float, complex, str, bytes, list, dict, set, tuple, range, BaseException]
    kinds += [Fraction, Decimal, datetime.datetime, datetime.time, datetime.timedelta]
    return frozenset(name for kind in kinds for name in dir(kind))


def _is_builtin(name: str) -> bool:
    return hasattr(builtins, name)
