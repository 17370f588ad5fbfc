"""Tools of functions and objects, a Python interpreter, and others' environments of steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from r1lit.environments import PythonTool, Reply, StepEpisodes, ToolCall, ToolObjects, Tools
from r1lit.problems import Problem
from r1lit.text.prompts import KEY, Conversation

PROBLEM = Problem(uid="p", question="What is it?", answer="7", source="s", meta={"secret": 7})


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


def divide(a: float, b: float) -> float:
    """Divide.

    Args:
        a: by this
        b: that
    """
    return a / b


def call(name: str, **arguments) -> Reply:
    return Reply(text="", calls=(ToolCall(name=name, arguments=arguments),))


@pytest.mark.parametrize(
    ("reply", "content", "invalid"),
    [
        (call("add", a=2, b=3), "5", False),
        (call("add", a=2), "3", False),
        (call("ad", a=2), "error: there is no tool 'ad'; did you mean add?", True),
        (call("add", b=2), "error: add: 'a' is a required property", True),
        (call("add", a="2"), "error: add: a: '2' is not of type 'integer'", True),
        (call("add", a=2, c=1), "error: add: Additional properties are not allowed", True),
        (call("divide", a=1, b=0), "error: division by zero", True),
        (Reply(text="", error="a call that is not JSON"), "error: a call that is not JSON", True),
        (call("", **{"": "3"}), "error: there is no tool ''", True),
    ],
)
def test_what_is_called_wrongly_is_a_message(reply, content, invalid):
    step = Tools([add, divide]).begin(PROBLEM, 0).step(reply)
    (message,) = step.messages
    assert message["role"] == "tool" and message["content"].startswith(content)
    assert step.invalid is invalid and step.verdict is None


def test_a_reply_without_a_call_is_the_answer():
    step = Tools([add]).begin(PROBLEM, 0).step(Reply(text="It is 7."))
    assert step.messages == () and step.verdict is None
    both = Reply(text="", calls=tuple(ToolCall(name="add", arguments={"a": n}) for n in (1, 2)))
    assert [m["content"] for m in Tools([add]).begin(PROBLEM, 0).step(both).messages] == ["2", "3"]


def untyped(a):
    """Do."""


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([untyped], "functions: 'untyped' makes no tool"),
        ([add, add], "functions: two are named 'add'"),
        ([], "functions: there is none"),
    ],
)
def test_functions_that_make_no_tools_are_refused_in_one_line(functions, message):
    with pytest.raises(ValueError, match=message) as error:
        Tools(functions)
    assert "\n" not in str(error.value)


class Safe:
    """TRL's environment_factory: holds a number that has to be found."""

    closed = 0

    def reset(self, secret: int, **row) -> str:
        self.secret, self.tries, self.found = secret, 0, False
        return "Guess up to 9."

    def guess(self, number: int) -> str:
        """Try a number.

        Args:
            number: to try.
        """
        self.tries += 1
        self.found = number == self.secret
        return "open" if self.found else "higher" if number < self.secret else "lower"

    def get_reward(self) -> float:
        return float(self.found)

    def close(self) -> None:
        Safe.closed += 1


def test_an_object_an_episode_with_its_methods_as_tools():
    environment = ToolObjects(Safe)
    assert [tool["function"]["name"] for tool in environment.tools] == ["guess"]
    assert environment.opening(PROBLEM) == "What is it?\nGuess up to 9."
    one, other = (environment.begin(PROBLEM, 0) for _ in range(2))
    replies = [one.step(call("guess", number=n)).messages[0]["content"] for n in (3, 8, 7)]
    assert replies == ["higher", "lower", "open"]
    assert one.step(Reply(text="done")).verdict.status == "right"
    assert other.step(Reply(text="done")).verdict.status == "wrong"
    one.close()
    assert Safe.closed == 1


def test_plain_text_is_the_only_argument_of_the_only_tool():
    with_text = Reply(text="", calls=(ToolCall(name="", arguments={"": "print(6 * 7)"}),))
    tool = PythonTool(seconds=5)
    try:
        run = [
            tool.begin(PROBLEM, 0).step(reply).messages[0]["content"]
            for reply in (
                with_text,
                call("python", code="import socket; socket.create_connection(('1.1.1.1', 80))"),
                call("python", code="1 / 0"),
                call("python", code="x = 1"),
            )
        ]
    finally:
        tool.close()
    assert run[0] == "42" and run[1].startswith("error: ") and run[3] == "(nothing printed)"
    assert run[2] == "error: ZeroDivisionError: division by zero"


class Guess:
    """A game with Gymnasium's five values."""

    def __init__(self, most: int = 9) -> None:
        self.most = most

    def reset(self, seed: int | None = None):
        self.number = (seed or 0) % self.most + 1
        return f"1 to {self.most}", {}

    def step(self, action: str):
        right = action.strip() == str(self.number)
        over = right or action == "stop"
        return "no", float(right) if over else 0.25, over, False, {}


class Sky:
    """skyrl-gym's: init, and a mapping."""

    def init(self, prompt):
        self.turns = 0
        return prompt, {}

    def step(self, action: str):
        self.turns += 1
        messages = [{"role": "user", "content": "again"}]
        done = self.turns == 2
        return {"observations": [] if done else messages, "reward": 0.9 * done, "done": done,
                "metadata": {"success": False} if done else {}}  # fmt: skip


def test_steps_of_other_environments():
    environment = StepEpisodes(Guess, {"most": 5})
    seeded = Problem(uid="p", question="Guess.", answer="", source="s", meta={"seed": 2})
    assert environment.opening(seeded) == "Guess.\n1 to 5"
    episode = environment.begin(seeded, 0)
    step = episode.step(Reply(text="1"))
    assert (step.messages[0]["content"], step.reward, step.verdict) == ("no", 0.25, None)
    assert episode.step(Reply(text=" 3")).verdict.status == "right"
    assert environment.begin(seeded, 0).step(Reply(text="stop")).verdict.status == "wrong"
    sky = StepEpisodes(Sky, right_at=0.5).begin(PROBLEM, 0)
    assert sky.step(Reply(text="a")).messages[0]["content"] == "again"
    assert sky.step(Reply(text="b")).verdict.status == "wrong", "success says so, not the reward"


@pytest.mark.parametrize(
    ("environment", "text"),
    [(ToolObjects(Safe), "Guess up to 9."), (StepEpisodes(Guess), "1 to 9")],
)
def test_a_question_of_turns_is_extended_in_its_last(environment, text):
    turns = [{"role": "system", "content": "Play."}, {"role": "user", "content": "What is it?"}]
    meta = {**PROBLEM.meta, KEY: Conversation.of(turns, [{"name": "f"}])}
    opening = environment.opening(replace(PROBLEM, meta=meta))
    assert opening.messages == [turns[0], {"role": "user", "content": f"What is it?\n{text}"}]
    assert opening.tools == [{"name": "f"}]
