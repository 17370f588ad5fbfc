"""Structured answers: JSON checked against a schema, and function calls as in BFCL.

The Berkeley Function-Calling Leaderboard compares calls without running them: names, required and
unknown parameters, types, and for each parameter a list of allowed values, in which "" means that
it may be left out. Strings are compared without case, spaces and the signs ``,./-_*^``. Calls in
parallel may come in any order. (BFCL v4, bfcl_eval/eval_checker/ast_eval; its Java and JavaScript
types are not read.)
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import final_or_answer_part, thinking_and_answer
from r1lit.verifiers.base import Verifier, conclude

MAX_CHARACTERS = 20_000
_FENCE = re.compile(r"^```(?:json)?\s*\n?(.*?)\n?\s*```$", re.DOTALL)


class JSONSchemaVerifier(Verifier):
    """Decides by ``meta["schema"]`` and, if there is one, by the gold answer, which is JSON.

    The answer is what stands between answer tags, or all that follows the thinking; a code fence
    around it is taken off. It is right if it fits the schema and, with a gold answer, equals it as
    JSON: order of keys and 1.0 for 1 do not matter, true is not 1. ``details["valid"]`` is 1 where
    it fits the schema, so that validity and value are counted apart. Without a gold answer validity
    decides, and an object that is valid and says nothing is right: give one where you can.
    """

    needs = (("schema",),)
    needs_answer = False

    def check(self) -> None:
        """Check that jsonschema is installed."""
        import jsonschema  # noqa: F401

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if the problem's schema, or its gold answer, is none.
        """
        validator = _validator(problem)
        text = answer_text(response)
        if not text or len(text) > MAX_CHARACTERS:
            return conclude("unparsed", None, "no answer, or one that is too long")
        try:
            value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            reason = f"{text[:60]!r} is not JSON" + (f": {error}" if "twice" in str(error) else "")
            return conclude("unparsed", None, reason)
        canonical = json.dumps(value, sort_keys=True, ensure_ascii=False)[:200]
        fault = next(validator.iter_errors(value), None)
        valid = {"valid": float(fault is None)}
        if fault is not None:
            where = ".".join(map(str, fault.absolute_path))
            reason = f"{where + ': ' if where else ''}{fault.message}"[:200]
            return replace(conclude("wrong", canonical, reason), details=valid)
        if problem.answer and not _same(value, _gold(problem)):
            reason = f"valid, but not {problem.answer[:60]}"
            return replace(conclude("wrong", canonical, reason), details=valid)
        return replace(conclude("right", canonical, ""), details=valid)


def answer_text(response: str) -> str:
    r"""Return the JSON of a response as text.

    >>> answer_text('<think> so </think> ```json\n{"a": 1}\n```')
    '{"a": 1}'
    """
    answer = final_or_answer_part(response).strip()
    fenced = _FENCE.match(answer)
    return fenced[1].strip() if fenced else answer


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, unless it has a key twice: readers differ in which of the two counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        key = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
        raise ValueError(f"the key {key[:40]!r} stands there twice")
    return found


def _validator(problem: Problem) -> Any:
    from jsonschema import Draft202012Validator, SchemaError

    schema = problem.meta.get("schema")
    try:
        schema = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(schema, Mapping):
            raise ValueError("there is none")
        Draft202012Validator.check_schema(schema)
    except (ValueError, SchemaError) as error:
        reason = str(getattr(error, "message", error)).splitlines()[0]
        raise ValueError(f"meta: schema of problem {problem.uid!r}: {reason}") from error
    return Draft202012Validator(schema)


def _same(value: Any, gold: Any) -> bool:
    """Compare two JSON values; Python alone takes true for 1."""
    if isinstance(value, bool) or isinstance(gold, bool):
        return value is gold
    if isinstance(value, dict) and isinstance(gold, dict):
        return value.keys() == gold.keys() and all(_same(value[key], gold[key]) for key in gold)
    if isinstance(value, list) and isinstance(gold, list):
        return len(value) == len(gold) and all(map(_same, value, gold))
    return bool(value == gold)


def _gold(problem: Problem) -> Any:
    try:
        return json.loads(problem.answer)
    except ValueError as error:
        raise ValueError(
            f"answer: that of problem {problem.uid!r} is {problem.answer[:60]!r}, not JSON"
        ) from error


Call = tuple[str, dict[str, Any]]
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (float, int),
    "number": (float, int),
    "boolean": (bool,),
    "array": (list,),
    "tuple": (list,),
    "dict": (dict,),
    "object": (dict,),
}
_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_IGNORED = re.compile(r"[ ,./\-_*^]")


