"""Reward functions: plain callables, conditions, and the weighted sum."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar, get_args

import pytest
import torch
import yaml
from jsonargparse import ArgumentParser

import r1lit.rewards.total
from r1lit.batches import Problem, Response, Status, Verdict
from r1lit.rewards import (
    Accuracy,
    ConditionalReward,
    Format,
    Overlong,
    PlainReward,
    Reward,
    RewardFunction,
    as_reward,
    score,
)
from r1lit.verifiers import CountdownVerifier

PROBLEM = Problem(
    uid="c", question="", answer="", source="test", meta={"numbers": [3, 4], "target": 7}
)


def response(text: str = "", num_tokens: int = 10, finished: bool = True) -> Response:
    verdict = CountdownVerifier().verify(text, PROBLEM)
    return Response(
        text=text, problem=PROBLEM, verdict=verdict, num_tokens=num_tokens, finished=finished
    )


def test_accuracy_is_the_verdict():
    texts = ["<answer>3 + 4</answer>", "<answer>3 * 4</answer>", "7"]
    assert Accuracy()([response(text) for text in texts]) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("status", get_args(Status))
def test_only_a_right_answer_is_accurate(status: Status):
    verdict = Verdict(value=float(status == "right"), status=status, canonical=None, reason="")
    row = Response(text="", problem=PROBLEM, verdict=verdict, num_tokens=1, finished=True)
    assert Accuracy()([row]) == [float(status == "right")]


GOOD = "<think> 3 + 4 = 7 </think> <answer> 3 + 4 </answer>"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n {GOOD}\t\n",
        GOOD.replace(" ", ""),
        "<think>\n3 < 4 > 2\n\n</think>\n\n<answer>\n7\n</answer>",
        "<think></think><answer>7</answer>",
    ],
)
def test_it_has_the_format(text: str):
    assert Format()([response(text)]) == [1.0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "<answer> 7 </answer>",
        "<think> 7 </think>",
        "<think> 7 </think> <answer> </answer>",
        "<think> 7 </think> <answer>\u200b\n</answer>",
        "3 + 4 = 7 </think> <answer> 7 </answer>",
        "<answer> 7 </answer> <think> 3 + 4 </think>",
        "<think> <answer> 7 </answer> </think>",
        "<think> 3 <answer> 7 </think> </answer>",
        "<Think> 3 + 4 </Think> <Answer> 7 </Answer>",
        GOOD.removesuffix("</answer>"),
        GOOD.removesuffix(">"),
        GOOD.removeprefix("<think>"),
        f"So: {GOOD}",
        f"{GOOD} Done.",
        f"{GOOD} {GOOD}",
        f"{GOOD} <answer> 7 </answer>",
        GOOD.replace("</think> <answer>", "</think> so <answer>"),
        GOOD.replace("<think>", "<think> <think>"),
        GOOD.replace("<answer>", "<answer> </think>"),
        "\u200b" + GOOD,
        GOOD.replace("<answer>", "<ans\u200bwer>"),
        "<think>" * 100_000,
    ],
)
def test_it_lacks_the_format(text: str):
    assert Format()([response(text)]) == [0.0]


def test_a_wrong_answer_may_have_the_format():
    row = response(GOOD.replace("<answer> 3 + 4", "<answer> no idea"))
    assert (Format()([row]), Accuracy()([row])) == ([1.0], [0.0])


def test_overlong_is_equation_13_of_dapo():
    lengths = [1, 80, 81, 90, 99, 100, 101, 1000]
    rewards = Overlong(max_tokens=100, buffer_tokens=20)([response(num_tokens=n) for n in lengths])
    assert rewards == pytest.approx([0, 0, -0.05, -0.5, -0.95, -1, -1, -1])


def test_overlong_punishes_the_unfinished_at_any_length():
    rows = [response(num_tokens=n, finished=False) for n in (1, 90, 100)]
    assert Overlong(max_tokens=100, buffer_tokens=20)(rows) == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize("buffer_tokens", [-1, 0, 100, 101])
def test_overlong_checks_its_buffer(buffer_tokens: int):
    with pytest.raises(ValueError, match=f"buffer_tokens: {buffer_tokens} is not between 1 and"):
        Overlong(max_tokens=100, buffer_tokens=buffer_tokens)


WRONG = Verdict(value=0.0, status="wrong", canonical=None, reason="")
ROWS = [
    Response(
        text=text,
        problem=Problem(uid="", question="", answer="7", source="test"),
        verdict=WRONG,
        num_tokens=len(text),
        finished=True,
    )
    for text in ("seven", "it is seven")
]


def brevity(responses: Sequence[Response], limit: int = 5) -> list[float]:
    return [float(response.num_tokens <= limit) for response in responses]


class Counted:
    """A plain class whose instances are called."""

    def __init__(self, letter: str = "i") -> None:
        self.letter = letter

    def __call__(self, responses: Sequence[Response]) -> list[int]:
        return [response.text.count(self.letter) for response in responses]


class VeryShort(RewardFunction):
    """Sets neither name nor weight, and does not call its base."""

    def __init__(self) -> None:
        pass

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return [0.5] * len(responses)


def parse(*rewards: Any) -> tuple[list[RewardFunction], str]:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--rewards", type=list[Reward])
    config = parser.parse_string(yaml.safe_dump({"rewards": list(rewards)}))
    return parser.instantiate(config).rewards, parser.dump(config)


def test_plain_callables_stand_beside_reward_functions():
    rewards, total = score([Accuracy(), brevity, Counted("e"), VeryShort()], ROWS)
    assert rewards == {
        "accuracy": [0.0, 0.0],
        "brevity": [1.0, 0.0],
        "Counted": [2.0, 2.0],
        "very_short": [0.5, 0.5],
    }
    assert total == [3.5, 2.5]


def test_a_function_is_named_by_class_path():
    spec = {"class_path": f"{__name__}.brevity", "init_args": {"weight": 0.5, "limit": 20}}
    rewards, dump = parse(spec, {"class_path": "r1lit.rewards.Format", "init_args": {"weight": 2}})
    assert score(rewards, ROWS) == ({"brevity": [1.0, 1.0], "format": [0.0, 0.0]}, [0.5, 0.5])
    again, _ = parse(*yaml.safe_load(dump)["rewards"])
    assert score(again, ROWS) == score(rewards, ROWS)


def test_class_path_alone_a_class_and_a_name():
    rewards, _ = parse(
        {"class_path": f"{__name__}.brevity"},
        {"class_path": f"{__name__}.Counted", "init_args": {"letter": "s", "name": "num_s"}},
        {"class_path": f"{__name__}.VeryShort"},
    )
    assert score(rewards, ROWS)[0] == {
        "brevity": [1.0, 0.0],
        "num_s": [1.0, 2.0],
        "very_short": [0.5, 0.5],
    }


class AsyncLengths:
    """Asks for all responses at once; the connections of a client belong to one loop."""

    loops: ClassVar[set[int]] = set()

    async def __call__(self, responses: Sequence[Response]) -> list[float]:
        self.loops.add(id(asyncio.get_running_loop()))
        return list(await asyncio.gather(*[self.length(r) for r in responses]))

    async def length(self, response: Response) -> float:
        await asyncio.sleep(0)
        return float(response.num_tokens)


def test_an_async_reward_is_awaited_also_beside_a_notebook_s_loop():
    plain = [float(row.num_tokens) for row in ROWS]

    async def cell() -> dict[str, list[float]]:
        return score([AsyncLengths()], ROWS)[0]

    assert score([AsyncLengths()], ROWS)[0] == asyncio.run(cell()) == {"AsyncLengths": plain}
    assert len(AsyncLengths.loops) == 1


def slow(responses: Sequence[Response]) -> list[float]:
    time.sleep(0.2)
    return [0.0 for _ in responses]


def test_a_slow_reward_is_named_while_the_run_waits(monkeypatch, recwarn):
    monkeypatch.setattr(r1lit.rewards.total, "SLOW_S", 0.01)
    score([slow], ROWS)
    told = [str(warning.message) for warning in recwarn]
    assert told == [
        "reward function 'slow' has not returned after 0.01 s, and the run waits for it"
    ]


async def crashing(responses: Sequence[Response]) -> list[float]:
    raise KeyError("gold")


def test_a_crash_of_an_async_reward_is_named():
    with pytest.raises(ValueError, match=r"'crashing' crashed with KeyError: 'gold' .*py, line"):
        score([crashing], ROWS)


def of_columns(completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    return [0.0 for _ in completions]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"class_path": f"{__name__}.of_columns"}, "'answer'; .* responses, .* problem.answer"),
        ({"class_path": f"{__name__}.nothing"}, "nothing' cannot be imported"),
        ({"class_path": "no_such_module.brevity"}, "cannot be imported: No module"),
        ({"class_path": f"{__name__}.WRONG"}, "neither a function nor a class of callables"),
        ({"class_path": "r1lit.batches.Problem"}, "neither a function nor a class of callables"),
        ({"class_path": f"{__name__}.brevity", "init_args": {"limits": 1}}, "'limits'"),
        ({"class_path": f"{__name__}.Counted", "init_args": {"lettre": "s"}}, "'lettre'"),
        ({"class_path": f"{__name__}.brevity", "init_args": {"weight": "x"}}, "weight: .* 'x'"),
        ({"class_path": "r1lit.rewards.Format", "init_args": {"wieght": 1}}, "wieght"),
    ],
)
def test_mistakes_in_yaml_are_named(spec: dict[str, Any], message: str):
    with pytest.raises(Exception, match=message):
        parse(spec)


def test_what_cannot_be_called_is_named():
    with pytest.raises(ValueError, match="rewards: 7 cannot be called"):
        as_reward(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "'given' returned None, not a list"),
        (0.5, "'given' returned 0.5, not a list"),
        ("01", "'given' returned '01', not a list"),
        ({0: 1.0, 1: 1.0}, "'given' returned .*, not a list"),
        ((x for x in (1.0, 1.0)), "'given' returned <generator .*, not a list"),
        ([1.0], "'given' returned 1 rewards for 2 responses"),
        ([1.0, None], "'given' returned None for response 2 of 2, not a finite number"),
        ([math.nan, 1.0], "'given' returned nan for response 1 of"),
        ([1.0, math.inf], "'given' returned inf for response 2 of"),
        ([1.0, 10**400], "'given' returned 1000.*… for response 2 of"),
        ([1.0, 10**5000], "'given' returned an int too long to print for response 2 of"),
        ([1.0, 1j], "'given' returned 1j for response 2 of"),
        ([1.0, [1.0]], r"'given' returned \[1.0\] for response 2 of"),
        (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "'given' returned tensor.* for response 1 of"),
        (torch.tensor([1.0, math.nan]), r"'given' returned tensor\(nan\) for response 2 of"),
    ],
)
def test_a_bad_result_names_the_reward_the_row_and_what_came(values: Any, message: str):
    with pytest.raises(ValueError, match=message):
        score([PlainReward(lambda responses: values, name="given")], ROWS)


@pytest.mark.parametrize("values", [(1, 0), torch.tensor([1.0, 0.0]), [True, False]])
def test_whatever_holds_finite_numbers_will_do(values: Any):
    rewards, total = score([PlainReward(lambda responses: values, name="given")], ROWS)
    assert rewards == {"given": [1.0, 0.0]} and total == [1.0, 0.0]
    assert all(type(value) is float for value in total)


class Length(RewardFunction):
    """The number of characters, and what it was asked about."""

    name = "length"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(weight)
        self.asked: list[list[str]] = []

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        self.asked.append([r.text for r in responses])
        return [float(len(r.text)) for r in responses]


def conditional_response(text: str, **meta: str) -> Response:
    return Response(
        text=text,
        problem=Problem(uid="p", question="?", answer="", source="s", meta=meta),
        verdict=Verdict(value=0.0, status="unparsed", canonical=None, reason=""),
        num_tokens=1,
        finished=True,
    )


CONDITIONAL_ROWS = [
    conditional_response("a", kind="reasoning"),
    conditional_response("bb", kind="general"),
    conditional_response("ccc", kind="harmful"),
    conditional_response("dddd", kind="general"),
]


def test_it_sees_its_own_kinds_and_pays_nothing_for_others():
    inner = Length(weight=0.5)
    only = ConditionalReward(inner, kinds=["general"])
    by_name, total = score([only], CONDITIONAL_ROWS)
    assert by_name == {"length": [0.0, 2.0, 0.0, 4.0]}
    assert total == [0.0, 1.0, 0.0, 2.0]
    assert inner.asked == [["bb", "dddd"]]


def test_it_is_not_called_without_a_response_of_its_kinds():
    inner = Length()
    assert ConditionalReward(inner, kinds=["harmful"])(CONDITIONAL_ROWS[:2]) == [0.0, 0.0]
    assert inner.asked == []


def test_before_its_iteration_it_is_zero_and_not_computed():
    inner = Length()
    rewards = [ConditionalReward(inner, kinds=["general", "harmful"], from_iteration=3)]
    for iteration in (0, 2):
        assert score(rewards, CONDITIONAL_ROWS, iteration) == ({"length": [0.0] * 4}, [0.0] * 4)
    assert inner.asked == []
    assert score(rewards, CONDITIONAL_ROWS, 3)[1] == [0.0, 2.0, 3.0, 4.0]
    assert score(rewards, CONDITIONAL_ROWS)[1] == [0.0, 2.0, 3.0, 4.0]  # as in evaluation


def test_two_wrappers_wait_for_the_later():
    assert (
        ConditionalReward(
            ConditionalReward(Length(), from_iteration=5), from_iteration=2
        ).from_iteration
        == 5
    )


def test_a_plain_callable_can_be_wrapped_and_yaml_reads_it():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--rewards", type=list[Reward])
    accuracy = {"class_path": "r1lit.rewards.Accuracy", "init_args": {"weight": 2.0}}
    spec = {
        "class_path": "r1lit.rewards.ConditionalReward",
        "init_args": {"reward": accuracy, "kinds": ["reasoning"], "from_iteration": 4},
    }
    (only,) = parser.instantiate(parser.parse_object({"rewards": [spec]})).rewards
    assert (only.name, only.weight, only.from_iteration) == ("accuracy", 2.0, 4)

    def shout(responses):
        return [1.0 for _ in responses]

    assert ConditionalReward(shout, kinds=["general"])(CONDITIONAL_ROWS) == [0.0, 1.0, 0.0, 1.0]


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="kinds: an empty list"):
        ConditionalReward(Length(), kinds=[])
    with pytest.raises(ValueError, match="from_iteration: -1"):
        ConditionalReward(Length(), from_iteration=-1)
    with pytest.raises(ValueError, match="problem 'p' of source 's' has no kind"):
        ConditionalReward(Length(), kinds=["general"])([conditional_response("x")])
    with pytest.raises(ValueError, match="'short' returned"):
        ConditionalReward(short, kinds=["general"])(CONDITIONAL_ROWS)
    with pytest.raises(ValueError, match="not a finite number"):
        score([ConditionalReward(broken, kinds=["general"])], CONDITIONAL_ROWS)


def short(responses):
    return [1.0]


def broken(responses):
    return [float("nan") for _ in responses]


COMBINED_PROBLEM = Problem(uid="c", question="", answer="7", source="test")


def combined_response(text: str, right: bool) -> Response:
    verdict = Verdict(
        value=float(right), status="right" if right else "wrong", canonical=None, reason=""
    )
    return Response(
        text=text, problem=COMBINED_PROBLEM, verdict=verdict, num_tokens=90, finished=True
    )


COMBINED_ROWS = [
    combined_response("<think> x </think> <answer> 7 </answer>", True),
    combined_response("<think> x </think> <answer> 8 </answer>", False),
    combined_response("<answer> 7 </answer>", True),
]


class Fixed(RewardFunction):
    """Returns what it was told to."""

    def __init__(self, name: str, values: object, weight: float = 1.0) -> None:
        super().__init__(weight)
        self.name = name
        self.values = values

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return self.values  # type: ignore[return-value]


def test_rewards_by_name_are_unweighted_and_the_total_is_weighted():
    functions = [Accuracy(), Format(weight=0.1), Overlong(100, 20, weight=0.5)]
    rewards, total = score(functions, COMBINED_ROWS)
    assert rewards == {
        "accuracy": [1.0, 0.0, 1.0],
        "format": [1.0, 1.0, 0.0],
        "overlong": [-0.5, -0.5, -0.5],
    }
    assert list(rewards) == ["accuracy", "format", "overlong"]
    assert total == pytest.approx([0.85, -0.15, 0.75])


def test_no_responses():
    assert score([Accuracy()], []) == ({"accuracy": []}, [])


def test_whole_numbers_become_floats():
    rewards, total = score([Fixed("n", [1, 2, True])], COMBINED_ROWS)
    assert rewards == {"n": [1.0, 2.0, 1.0]} and total == [1.0, 2.0, 1.0]
    assert all(type(value) is float for value in rewards["n"] + total)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([], "at least one reward function"),
        ([Accuracy(), Fixed("n", None)], "'n' returned None"),
        ([Fixed("n", [1.0, 2.0])], "'n' returned 2 rewards for 3 responses"),
        ([Fixed("n", [0.0, float("nan"), 0.0])], "'n' returned nan for response 2 of"),
        ([Fixed("n", [0.0, 1.0, float("-inf")])], "'n' returned -inf for response 3 of"),
        ([Fixed("n", [None, 1.0, 1.0])], "'n' returned None for response 1 of"),
        ([Fixed("n", [1.0, "1", 1.0])], "'n' returned '1' for response 2 of"),
        ([Accuracy(), Accuracy(weight=0.5)], "two reward functions are named 'accuracy'"),
        (
            [Fixed("n", [1.0] * 3, weight=float("nan"))],
            "weight: that of reward function 'n' is nan",
        ),
    ],
)
def test_mistakes_name_the_reward_function(functions: list[RewardFunction], message: str):
    with pytest.raises(ValueError, match=message):
        score(functions, COMBINED_ROWS)


YAML = """
rewards:
- class_path: r1lit.rewards.Accuracy
  init_args: {weight: 1.0}
- class_path: r1lit.rewards.Format
  init_args: {weight: 0.1}
- class_path: r1lit.rewards.Overlong
  init_args: {max_tokens: 100, buffer_tokens: 20, weight: 0.5}
"""


def parser() -> ArgumentParser:
    made = ArgumentParser(exit_on_error=False)
    made.add_argument("--rewards", type=list[RewardFunction])
    made.add_argument("-c", action="config")
    return made


def test_reward_functions_are_chosen_in_yaml(tmp_path):
    path = tmp_path / "rewards.yaml"
    path.write_text(YAML)
    rewards = parser().instantiate_classes(parser().parse_args(["-c", str(path)])).rewards
    assert [type(r) for r in rewards] == [Accuracy, Format, Overlong]
    assert [r.weight for r in rewards] == [1.0, 0.1, 0.5]
    assert score(rewards, COMBINED_ROWS)[1] == pytest.approx([0.85, -0.15, 0.75])


def test_an_unknown_key_is_an_error(tmp_path):
    path = tmp_path / "rewards.yaml"
    path.write_text(YAML.replace("weight: 0.1", "wieght: 0.1"))
    with pytest.raises(Exception, match="wieght"):
        parser().parse_args(["-c", str(path)])
