"""Verdicts on JSON answers, on function calls as BFCL has them, and by reasoning-gym."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from r1lit.problems import Problem
from r1lit.verifiers import FunctionCallVerifier, JSONSchemaVerifier, ReasoningGymVerifier
from r1lit.verifiers.structured import read_calls

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


def json_problem(answer: str = "", schema=SCHEMA) -> Problem:
    return Problem(uid="j", question="", answer=answer, source="s", meta={"schema": schema})


@pytest.mark.parametrize(
    ("response", "status", "valid"),
    [
        ('{"name": "Ann", "age": 3}', "right", 1.0),
        ('<think> {"name": 1} </think> <answer> {"age": 3.0, "name": "Ann"} </answer>', "right", 1),
        ('```json\n{"name": "Ann", "age": 3}\n```', "right", 1.0),
        ('{"name": "Bob"}', "wrong", 1.0),
        ('{"name": "Ann", "age": -3}', "wrong", 0.0),
        ('{"name": "Ann", "age": "3"}', "wrong", 0.0),
        ('{"name": "Ann", "x": 3}', "wrong", 0.0),
        ('{"name": "Ann", "age": 3', "unparsed", None),
        ('{"name": "Ann", "age": NaN}', "unparsed", None),
        ("[" * 5000, "unparsed", None),
        ("", "unparsed", None),
    ],
)
def test_json_is_valid_and_its_value_right(response, status, valid):
    verdict = JSONSchemaVerifier().verify(response, json_problem('{"name": "Ann", "age": 3}'))
    assert (verdict.status, verdict.details.get("valid")) == (status, valid)


@pytest.mark.parametrize(
    ("response", "gold", "status"),
    [
        ('{"a": true}', '{"a": 1}', "wrong"),
        ('{"a": [0]}', '{"a": [false]}', "wrong"),
        ('{"a": [true, 1.0]}', '{"a": [true, 1]}', "right"),
    ],
)
def test_booleans_are_no_numbers(response, gold, status):
    assert JSONSchemaVerifier().verify(response, json_problem(gold, {})).status == status


def test_what_was_read_is_shown_in_its_own_characters():
    said = '{"name": "北京"}'
    assert JSONSchemaVerifier().verify(said, json_problem(said)).canonical == said
    calls = FunctionCallVerifier().verify('[geo.area(base="北京")]', call_problem(GOLD))
    assert calls.canonical is not None and "北京" in calls.canonical


def test_without_a_gold_answer_validity_decides():
    assert JSONSchemaVerifier().verify('{"name": ""}', json_problem()).status == "right"


@pytest.mark.parametrize("schema", [None, "{", {"type": "nothing"}, 3])
def test_a_schema_that_is_none_is_an_error_of_one_line(schema):
    with pytest.raises(ValueError, match="meta: schema of problem 'j': ") as error:
        JSONSchemaVerifier().verify("{}", json_problem(schema=schema))
    assert "\n" not in str(error.value)


FUNCTION = {
    "name": "geo.area",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "integer"},
            "unit": {"type": "string"},
            "scale": {"type": "float"},
        },
        "required": ["base"],
    },
}


def call_problem(*gold) -> Problem:
    meta = {"function": [FUNCTION], "ground_truth": list(gold)}
    return Problem(uid="f", question="", answer="", source="s", meta=meta)


GOLD = {"geo.area": {"base": [10], "unit": ["units", ""], "scale": [1.5, ""]}}


@pytest.mark.parametrize(
    ("response", "status"),
    [
        ("[geo.area(base=10)]", "right"),
        ("geo.area(base=10, unit='UNITS')", "right"),
        ('{"name": "geo.area", "arguments": {"base": 10, "scale": 1.5}}', "right"),
        ('<tool_call>{"name": "geo.area", "arguments": {"base": 10}}</tool_call>', "right"),
        ("[geo.area(base=11)]", "wrong"),
        ("[geo.area(base='10')]", "wrong"),
        ("[geo.area(base=True)]", "wrong"),
        ("[geo.area(unit='units')]", "wrong"),
        ("[geo.area(base=10, height=2)]", "wrong"),
        ("[area(base=10)]", "wrong"),
        ("[geo.area(base=10), geo.area(base=10)]", "wrong"),
        ("[geo.area(10)]", "unparsed"),
        ("[]", "wrong"),
        ("The area is 10.", "unparsed"),
        ("[geo.area(base=__import__('os').system('x'))]", "unparsed"),
        ("(" * 3000, "unparsed"),
    ],
)
def test_calls_are_compared_by_syntax(response, status):
    verdict = FunctionCallVerifier().verify(response, call_problem(GOLD))
    assert (verdict.status, verdict.details["valid"]) == (status, float(status != "unparsed"))


RIGHT, DRAFT = (
    f'<tool_call>{{"name": "geo.area", "arguments": {{"base": {base}}}}}</tool_call>'
    for base in (10, 7)
)


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (f"<think>{RIGHT}</think> <answer>I don't know</answer>", "unparsed"),
        (f"<think>{RIGHT}", "unparsed"),
        (f"<think>{DRAFT}</think> {RIGHT}", "right"),
        (f"{DRAFT}</think> {RIGHT}", "right"),
        (f"<think>{RIGHT}</think> {DRAFT}", "wrong"),
        (f"<think>{RIGHT}</think> [geo.area(base=7)]", "wrong"),
    ],
)
def test_calls_in_the_thinking_do_not_count(response, status):
    assert FunctionCallVerifier().verify(response, call_problem(GOLD)).status == status


def test_parallel_calls_come_in_any_order_and_each_counts_once():
    problem = call_problem(GOLD, {"geo.area": {"base": [20], "unit": [""], "scale": [""]}})
    verify = FunctionCallVerifier().verify
    assert verify("[geo.area(base=20), geo.area(base=10)]", problem).status == "right"
    assert verify("[geo.area(base=10), geo.area(base=10)]", problem).status == "wrong"


BFCL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "bfcl_sample.jsonl"


@pytest.mark.skipif(not BFCL.exists(), reason="the rows of BFCL are not here")
def test_gold_calls_of_bfcl_are_right_and_changed_ones_are_not():
    rows = [json.loads(line) for line in BFCL.read_text().splitlines()]
    verifier, wrong = FunctionCallVerifier(), 0
    for row in rows:
        gold = row["ground_truth"]
        meta = {"function": row["function"], "ground_truth": gold}
        problem = Problem(uid=row["id"], question="", answer="", source="bfcl", meta=meta)
        calls = [
            {"name": name, "arguments": {k: _plain(v) for k, v in allowed.items() if v != [""]}}
            for one in gold
            for name, allowed in one.items()
        ]
        assert verifier.verify(json.dumps(calls), problem).status == "right", row["id"]
        changed = copy.deepcopy(calls)
        changed[0]["arguments"]["another"] = 1
        assert verifier.verify(json.dumps(changed), problem).status == "wrong"
        assert verifier.verify(json.dumps(calls[1:]), problem).status == "wrong"
        wrong += 2
    print(f"\nBFCL: {len(rows)} gold rows right, {wrong} changed ones wrong")


def _plain(allowed):
    """Return the first allowed value, with the first ones of a mapping's keys."""
    value = next((one for one in allowed if one != ""), "")
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if not isinstance(v, list) or "" not in v}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_plain([one]) for one in value]
    return value


