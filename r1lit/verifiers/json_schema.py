"""JSON answers, checked against a schema and a gold value."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import final_or_answer_part
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

    needs_answer = False

    def check(self) -> None:
        """Check that jsonschema is installed."""
        import jsonschema  # noqa: F401

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response.

        Raises:
            ValueError: if the problem's schema, or its gold answer, is none.
        """
        start = time.perf_counter()
        validator = _validator(problem)
        text = answer_text(response)
        if not text or len(text) > MAX_CHARACTERS:
            return conclude("unparsed", None, "no answer, or one that is too long", start)
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return conclude("unparsed", None, f"{text[:60]!r} is not JSON", start)
        canonical = json.dumps(value, sort_keys=True)[:200]
        fault = next(validator.iter_errors(value), None)
        valid = {"valid": float(fault is None)}
        if fault is not None:
            where = ".".join(map(str, fault.absolute_path))
            reason = f"{where + ': ' if where else ''}{fault.message}"[:200]
            return replace(conclude("wrong", canonical, reason, start), details=valid)
        if problem.answer and not _same(value, _gold(problem)):
            reason = f"valid, but not {problem.answer[:60]}"
            return replace(conclude("wrong", canonical, reason, start), details=valid)
        return replace(conclude("right", canonical, "", start), details=valid)


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
