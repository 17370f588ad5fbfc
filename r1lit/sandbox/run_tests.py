"""Runs a data set's functional tests, inside a sandbox of their own.

Test code comes with a data set and is not trusted either: it has the interpreter and the installed
packages, no network, no other files, no environment. The program that it tests is in another
sandbox, behind a socket that carries plain data. Names that the tests use and do not define are
the program's.

Arguments cross as copies, so a test must fetch what the program changed in place. It does so only
where a program can gain nothing by it: a statement ``f(a)`` or ``k = f(a)`` is rewritten to

    k, (a,) = _changed(f, (0,), a)

if every later use of ``a`` is an assert that compares it with what the program has no part in.
In ``assert f(a) == sorted(a)`` it could empty ``a`` and return that; where ``a`` is compared with
``[1, 2]`` it has to be right.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import os
import socket
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NoReturn, TypeGuard

from r1lit.sandbox.calls import LOOKED, ProgramError, RemoteProgram, RemoteRecordClass, changed
from r1lit.sandbox.objects import PRINTED, WATCHED, Watch, looks_at, watch_swallowed

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
    """Yield a scope's nodes with a body of statements, without the functions defined there."""
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


MAX_REASON = 300
_MODULES = (
    "math", "collections", "itertools", "functools", "typing", "decimal", "fractions", "datetime",
    "statistics", "operator", "heapq", "bisect", "copy",
)  # fmt: skip
"""Modules whose names tests use without importing them, in the order of the search."""
_ALIASES = {"np": "numpy", "numpy": "numpy"}
STATUSES = ("right", "wrong", "ended", "error")


def run_tests_and_end(request: bytes, channel: int) -> NoReturn:
    """Run the tests of ``request`` against the program behind ``channel``, and end this process.

    Standard output gets one JSON object: ``status`` and ``reason``. What the tests print is lost.
    """
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        try:
            program = RemoteProgram(socket.socket(fileno=channel))
            status, reason = run_tests(json.loads(request), program)
        except BaseException as error:  # the tests' own error
            status, reason = "error", f"the tests fail by themselves: {_text(error)}"
        os.write(answer, json.dumps({"status": status, "reason": reason[:MAX_REASON]}).encode())
    finally:
        os._exit(0)


def _text(error: BaseException) -> str:
    try:
        return repr(error)
    except BaseException:
        return type(error).__name__


def run_tests(request: Mapping[str, Any], program: RemoteProgram) -> tuple[str, str]:
    """Run tests against a program; return status and reason.

    The status is ``ended`` when the program failed in a way that its end may explain, and ``error``
    when tests fail that look at the program's objects.
    """
    watch = Watch()
    tests: list[str] = request["tests"]
    check: str | None = request.get("check")
    try:
        program.load()
        namespace: dict[str, Any] = {"__name__": "tests", CHANGED: changed, WATCHED: watch}
        exec(request["given"], namespace)
        if check:
            namespace.pop(check.partition("(")[0], None)  # the program's Solution, not the prompt's
            namespace[check] = program.function(check)
        own, imported = unknown_names(tests, namespace, check is not None)
        _bind(own, imported, tests, program, namespace)
    except ProgramError as error:
        return "ended", str(error)
    remote = {*own, *([check] if check else [])}
    looked = _looked_at(tests, remote, namespace)
    codes = _compiled(tests, remote)
    for number, (test, code) in enumerate(zip(tests, codes, strict=True), start=1):
        failed: BaseException | None = None
        try:
            exec(code, namespace)
            if check:
                namespace["check"](namespace[check])
        except BaseException as error:
            failed = error
        if looked and _fails_by_looking(looked, failed, program.failure):
            return "error", f"the tests look at objects of the program's ({looked})"
        if program.failure:  # perhaps the tests caught it
            return "ended", program.failure
        if failed is not None:
            return "wrong", f"test {number} of {len(tests)}: {_describe(failed, test)}"
        if watch.seen:
            return "wrong", f"test {number} of {len(tests)}: the program raised {watch.seen}"
    return "right", ""


def _fails_by_looking(looked: str, failed: BaseException | None, failure: str) -> bool:
    """Decide whether a test fails since an object or what was printed is not where it looks."""
    if failure or failed is None:
        return failure == LOOKED
    kinds = (TypeError, AttributeError, *([AssertionError] if looked == PRINTED else []))
    return isinstance(failed, kinds) and not getattr(failed, "of_program", False)


def _looked_at(tests: Sequence[str], remote: Collection[str], namespace: Mapping[str, Any]) -> str:
    """Return the part of the program's objects that tests look at, but for dataclasses' fields."""
    trees = [ast.parse(test) for test in tests]
    module = ast.Module(body=[node for tree in trees for node in tree.body], type_ignores=[])
    classes = {n for n in remote if not isinstance(namespace.get(n), RemoteRecordClass)}
    return looks_at(trees, classes, _suspects(module, remote))


def _compiled(tests: Sequence[str], remote: Collection[str]) -> list[CodeType]:
    """Compile tests so that they see what the program changes in place, where that is safe."""
    trees = [ast.parse(test) for test in tests]
    follow_changes(trees, remote)
    for tree in trees:
        watch_swallowed(tree)
    return [
        compile(ast.fix_missing_locations(tree), f"test {number}", "exec")
        for number, tree in enumerate(trees, start=1)
    ]


