"""An adapter for the multi-turn backends of the Berkeley Function-Calling Leaderboard (BFCL v4)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from importlib import import_module, resources
from itertools import count
from typing import Any

from r1lit.environments.base import Environment, Episode, Reply, StepResult, ToolCall
from r1lit.environments.tools import verdict_of
from r1lit.problems import Problem
from r1lit.text.prompts import Conversation

KEYS = ("name", "description", "parameters")
TYPES = {"dict": "object", "float": "number", "tuple": "array"}
NAMES = count()


def read_lines(name: str) -> list[dict[str, Any]]:
    """Return the lines of a data file of BFCL's; types are those of JSON schemas."""

    def typed(value: dict[str, Any]) -> dict[str, Any]:
        kind = value.get("type")
        return {**value, "type": TYPES[kind]} if isinstance(kind, str) and kind in TYPES else value

    try:
        text = resources.files("bfcl_eval").joinpath("data", name).read_text()
    except ImportError as error:
        raise ValueError(
            f"environments: BFCL needs bfcl-eval ({error}); pip install --no-deps"
            " 'bfcl-eval==2026.3.23' mpmath"
        ) from error
    return [json.loads(line, object_hook=typed) for line in text.splitlines()]


class BFCL(Environment):
    """File systems, cars, trading and others, whose state after each request decides.

    Problems are those of `r1lit.data.BFCLTasks`. A reply without a call ends a request, and the
    next one follows; after the last, BFCL's own checker compares states and results with those of
    the gold calls. Calls run one by one, since BFCL keeps its objects in a module.
    """

    def __init__(self) -> None:
        read_lines("multi_turn_func_doc/math_api.json")  # is the package there?
        from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

        self.functions: dict[str, list[dict[str, Any]]] = {
            name: [
                {"type": "function", "function": {k: line[k] for k in KEYS}}
                for line in read_lines(f"multi_turn_func_doc/{file}")
            ]
            for name, file in MULTI_TURN_FUNC_DOC_FILE_MAPPING.items()
        }

    @property
    def tools(self) -> list[Mapping[str, Any]]:
        """The functions of all backends."""
        return [tool for tools in self.functions.values() for tool in tools]

    def tools_of(self, problem: Problem) -> list[Mapping[str, Any]]:
        """Return the functions of the problem's backends, less those that it leaves out."""
        row = problem.meta["row"]
        tools = [tool for name in row["involved_classes"] for tool in self.functions[name]]
        return [t for t in tools if t["function"]["name"] not in row.get("excluded_function", ())]

    def opening(self, problem: Problem) -> Conversation:
        """Return the user's first request."""
        return Conversation.of(problem.meta["row"]["question"][0])

    def begin(self, problem: Problem, seed: int) -> Episode:
        """Return an episode with backends of its own."""
        return BFCLEpisode(problem, self.tools_of(problem))


class BFCLEpisode(Episode):
    """Requests of a user, one after the other, and the calls that a model makes for each."""

    def __init__(self, problem: Problem, tools: Sequence[Mapping[str, Any]]) -> None:
        self.row, self.gold = problem.meta["row"], problem.meta["ground_truth"]
        self.functions = {tool["function"]["name"]: tool["function"] for tool in tools}
        self.module = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
        self.name = f"r1lit_{next(NAMES)}"
        self.calls: list[list[list[str]]] = [[]]

    def step(self, reply: Reply) -> StepResult:
        """Run the calls; without one, hand over the next request, or the verdict."""
        start = time.perf_counter()
        if reply.calls or reply.error:
            told = [self._run(call) for call in reply.calls] or [f"error: {reply.error}"]
            messages = tuple({"role": "tool", "content": text} for text in told)
            return StepResult(messages=messages, invalid=any(t.startswith("error: ") for t in told))
        if len(self.calls) < len(self.row["question"]):
            self.calls.append([])
            return StepResult(messages=tuple(self.row["question"][len(self.calls) - 1]))
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

        found = multi_turn_checker(self.calls, self.gold, self.row, "", self.name)
        reason = "" if found["valid"] else f"{found['error_type']}: {found['error_message']}"[:200]
        return StepResult(verdict=verdict_of(float(found["valid"]), start, reason))

    def _run(self, call: ToolCall) -> str:
        if call.name not in self.functions:
            return f"error: there is no tool {call.name!r}"
        for key in call.arguments.keys() - self.functions[call.name]["parameters"]["properties"]:
            return f"error: {call.name} has no parameter {key!r}"
        # BFCL evaluates a call as Python; values are of JSON, so their texts are literals
        text = f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})"
        self.calls[-1].append([text])
        config, classes, uid = (self.row[k] for k in ("initial_config", "involved_classes", "id"))
        run = self.module.execute_multi_turn_func_call
        return str(run([text], config, classes, self.name, uid, "long_context" in uid)[0][0])

    def close(self) -> None:
        """Remove the episode's objects from BFCL's module."""
        for key in [k for k in vars(self.module) if k.startswith(f"{self.name}_")]:
            delattr(self.module, key)
