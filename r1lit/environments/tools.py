"""Tools: plain typed Python functions, objects whose methods are tools, and a Python interpreter.

A function's type hints and Google docstring make its schema, as in TRL's ``tools=`` and
``environment_factory=``. A wrong call by the model gets a message in reply, never an exception.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from r1lit import waiting
from r1lit.environments.base import Environment, Episode, Reply, StepResult, ToolCall
from r1lit.environments.exits import no_exit
from r1lit.errors import hint, import_path
from r1lit.problems import Problem, Verdict
from r1lit.sandbox import Limits, LocalSandbox, Program
from r1lit.text.prompts import Conversation, extended, question_of

MAX_ERROR = 1000
"""Characters of an error that a model reads."""
Functions = Mapping[str, Callable[..., Any]]
Schema = Mapping[str, Any]


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return a function's JSON schema.

    Raises:
        ValueError: naming the function, and what its hints or docstring lack.
    """
    from transformers.utils import get_json_schema

    name = getattr(function, "__name__", repr(function))
    _check_callable_by_name(function, name)
    try:
        schema: dict[str, Any] = get_json_schema(function)
    except Exception as error:  # transformers has classes of its own for each fault
        raise ValueError(
            f"functions: {name!r} makes no tool: {' '.join(str(error).split())}; a tool has type"
            " hints and a Google docstring that describes each argument"
        ) from error
    return schema


def _check_callable_by_name(function: Callable[..., Any], name: str) -> None:
    """Check that JSON arguments can be given to a function, and that it returns its result."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"functions: {name!r} yields its results; return them")
    kinds = inspect.Parameter
    forms = {
        kinds.VAR_POSITIONAL: "*{}", kinds.VAR_KEYWORD: "**{}", kinds.POSITIONAL_ONLY: "{}, /",
    }  # fmt: skip
    try:
        arguments = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # none that Python knows, so no hints either
        return
    for argument in arguments:
        if argument.kind in forms:
            raise ValueError(
                f"functions: {name!r} takes {forms[argument.kind].format(argument.name)}, which no"
                " call can give by name; a tool has named arguments alone"
            )


def answer_calls(functions: Functions, schemas: Mapping[str, Schema], reply: Reply) -> StepResult:
    """Return the results of a reply's calls as messages; without a call the episode is over."""
    if reply.error and not reply.calls:
        return StepResult(messages=(_message("", f"error: {reply.error}"),), invalid=True)
    if not reply.calls:
        return StepResult()
    messages, invalid = [], False
    for call in reply.calls:
        try:
            call = _resolved(call, schemas)
            _check_arguments(call, schemas[call.name])
            content = as_text(awaited(functions[call.name](**call.arguments)))
        except (Exception, SystemExit) as error:  # of the model's call: it reads what was wrong
            content, invalid = f"error: {error_text(error)}", True
        messages.append(_message(call.name, content))
    return StepResult(messages=tuple(messages), invalid=invalid)


def error_text(error: BaseException) -> str:
    """Return an error's message, its type where it has none, in its lines; long ones are cut."""
    text = str(error).strip() or type(error).__name__
    return text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} …[cut]"


def awaited(value: Any) -> Any:
    """Return the result of an environment's ``async`` function; other values as they are."""
    return waiting.awaited(value, "tools", _run)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with no_exit("a tool"):
        loop.run_forever()


def _message(name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "name": name, "content": content}


def _resolved(call: ToolCall, schemas: Mapping[str, Schema]) -> ToolCall:
    """Return a call by name: plain text is the only argument of the only tool."""
    name, arguments = call.name, dict(call.arguments)
    if not name and len(schemas) == 1:
        name = next(iter(schemas))
    if name not in schemas:
        raise ValueError(f"there is no tool {name!r}{hint(name, schemas)}")
    if set(arguments) == {""}:
        names = list(schemas[name]["function"]["parameters"]["properties"])
        if len(names) != 1:
            raise ValueError(f"{name} takes {', '.join(names) or 'nothing'}: call it with JSON")
        arguments = {names[0]: arguments[""]}
    return ToolCall(name=name, arguments=arguments, id=call.id)


