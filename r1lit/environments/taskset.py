"""An adapter for task sets of the package verifiers 0.4, whose rewards read a finished trace."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from r1lit.environments.base import Environment, Episode, Reply, StepResult
from r1lit.environments.tools import answer_calls, verdict_of
from r1lit.problems import Problem
from r1lit.text.prompts import Conversation


class Taskset(Environment):
    """Tasks with tools that run in this process, scored by ``Task.score`` at their end.

    Problems are those of `r1lit.data.TasksetTasks`. A task's weighted rewards have to add up to a
    number from 0 to 1; a response is right at 1 alone.
    """

    def tools_of(self, problem: Problem) -> list[Mapping[str, Any]]:
        """Return the tools of the problem's task."""
        return list(self.begin(problem, 0).schemas.values())

    def opening(self, problem: Problem) -> Conversation:
        """Return the task's prompt, after its system prompt."""
        return Conversation.of(self.begin(problem, 0).messages)

    def begin(self, problem: Problem, seed: int) -> TasksetEpisode:
        """Return an episode with tools of its own."""
        return TasksetEpisode(problem.meta["task"])


class TasksetEpisode(Episode):
    """A task: its tools, and the trace that its rewards read."""

    def __init__(self, task: Any) -> None:
        from mcp.server.mcpserver.tools import Tool
        from verifiers.v1.utils.decorators import discover_decorated

        self.task, self.runner, self.ready = task, asyncio.Runner(), set[int]()
        self.functions: dict[str, Any] = {}
        self.schemas: dict[str, Mapping[str, Any]] = {}
        for toolset in type(task).toolsets(task.config):
            for tool in discover_decorated(toolset, "tool"):
                own = getattr(tool, "tool_name", None) or tool.__name__
                name = "_".join(filter(None, (toolset.server_name, own)))
                made = Tool.from_function(tool, name=name)
                self.functions[made.name] = partial(self._call, toolset, tool)
                function = {"name": made.name, "description": made.description.strip()}
                function |= {"parameters": made.parameters}
                self.schemas[made.name] = {"type": "function", "function": function}
        prompt, system = task.data.prompt, task.data.system_prompt
        self.messages = [{"role": "system", "content": system}] * bool(system)
        self.messages += (
            [{"role": "user", "content": prompt}]
            if isinstance(prompt, str)
            else [message.model_dump(exclude_none=True) for message in prompt]
        )

    def step(self, reply: Reply) -> StepResult:
        """Return the results of the calls, or the verdict."""
        start = time.perf_counter()
        calls = [
            {"id": call.id, "name": call.name, "arguments": json.dumps(dict(call.arguments))}
            for call in reply.calls
        ]
        turn = {"role": "assistant", "content": reply.text, "tool_calls": calls or None}
        self.messages.append(turn)
        step = answer_calls(self.functions, self.schemas, reply)
        for index, message in enumerate(step.messages):
            self.messages.append({**message, "tool_call_id": str(index)})
        if step.messages:
            return step
        trace = self._trace("stop" if reply.finished else "length")
        self.runner.run(self.task.score(trace))
        reward = float(trace.reward)
        if not 0 <= round(reward, 9) <= 1:
            raise ValueError(f"task {self.task.data.idx}: rewards add up to {reward}, not 0 to 1")
        return StepResult(verdict=verdict_of(round(reward, 9), start))

    def _call(self, toolset: Any, tool: Any, **arguments: Any) -> Any:
        async def run() -> Any:
            if id(toolset) not in self.ready:
                self.ready.add(id(toolset))
                await toolset.setup()
                await toolset.setup_task(self.task.data)
            result = tool(**arguments)
            return await result if inspect.isawaitable(result) else result

        return self.runner.run(run())

    def _trace(self, finish: str) -> Any:
        """Return the conversation as a trace."""
        from verifiers.v1 import AgentConfig, AgentInfo, Trace
        from verifiers.v1.graph import prepare_turn
        from verifiers.v1.trace import TraceTask
        from verifiers.v1.types import Request, Response

        data = TraceTask(type=type(self.task).__name__, data=self.task.data, key=self.task.key)
        trace = Trace(task=data, agent=AgentInfo(config=AgentConfig()), is_completed=True)
        messages = Request.model_validate({"messages": self.messages}).messages
        for index, message in enumerate(messages):
            if message.role == "assistant":
                fields = {"id": str(index), "created": 0, "model": "policy", "message": message}
                reply = Response.model_validate({**fields, "finish_reason": finish})
                prepare_turn(trace, messages[:index]).commit(reply)
        return trace

    def close(self) -> None:
        """Close the loop that tools and rewards ran in."""
        self.runner.close()
