"""Variables of a test that the program changes in place: ``f(a)`` and then ``assert a == [1, 2]``.

Arguments cross as copies, so a test must fetch what became of them. It does so only where a program
can gain nothing by it: a statement ``f(a)`` or ``k = f(a)`` is rewritten to

    k, (a,) = _changed(f, (0,), a)

if every later use of ``a`` is an assert that compares it with what the program has no part in.
In ``assert f(a) == sorted(a)`` it could empty ``a`` and return that; where ``a`` is compared with
``[1, 2]`` it has to be right.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Sequence
from typing import Any

CHANGED = "_changed"
_DELAYED = (ast.Lambda, ast.FunctionDef, ast.GeneratorExp)


def follow_changes(trees: Sequence[ast.Module], remote: Collection[str]) -> None:
    """Rewrite tests, which share their variables; ``remote`` are the names of the program's."""
    module = ast.Module(body=[node for tree in trees for node in tree.body], type_ignores=[])
    suspect = _suspects(module, remote)
    rewritten: dict[int, ast.stmt] = {}
    for scope in (module, *(n for n in ast.walk(module) if isinstance(n, ast.FunctionDef))):
        for owner in _owners(scope):
            for place, statement in enumerate(owner.body):
                call = _call_of(statement)
                names = (
                    {}
                    if call is None
                    else {
                        argument.id: number
                        for number, argument in enumerate(call.args)
                        if isinstance(argument, ast.Name)
                        and _may_change(argument.id, place, owner, scope, suspect)
                    }
                )
                if call is not None and names and not _is_pythons(call.func, remote):
                    rewritten[id(statement)] = _rewritten(statement, call, names)

    class Rewriter(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return rewritten.get(id(node)) or self.generic_visit(node)

    for tree in trees:
        Rewriter().visit(tree)


def _owners(scope: Any) -> Iterator[Any]:
    """Yield what has a body of statements in a scope, without the functions defined there."""
    yield scope
    waiting = list(scope.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.For | ast.While | ast.With | ast.If | ast.Try):
            yield node
        waiting += ast.iter_child_nodes(node)


def _call_of(statement: ast.stmt) -> ast.Call | None:
    """Return the call that a statement is, alone or as the value of one name."""
    if not isinstance(statement, ast.Expr | ast.Assign) or not isinstance(
        statement.value, ast.Call
    ):
        return None
    if isinstance(statement, ast.Assign) and (
        len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name)
    ):
        return None
    starred = any(isinstance(argument, ast.Starred) for argument in statement.value.args)
    return None if starred else statement.value


def _is_pythons(function: ast.expr, remote: Collection[str]) -> bool:
    name = function.id if isinstance(function, ast.Name) else ""
    return hasattr(builtins, name) and name not in remote


def _rewritten(statement: ast.stmt, call: ast.Call, names: dict[str, int]) -> ast.stmt:
    result = (
        statement.targets[0]
        if isinstance(statement, ast.Assign)
        else ast.Name(f"{CHANGED}_result", ast.Store())
    )
    left = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
    places = ast.Tuple([ast.Constant(number) for number in names.values()], ast.Load())
    value = ast.Call(ast.Name(CHANGED, ast.Load()), [call.func, places, *call.args], call.keywords)
    return ast.copy_location(ast.Assign([ast.Tuple([result, left], ast.Store())], value), statement)


def _may_change(name: str, place: int, owner: Any, scope: ast.AST, suspect: set[str]) -> bool:
    """Decide whether ``name``, an argument of statement ``place`` of a body, may be fetched."""
    body: list[ast.stmt] = owner.body
    everywhere = _uses(scope, name)
    here = {id(use) for statement in body for use in _uses(statement, name)}
    target = owner.target if isinstance(owner, ast.For) else None
    bound = {id(use) for use in _uses(target, name)} if target is not None else set()
    if any(id(use) not in here | bound for use in everywhere):
        return False
    if any(_uses(n, name) for n in ast.walk(scope) if isinstance(n, _DELAYED) and n is not scope):
        return False
    first = next(number for number, statement in enumerate(body) if _uses(statement, name))
    if not bound and (first >= place or not _stores(body[first], name)):
        return False
    for statement in body[place + 1 :]:
        if _stores(statement, name):
            return True
        if _uses(statement, name) and not _is_safe(statement, name, suspect):
            return False
    return True


def _uses(node: ast.AST, name: str) -> list[ast.Name]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]


def _stores(statement: ast.stmt, name: str) -> bool:
    """Decide whether a statement gives a name a value that is not made of its old one."""
    return (
        isinstance(statement, ast.Assign)
        and any(_uses(target, name) for target in statement.targets)
        and all(isinstance(use.ctx, ast.Store) for use in _uses(statement, name))
    )


def _is_safe(statement: ast.stmt, name: str, suspect: set[str]) -> bool:
    """Decide whether a statement compares a name with what is known, or hands it on to a call."""
    if isinstance(statement, ast.Assert):
        test = statement.test
        parts = (
            test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        )
        return all(_compares(part, name, suspect) for part in parts if _uses(part, name))
    call = _call_of(statement)
    if call is None:
        return False
    direct = sum(isinstance(part, ast.Name) and part.id == name for part in call.args)
    return direct == len(_uses(statement, name))


def _compares(test: ast.expr, name: str, suspect: set[str]) -> bool:
    if not isinstance(test, ast.Compare):
        return False
    sides = [test.left, *test.comparators]
    others = [side for side in sides if not _uses(side, name)]
    names = {n.id for side in others for n in ast.walk(side) if isinstance(n, ast.Name)}
    return len(others) == len(sides) - 1 and not names & suspect


def _suspects(module: ast.Module, remote: Collection[str]) -> set[str]:
    """Return the variables whose content a program may have a part in."""
    nodes = list(ast.walk(module))
    suspect = {*remote, *(node.arg for node in nodes if isinstance(node, ast.arg))}
    flows: list[tuple[ast.AST, ast.AST]] = []
    for node in nodes:
        if isinstance(node, ast.Assign):
            flows += [(node.value, target) for target in node.targets]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value:
            flows.append((node.value, node.target))
        elif isinstance(node, ast.For | ast.comprehension):
            flows.append((node.iter, node.target))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            flows.append((node.context_expr, node.optional_vars))
        elif isinstance(node, ast.Call):  # results.append(f(a)); f(lambda x: seen.append(x))
            parts = [*node.args, *(keyword.value for keyword in node.keywords)]
            flows += [(part, node.func) for part in parts]
            flows += [(node.func, part) for part in parts if not isinstance(part, ast.Name)]
    calls = [_call_of(node) for node in nodes if isinstance(node, ast.stmt)]
    handed = {n.id for call in calls if call for n in call.args if isinstance(n, ast.Name)}
    while True:
        more = {
            name
            for source, target in flows
            if _names(source) & suspect
            for name in _names(target) - suspect
            if not hasattr(builtins, name)
        }
        if not more:
            return suspect | handed  # no further: what is made of these before the call is safe
        suspect |= more


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