def _check_arguments(call: ToolCall, schema: Schema) -> None:
    """Check the arguments of a call against the schema of its tool."""
    from jsonschema import Draft202012Validator

    parameters = _with_null(schema["function"]["parameters"])
    parameters = {**parameters, "additionalProperties": False}
    for fault in Draft202012Validator(parameters).iter_errors(dict(call.arguments)):
        where = ".".join(map(str, fault.absolute_path))
        raise ValueError(f"{call.name}: {where + ': ' if where else ''}{fault.message}")


def _with_null(schema: Any) -> Any:
    """Return a schema in which ``nullable``, as transformers writes it, is JSON schema's null."""
    if isinstance(schema, list):
        return [_with_null(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _with_null(item) for key, item in schema.items()}
    if made.get("nullable") is not True:
        return made
    del made["nullable"]
    if isinstance(made.get("type"), str) and "enum" not in made:
        return {**made, "type": [made["type"], "null"]}
    return {"anyOf": [made, {"type": "null"}]}


def as_text(result: Any) -> str:
    """Return a tool's result as a model reads it: a text as it is, anything else as JSON.

    >>> as_text({"城市": "北京"})
    '{"城市": "北京"}'
    """
    if isinstance(result, str):
        return result
    return json.dumps(result, default=str, ensure_ascii=False)


def imported(key: str, made: Callable[..., Any] | str) -> Callable[..., Any]:
    """Return the object at a dotted path; a parser takes a class's path for an instance's.

    Raises:
        ValueError: naming ``key``, if the path names nothing that can be called.
    """
    if not isinstance(made, str):
        return made
    found: Any = import_path(made, key)
    if not callable(found):
        raise ValueError(f"{key}: {made!r} is neither a class nor a function")
    return found


def need_jsonschema() -> None:
    """Check that arguments can be checked.

    Raises:
        ValueError: saying how to install what is missing.
    """
    try:
        import jsonschema  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "environments: tools need the package jsonschema; pip install 'r1lit[tools]'"
        ) from error


class ToolEpisode(Episode):
    """Calls are answered; a reply without a call is the answer."""

    def __init__(self, functions: Functions, schemas: Mapping[str, Schema]) -> None:
        self.functions = functions
        self.schemas = schemas

    def step(self, reply: Reply) -> StepResult:
        """Return the results of the calls."""
        return answer_calls(self.functions, self.schemas, reply)


class Tools(Environment):
    """Functions that the model may call; the problem's verifier decides about its answer.

    Args:
        functions: with type hints and a Google docstring; dotted paths in YAML.
        in_background: whether they may be called from several threads at once.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], in_background: bool = False
    ) -> None:
        need_jsonschema()
        if not functions:
            raise ValueError("functions: there is none; name at least one function")
        self.in_background = in_background
        schemas = [schema_of(function) for function in functions]
        names = [schema["function"]["name"] for schema in schemas]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"functions: two are named {name!r}; rename one")
        self.functions = dict(zip(names, functions, strict=True))
        self.schemas = dict(zip(names, schemas, strict=True))

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The functions' schemas."""
        return list(self.schemas.values())

    def begin(self, problem: Problem, seed: int) -> ToolEpisode:
        """Return an episode of calls."""
        return ToolEpisode(self.functions, self.schemas)


class ObjectEpisode(ToolEpisode):
    """An object's methods are called; its ``get_reward`` decides at the end, if it has one."""

    def __init__(self, made: Any, schemas: Mapping[str, Schema]) -> None:
        super().__init__({name: getattr(made, name) for name in schemas}, schemas)
        self.made = made

    def step(self, reply: Reply) -> StepResult:
        """Return the results of the calls, or the verdict."""
        start = time.perf_counter()
        step = super().step(reply)
        if step.messages or not hasattr(self.made, "get_reward"):
            return step
        reward = float(awaited(self.made.get_reward()))
        if not 0 <= reward <= 1:
            raise ValueError(f"get_reward() returned {reward}, which is not between 0 and 1")
        return StepResult(verdict=verdict_of(reward, start))

    def close(self) -> None:
        """Close the object, if it can be."""
        awaited(getattr(self.made, "close", lambda: None)())