class FunctionCallVerifier(Verifier):
    """Decides by ``meta["function"]``, the functions, and ``meta["ground_truth"]``, as BFCL has it.

    A response holds its calls as ``<tool_call>`` blocks, as JSON objects of name and arguments, as
    OpenAI's ``tool_calls``, or as Python, ``[f(a=1), g(b="x")]``. Calls in the thinking do not
    count. ``details["valid"]`` is 1 where calls could be read, else 0.
    """

    needs = (("function",), ("ground_truth",))
    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if the problem names no functions or no gold calls.
        """
        functions, gold = (problem.meta.get(key) for key in ("function", "ground_truth"))
        if not functions or not isinstance(gold, Sequence):
            raise ValueError(
                f"meta: problem {problem.uid!r} needs function and ground_truth, lists as in BFCL"
            )
        try:
            calls = read_calls(response)
        except ValueError as error:
            return replace(conclude("unparsed", None, str(error)), details={"valid": 0.0})
        schemas = {function["name"]: function["parameters"] for function in functions}
        reason = find_fault(calls, list(gold), schemas)
        found = sorted(calls, key=repr)
        canonical = json.dumps(found, sort_keys=True, default=str, ensure_ascii=False)[:200]
        verdict = conclude("wrong" if reason else "right", canonical, reason)
        return replace(verdict, details={"valid": 1.0})


def read_calls(response: str) -> list[Call]:
    r"""Return the calls of a response, from what follows its thinking.

    >>> read_calls('[math.hypot(x=3, y=4)]')
    [('math.hypot', {'x': 3, 'y': 4})]
    >>> read_calls('{"function": {"name": "f", "arguments": "{\\"a\\": 1}"}}')
    [('f', {'a': 1})]

    Raises:
        ValueError: if it holds none.
    """
    tagged = _TAGGED.findall(thinking_and_answer(response)[1])
    text = f"[{','.join(tagged)}]" if tagged else answer_text(response)
    if not text or len(text) > MAX_CHARACTERS:
        raise ValueError("no calls, or too long a text")
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        if "twice" in str(error):
            raise
        return _python_calls(text)
    calls = []
    for one in _call_objects(found):
        arguments = one.get("arguments", {}) if isinstance(one, dict) else None
        if isinstance(arguments, str):  # OpenAI's are JSON in a text
            try:
                arguments = json.loads(arguments or "{}", object_pairs_hook=_once)
            except (ValueError, RecursionError):
                arguments = None
        if not isinstance(arguments, dict) or not isinstance(one.get("name"), str):
            raise ValueError(f"{str(one)[:60]!r} is not a call; it needs a name and arguments")
        calls.append((one["name"], arguments))
    return calls


def _call_objects(found: Any) -> list[Any]:
    """Return the objects with name and arguments of what may be OpenAI's message or its calls."""
    if isinstance(found, dict) and isinstance(found.get("tool_calls"), list):
        found = found["tool_calls"]
    ones = found if isinstance(found, list) else [found]
    return [
        one["function"] if isinstance(one, dict) and isinstance(one.get("function"), dict) else one
        for one in ones
    ]


def _python_calls(text: str) -> list[Call]:
    """Return calls written as Python, whose arguments are literals by keyword."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        nodes = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
        calls = []
        for node in nodes:
            if not isinstance(node, ast.Call) or node.args:
                raise ValueError(f"{ast.unparse(node)[:60]!r} is not a call with named arguments")
            arguments = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
            calls.append((ast.unparse(node.func), arguments))
    except (SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError(f"{text[:60]!r} is no list of calls") from error
    if not calls:
        raise ValueError("no calls")
    return calls


def find_fault(
    calls: Sequence[Call], gold: Sequence[Mapping[str, Any]], schemas: Mapping[str, Any]
) -> str:
    """Return the first fault of calls, empty if there is none; each gold call is met once."""
    if len(calls) != len(gold):
        return f"{len(calls)} calls where {len(gold)} are needed"
    left = list(calls)
    for wanted in gold:
        ((name, allowed),) = wanted.items()
        faults = [_fault(call, name, allowed, schemas) for call in left]
        if "" not in faults:
            return faults[0]
        left.pop(faults.index(""))
    return ""


def _fault(
    call: Call, name: str, allowed: Mapping[str, Sequence[Any]], schemas: Mapping[str, Any]
) -> str:
    called, arguments = call
    if called != name:
        return f"calls {called!r}, not {name!r}"
    properties = schemas[name].get("properties", {})
    for parameter in schemas[name].get("required", ()):
        if parameter not in arguments:
            return f"{name}: {parameter} is missing"
    for parameter, value in arguments.items():
        if parameter not in properties or parameter not in allowed:
            return f"{name}: there is no parameter {parameter!r}"
        kind = str(properties[parameter].get("type", ""))
        if not _is_of_kind(value, kind):
            return f"{name}: {parameter} is {value!r}, not of type {kind}"
        if not any(_equal(value, one) for one in allowed[parameter]):
            return f"{name}: {parameter} is {str(value)[:60]!r}, which is not allowed"
    for parameter, values in allowed.items():
        if parameter not in arguments and "" not in values:
            return f"{name}: {parameter} is missing"
    return ""


def _is_of_kind(value: Any, kind: str) -> bool:
    kinds = TYPES.get(kind)
    if kinds is None:
        return True
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _equal(value: Any, wanted: Any) -> bool:
    """Compare a value with an allowed one; in a mapping each key has allowed values of its own."""
    if isinstance(value, str) and isinstance(wanted, str):
        return _IGNORED.sub("", value).lower() == _IGNORED.sub("", wanted).lower()
    if isinstance(value, dict) and isinstance(wanted, dict):
        needed = {key for key, values in wanted.items() if "" not in _listed(values)}
        return needed <= value.keys() <= wanted.keys() and all(
            any(_equal(one, each) for each in _listed(wanted[key])) for key, one in value.items()
        )
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        return len(value) == len(wanted) and all(map(_equal, value, wanted))
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def _listed(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list) else [values]
