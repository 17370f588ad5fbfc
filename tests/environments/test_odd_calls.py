"""Calls that are odd JSON, tools of odd kinds, and what a model reads of their errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Literal

import pytest

from r1lit.environments import (
    ChatTurns,
    InlineTurns,
    PythonTool,
    Reply,
    StepEpisodes,
    ToolCall,
    ToolObjects,
    Tools,
)
from r1lit.environments.tools import MAX_ERROR
from r1lit.problems import Problem

PROBLEM = Problem(uid="p", question="What is it?", answer="7", source="s", meta={})


def answer(environment, name: str, **arguments) -> tuple[str, bool]:
    """What a call is answered with, and whether it counts as invalid."""
    reply = Reply(text="", calls=(ToolCall(name=name, arguments=arguments),))
    step = environment.begin(PROBLEM, 0).step(reply)
    return step.messages[0]["content"], step.invalid


LOOPS = set()


async def later(a: int) -> int:
    """Add one, a little later.

    Args:
        a: a number.
    """
    await asyncio.sleep(0.01)
    LOOPS.add((asyncio.get_running_loop(), threading.current_thread().name))
    return a + 1


async def leaves(a: int) -> int:
    """Exit.

    Args:
        a: a number.
    """
    raise SystemExit(a)


def exits(a: int) -> int:
    """Exit.

    Args:
        a: a number.
    """
    raise SystemExit(a)


def test_async_tools_are_awaited_all_in_one_loop():
    tools = Tools([later, leaves, exits])
    assert [answer(tools, "later", a=a) for a in (1, 2)] == [("2", False), ("3", False)]
    assert answer(tools, "leaves", a=3) == ("error: SystemExit: 3", True)
    assert answer(tools, "exits", a=3) == ("error: 3", True)
    assert answer(tools, "later", a=3) == ("4", False), "the loop still runs"
    assert len(LOOPS) == 1

    async def within() -> tuple[str, bool]:  # as in a notebook
        return answer(tools, "later", a=4)

    assert asyncio.run(within()) == ("5", False)


class Later:
    """An object and a game whose methods are all async."""

    async def reset(self, seed: int = 0, question: str = "") -> tuple[str, dict]:
        return f"Go{seed}.", {}

    async def move(self, to: str) -> str:
        """Move.

        Args:
            to: where.
        """
        return f"at {to}"

    async def get_reward(self) -> float:
        return 1.0

    async def close(self) -> None:
        self.closed = True


class LaterGame:
    """Steps of a game, awaited."""

    closed = 0

    async def reset(self, seed: int = 0):
        return f"Go{seed}.", {}

    async def step(self, action: str):
        return "no", 1.0, action == "stop", False, {}

    async def close(self) -> None:
        LaterGame.closed += 1


def test_async_objects_and_games_are_awaited():
    objects = ToolObjects(Later)
    assert "Go0." in objects.opening(PROBLEM)
    episode = objects.begin(PROBLEM, 0)
    assert answer(objects, "move", to="b") == ("at b", False)
    assert episode.step(Reply(text="done")).verdict.status == "right"
    episode.close()
    assert episode.made.closed
    game = StepEpisodes(LaterGame)
    assert game.opening(PROBLEM) == "What is it?\nGo0."
    assert LaterGame.closed == 1
    playing = game.begin(PROBLEM, 0)
    assert playing.step(Reply(text="go")).messages[0]["content"] == "no"
    assert playing.step(Reply(text="stop")).verdict.status == "right"


def many(*numbers: int) -> int:
    """Add.

    Args:
        numbers: all.
    """
    return sum(numbers)


def named(**numbers: int) -> int:
    """Add.

    Args:
        numbers: all.
    """
    return sum(numbers.values())


def placed(a: int, /) -> int:
    """Add.

    Args:
        a: one.
    """
    return a


def yields(a: int) -> Iterator[int]:
    """Count.

    Args:
        a: to this.
    """
    yield from range(a)


class Holds:
    """Has a method that is no tool."""

    def many(self, *numbers: int) -> int:
        """Add.

        Args:
            numbers: all.
        """
        return sum(numbers)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Tools([many]), r"'many' takes \*numbers, which no call can give"),
        (lambda: Tools([named]), r"'named' takes \*\*numbers, which no call can give"),
        (lambda: Tools([placed]), r"'placed' takes a, /, which no call can give by name"),
        (lambda: Tools([yields]), r"'yields' yields its results; return them"),
        (lambda: ToolObjects(Holds), r"'many' takes \*numbers, which no call"),
    ],
)
def test_tools_that_no_call_can_reach_are_refused(make, words):
    with pytest.raises(ValueError, match=f"^functions: {words}") as error:
        make()
    assert "\n" not in str(error.value)


def optional(
    a: int | None = None,
    kind: Literal["x", "y"] | None = None,
    rows: list[int | None] | None = None,
    n: int = 1,
) -> str:
    """Show.

    Args:
        a: a number.
        kind: a kind.
        rows: some.
        n: a count.
    """
    return repr((a, kind, rows, n))


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        ({}, "(None, None, None, 1)"),
        ({"a": None}, "(None, None, None, 1)"),
        ({"kind": None, "rows": None}, "(None, None, None, 1)"),
        ({"kind": "x", "rows": [1, None]}, "(None, 'x', [1, None], 1)"),
        ({"a": 3, "n": 2}, "(3, None, None, 2)"),
        ({"n": None}, "error: optional: n: None is not of type 'integer'"),
        ({"a": "3"}, "error: optional: a: '3' is not of type 'integer', 'null'"),
        ({"kind": "z"}, "error: optional: kind: 'z' is not valid under any of the given schemas"),
    ],
)
def test_null_is_an_optional_argument_as_its_schema_says(arguments, content):
    assert answer(Tools([optional]), "optional", **arguments) == (content, content[0] == "e")


def weather(city: str) -> dict[str, str]:
    """Tell the weather.

    Args:
        city: its name.
    """
    return {city: "晴"}


def test_a_result_that_is_no_text_is_read_in_its_own_characters():
    assert answer(Tools([weather]), "weather", city="北京") == ('{"北京": "晴"}', False)


@pytest.mark.parametrize("turns", [ChatTurns(), InlineTurns()], ids=["chat", "inline"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("NaN", "a call that is not JSON: NaN is no number there"),
        ("-Infinity", "a call that is not JSON: -Infinity is no number there"),
        ("[1, [2e999]]", "a call that is not JSON: 2e999 is no number there"),
        ('"\\ud800"', "a call with half of a surrogate pair"),
        ('{"\\udc00": 1}', "a call with half of a surrogate pair"),
        ("[" * 100_000, "a call that is not JSON"),
        ('"\\ud83d\\ude00"', ""),
        ("1e300", ""),
    ],
)
def test_numbers_and_texts_that_json_has_not_are_refused(turns, value, error):
    call = f'{{"name": "f", "arguments": {{"x": {value}}}}}'
    reply = turns.read(f"{turns.call_open}{call}{turns.call_close}")
    assert reply.error == error
    assert len(reply.calls) == (not error)


def lines(a: int) -> str:
    """Fail.

    Args:
        a: how often.
    """
    raise ValueError("\n".join(["expected:", "    1", *["  got:  2"] * a]))


def silent(a: int) -> str:
    """Fail.

    Args:
        a: how.
    """
    raise KeyError if a else AssertionError


def test_an_error_of_several_lines_keeps_them():
    tools = Tools([lines, silent])
    assert answer(tools, "lines", a=1) == ("error: expected:\n    1\n  got:  2", True)
    text, _ = answer(tools, "lines", a=1000)
    assert text.startswith("error: expected:\n    1\n") and text.endswith(" …[cut]")
    assert len(text) < MAX_ERROR + 20
    assert answer(tools, "silent", a=1)[0] == "error: KeyError"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise ValueError('a\\n  b\\nc')", "error: ValueError: a\n  b\nc"),
        ("def f():\n    1 / 0\nf()", "error: ZeroDivisionError: division by zero"),
        ("try:\n    1 / 0\nexcept Exception:\n    {}['x']", "error: KeyError: 'x'"),
        ("x = (", "error: SyntaxError: '(' was never closed"),
        ("import sys; sys.exit('so\\nit is')", "error: it is"),
        ("raise SystemExit(3)", "error: exit code 3"),
    ],
)
def test_an_error_of_a_program_keeps_its_lines(code, text):
    tool = PythonTool(seconds=10)
    try:
        assert answer(tool, "python", code=code) == (text, False)
    finally:
        tool.close()