def verdict_of(value: float, start: float, reason: str = "") -> Verdict:
    """Return the verdict of a score from 0 to 1; right at 1 alone."""
    seconds = time.perf_counter() - start
    status: Any = "right" if value == 1 else "wrong"
    return Verdict(value=value, status=status, canonical=None, reason=reason, seconds=seconds)


class ToolObjects(Environment):
    """A fresh object an episode, whose public methods are tools (TRL's ``environment_factory``).

    ``reset(**row)`` takes the problem's meta, question and answer, as far as it names them, and may
    return a text that is added to the question. ``get_reward()`` returns a number from 0 to 1.

    Args:
        factory: makes an object; a class, as a rule, or its dotted path.
        in_background: whether objects may be used from several threads at once.
    """

    def __init__(self, factory: Callable[[], Any] | str, in_background: bool = False) -> None:
        need_jsonschema()
        self.factory: Callable[[], Any] = imported("factory", factory)
        self.in_background = in_background
        hidden = {"reset", "get_reward", "close"}
        methods = {
            name: method
            for name, method in inspect.getmembers(self.factory(), inspect.ismethod)
            if not name.startswith("_") and name not in hidden
        }
        if not methods:
            raise ValueError(f"factory: {factory!r} makes objects without public methods")
        self.schemas = {name: schema_of(method) for name, method in methods.items()}

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The methods' schemas."""
        return list(self.schemas.values())

    def opening(self, problem: Problem) -> str | Conversation:
        """Return the question, and what ``reset`` adds to it."""
        _, text = self._reset(problem)
        question = question_of(problem)
        return extended(question, str(text)) if text else question

    def begin(self, problem: Problem, seed: int) -> ObjectEpisode:
        """Return an episode with a fresh object."""
        made, _ = self._reset(problem)
        return ObjectEpisode(made, self.schemas)

    def _reset(self, problem: Problem) -> tuple[Any, Any]:
        made = self.factory()
        row = {**problem.meta, "question": problem.question, "answer": problem.answer}
        reset = getattr(made, "reset", None)
        if reset is None:
            return made, None
        named = inspect.signature(reset).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in named.values()):
            row = {key: value for key, value in row.items() if key in named}
        return made, awaited(reset(**row))


class PythonTool(Tools):
    """A Python interpreter in the sandbox: no network, no files of the machine, limits on all.

    Args:
        seconds: of one program.
        memory_mb: of one program.
        max_characters: of what it prints; more is cut.
    """

    def __init__(
        self, seconds: float = 5.0, memory_mb: int = 512, max_characters: int = 2000
    ) -> None:
        sandbox = LocalSandbox()
        limits = Limits(wall_s=seconds, cpu_s=seconds, memory_bytes=memory_mb << 20)
        run = partial(run_python, sandbox, limits, max_characters)

        def python(code: str) -> str:
            """Run a Python program and return what it prints.

            Args:
                code: the program.
            """
            return run(code)

        super().__init__([python])
        self.sandbox = sandbox

    def close(self) -> None:
        """Release the sandbox."""
        self.sandbox.close()


def run_python(sandbox: LocalSandbox, limits: Limits, max_characters: int, code: str) -> str:
    """Return a program's output in a sandbox, and its error without the traceback."""
    outcome = sandbox.run(Program(language="python", files={"main.py": code}), limits=limits)
    text = outcome.stdout.decode(errors="replace")
    if outcome.timed_out or outcome.limit:
        text += f"error: {outcome.limit or 'out of time'}"
    elif not outcome.ok:
        fault = last_error(outcome.stderr.decode(errors="replace"))
        text += f"error: {fault or f'exit code {outcome.exit_code}'}"
    return text[:max_characters].strip() or "(nothing printed)"


def last_error(stderr: str) -> str:
    r"""Return the last error that Python printed, in its lines; the last line of anything else.

    >>> last_error('  File "main.py", line 1, in <module>\n    f()\nValueError: a\nb')
    'ValueError: a\nb'
    """
    lines = stderr.strip("\n").splitlines()
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    if not frames:
        return lines[-1] if lines else ""
    first = frames[-1] + 1
    while first < len(lines) - 1 and lines[first].startswith("    "):
        first += 1  # the source line, and the marks under it
    return "\n".join(lines[first:])
