"""Programs changed in one place, and a plain way to run their tests: the ground truth."""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import multiprocessing
import random
from multiprocessing.connection import Connection

from r1lit.batches import Problem

_SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Lt: ast.GtE, ast.Gt: ast.LtE,
    ast.LtE: ast.Gt, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def _places(tree: ast.AST) -> list[tuple[ast.AST, str, int | None]]:
    """Return where the tree can be changed: node, field, index within the field."""
    places: list[tuple[ast.AST, str, int | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in _SWAPS:
            places.append((node, "op", None))
        elif isinstance(node, ast.Compare):
            places += [(node, "ops", i) for i, op in enumerate(node.ops) if type(op) in _SWAPS]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            places.append((node, "value", None))
        elif isinstance(node, ast.Return) and node.value is not None:
            places.append((node, "return", None))
    return places


def mutants(code: str, seed: int, most: int, within: str | None = None) -> list[str]:
    """Return up to ``most`` versions of ``code``, each changed in one place.

    ``within`` names the function to change: HumanEval's prompts define others, which its tests may
    call; the verifier gives them the prompt's own, so that changing those changes nothing.
    """
    tree = ast.parse(code)
    inside = [n for n in tree.body if getattr(n, "name", None) == within] if within else []
    allowed = {id(node) for top in inside or [tree] for node in ast.walk(top)}
    order = [i for i, place in enumerate(_places(tree)) if id(place[0]) in allowed]
    random.Random(seed).shuffle(order)
    return [_change(tree, place) for place in order[:most]]


def _change(tree: ast.Module, place: int) -> str:
    changed = copy.deepcopy(tree)
    node, field, index = _places(changed)[place]
    if isinstance(node, ast.Return):
        node.value = ast.Constant(None)
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = not value if isinstance(value, bool) else value + 1
    elif index is not None:
        ops = getattr(node, field)
        ops[index] = _SWAPS[type(ops[index])]()
    else:
        node.op = _SWAPS[type(node.op)]()
    return ast.unparse(ast.fix_missing_locations(changed))


def passes(code: str, problem: Problem, seconds: float = 5.0) -> bool:
    """Run code and tests together in one ordinary process, as HumanEval and MBPP do."""
    meta = problem.meta
    if "test" in meta:
        source = f"{code}\n{meta['test']}\ncheck({meta['entry_point']})\n"
    else:
        source = "\n".join([code, meta.get("setup", ""), *meta["tests"]])
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(source, theirs))
    process.start()
    theirs.close()
    passed = ours.poll(seconds) and _received(ours)
    process.kill()
    process.join()
    return passed


def _received(connection: Connection) -> bool:
    try:
        return bool(connection.recv())
    except EOFError:
        return False


def _run(source: str, reply: Connection) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(source, {"__name__": "solution"})
        except BaseException:
            reply.send(False)
            return
    reply.send(True)