def test_reasoning_gym_is_right_at_its_full_score_alone():
    pytest.importorskip("reasoning_gym")
    from r1lit.data import ReasoningGym

    verifier = ReasoningGymVerifier()
    for task in ("gcd", "prime_factorization", "game_of_life_halting", "countdown"):
        for problem in ReasoningGym(task, 5, seed=1).problems():
            gold = f"<answer> {problem.answer} </answer>"
            assert verifier.verify(gold, problem).status == "right", (task, problem.answer)
            for nonsense in ("?!", "two times three", "", "<answer> maybe </answer>"):
                assert verifier.verify(nonsense, problem).status != "right", (task, nonsense)
    with pytest.raises(ValueError, match="task: reasoning-gym has no 'gdc'; did you mean gcd"):
        ReasoningGym("gdc", 1).problems()
    with pytest.raises(ValueError, match="options: gcd refuses"):
        ReasoningGym("gcd", 1, options={"min_numbrs": 1}).problems()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 2, "a": 1}',
        '{"a": 1, "a": 1}',
        '{"a": 1, "\\u0061": 1}',
        '{"b": {"c": 2, "c": 1}, "a": 1}',
    ],
)
def test_a_key_that_stands_twice_is_no_answer(text: str):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    problem = Problem(uid="", question="", answer="", source="", meta={"schema": schema})
    verdict = JSONSchemaVerifier().verify(text, problem)
    assert verdict.status == "unparsed" and "twice" in verdict.reason
    with pytest.raises(ValueError, match="twice"):
        read_calls('[{"name": "f", "arguments": ' + text + "}]")


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "arguments": {"a": 1}}',
        '{"type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}',
        '[{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]',
        '{"tool_calls": [{"function": {"name": "f", "arguments": "{\\"a\\": 1}"}}]}',
        '<tool_call>{"function": {"name": "f", "arguments": "{\\"a\\": 1}"}}</tool_call>',
        '{"name": "f", "arguments": "{\\"a\\": 1}"}',
    ],
)
def test_calls_in_openais_form(text: str):
    assert read_calls(text) == [("f", {"a": 1})]


@pytest.mark.parametrize(
    "text", ['{"function": {"name": "f", "arguments": "a = 1"}}', '{"function": "f", "a": 1}',
             '{"tool_calls": {"name": "f"}}', '{"function": {"name": "f", "arguments": "[1]"}}']
)  # fmt: skip
def test_what_is_no_call_in_openais_form(text: str):
    with pytest.raises(ValueError, match="is not a call"):
        read_calls(text)
