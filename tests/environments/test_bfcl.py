"""BFCL's multi-turn backends; needs the package, which no extra of r1lit installs."""

from __future__ import annotations

import ast
import sys

import pytest

from r1lit.data import BFCLTasks
from r1lit.environments import BFCL, Reply, ToolCall
from r1lit.problems import Problem, Verdict


@pytest.fixture(scope="module")
def environment() -> BFCL:
    pytest.importorskip("bfcl_eval")
    return BFCL()


def gold_calls(environment: BFCL, problem: Problem) -> list[list[ToolCall]]:
    """Return the gold calls of each request, arguments by position by their names."""
    tools = {tool["function"]["name"]: tool["function"] for tool in environment.tools_of(problem)}
    turns = []
    for texts in problem.meta["ground_truth"]:
        calls = []
        for text in texts:
            node = ast.parse(text, mode="eval").body
            names = list(tools[node.func.id]["parameters"]["properties"])
            given = [k.arg for k in node.keywords]
            arguments = dict(zip(names, node.args, strict=False))
            arguments |= {n: k.value for n, k in zip(given, node.keywords, strict=True)}
            literals = {name: ast.literal_eval(value) for name, value in arguments.items()}
            calls.append(ToolCall(name=node.func.id, arguments=literals))
        turns.append(calls)
    return turns


def play(environment: BFCL, problem: Problem, turns: list[list[ToolCall]]) -> Verdict:
    """Return the verdict on calls, one a reply, and a reply without a call after each request."""
    episode = environment.begin(problem, 0)
    step = None
    for calls in turns:
        for call in calls:
            assert episode.step(Reply(text="", calls=(call,))).messages[0]["role"] == "tool"
        step = episode.step(Reply(text="Done."))
    episode.close()
    assert step is not None and step.verdict is not None
    return step.verdict


def test_gold_calls_are_right_and_with_one_left_out_wrong(environment):
    problems = BFCLTasks(num_problems=40).problems()
    right = [play(environment, p, gold_calls(environment, p)).status for p in problems]
    assert right == ["right"] * 40
    wrong = [play(environment, p, [[], *gold_calls(environment, p)[1:]]) for p in problems]
    assert [v.status for v in wrong] == ["wrong"] * 40
    assert wrong[0].reason.startswith("multi_turn:empty_turn_model_response")


def test_requests_follow_and_faults_are_messages_and_nothing_is_left_behind(environment):
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    (problem,) = BFCLTasks(num_problems=1).problems()
    assert "final_report.pdf" in environment.opening(problem).question()
    before = set(vars(multi_turn_utils))
    episode = environment.begin(problem, 0)

    def told(name: str, **arguments) -> tuple[str, bool]:
        step = episode.step(Reply(text="", calls=(ToolCall(name=name, arguments=arguments),)))
        return step.messages[0]["content"], step.invalid

    assert told("cp", source="a", destination="b") == ("error: there is no tool 'cp'", True)
    assert told("ls", b=1) == ("error: ls has no parameter 'b'", True)
    assert "document" in told("ls", a=True)[0]
    assert "No such" in told("cd", folder="__import__('os')")[0]
    assert episode.step(Reply(text="Done.")).messages[0]["role"] == "user"
    assert set(vars(multi_turn_utils)) > before
    episode.close()
    assert set(vars(multi_turn_utils)) == before


def test_schemas_are_those_of_json(environment):
    from jsonschema import Draft202012Validator

    assert len(environment.tools) > 100
    for tool in environment.tools:
        Draft202012Validator.check_schema(tool["function"]["parameters"])


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    with pytest.raises(ValueError, match=r"pip install --no-deps 'bfcl-eval==2026\.3\.23' mpmath"):
        BFCL()
    with pytest.raises(ValueError, match="category: 'bas' is none of base, long_context"):
        BFCLTasks("bas")