def _describe(error: BaseException, test: str) -> str:
    """Say which assert failed, or what was raised at which line."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("test "):
            line = trace.tb_lineno
        trace = trace.tb_next
    lines = test.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    if isinstance(error, AssertionError) and not error.args:
        return f"failed {text}"
    return f"{type(error).__name__}: {_text(error)[:120]} at {text}"


def _bind(
    own: Sequence[str],
    imported: Mapping[str, str],
    tests: Sequence[str],
    program: RemoteProgram,
    namespace: dict[str, Any],
) -> None:
    """Put the program's functions and values, and what the tests forgot to import, within reach."""
    for name, path in imported.items():
        module, _, attribute = path.partition(".")
        found = importlib.import_module(module)
        namespace[name] = getattr(found, attribute) if attribute else found
    called = {node.func.id for node in _calls(tests)}
    for name in own:
        if name in called or len(own) == 1:
            namespace[name] = program.function(name)
        else:
            try:
                namespace[name] = program.get(name)
            except AttributeError:
                raise ProgramError(f"the program has no {name}") from None


def _calls(tests: Sequence[str]) -> list[Any]:
    """Return the calls of something that has a name of its own."""
    nodes = [node for test in tests for node in ast.walk(ast.parse(test))]
    return [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]


def unknown_names(
    tests: Sequence[str], given: Collection[str], known: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Return names that the tests use and nothing of ours defines: the program's, and Python's.

    Python's are those that the tests forgot to import, each with its place: a program that is
    asked for ``isclose`` would judge itself. A name that is one of Python's functions is still the
    program's where the tests have no other subject, or use it by itself, as in
    ``assert gcd(4, 6) == 2``. With ``known`` the subject is known, and given.

    If there is none, the program bears the name of a builtin: the function that the first test
    calls first.

    >>> unknown_names(["assert set(f(1)) == set(g)"], {})
    (['g', 'f'], {})
    >>> unknown_names(["assert isclose(f(1), 2)", "assert Counter(f(2)) == Counter()"], {})
    (['f'], {'isclose': 'math.isclose', 'Counter': 'collections.Counter'})
    >>> unknown_names(["assert sum(10, 15) == 6"], {})
    (['sum'], {})
    """
    unknown = [name for name in free_names(tests) if name not in given]
    if not unknown and not known:
        return [node.func.id for node in _calls(tests)][:1], {}
    bases = _only_looked_into(tests)
    homes = {name: home for name in unknown if (home := _home(name, name in bases))}
    subjects = [name for name in unknown if name not in homes]
    if not subjects and not known:
        subjects = _innermost(tests, homes)
    alone = set() if known else {n for n in homes if n not in bases and _stands_alone(n, tests)}
    imported = {n: home for n, home in homes.items() if n not in subjects and n not in alone}
    return [name for name in unknown if name not in imported], imported


def _only_looked_into(tests: Sequence[str]) -> set[str]:
    """Return the names that occur as ``name.attribute`` alone."""
    nodes = [node for test in tests for node in ast.walk(ast.parse(test))]
    inside = {id(n.value): n.value.id for n in nodes
              if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}  # fmt: skip
    bare = {n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in inside}
    return set(inside.values()) - bare


def _home(name: str, is_module: bool) -> str | None:
    """Return the name of a forgotten import (``math``, ``math.gcd``), or ``None``."""
    if is_module:
        module = _ALIASES.get(name, name)
        return module if module in {*sys.stdlib_module_names, *_ALIASES.values()} else None
    for module in _MODULES:
        if not name.startswith("_") and hasattr(importlib.import_module(module), name):
            return f"{module}.{name}"
    return None


def _innermost(tests: Sequence[str], names: Collection[str]) -> list[str]:
    """Return Python's names that others are called with: ``sqrt`` in ``isclose(sqrt(2))``.

    Without nested calls, all the names.
    """
    outer, inner = set(), set()
    for call in _calls(tests):
        parts = [n for argument in (*call.args, *call.keywords) for n in ast.walk(argument)]
        within = {n.func.id for n in parts if isinstance(n, ast.Call) and _is_name(n.func)}
        if call.func.id in names and within & set(names) - {call.func.id}:
            outer.add(call.func.id)
            inner |= within & set(names) - {call.func.id}
    return [name for name in names if name in inner - outer] or list(names)


def _stands_alone(name: str, tests: Sequence[str]) -> bool:
    """Decide whether every statement that uses a name uses no other, and calls it."""
    for test in tests:
        for node in ast.walk(ast.parse(test)):
            if not isinstance(node, ast.stmt):
                continue
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            others = {n for n in names if n != name and not hasattr(builtins, n)}
            if name in names and (others or not isinstance(node, ast.Assert | ast.Expr)):
                return False
    return True


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def free_names(sources: Sequence[str]) -> list[str]:
    """Return the names that ``sources`` use and neither they nor Python define.

    >>> free_names(["import math", "x = 1", "print(math.pi * x * y)"])
    ['y']
    """
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    free = [n.id for n in names if n.id not in bound and not hasattr(builtins, n.id)]
    return list(dict.fromkeys(free))
