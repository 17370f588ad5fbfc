"""Rewards that are plain callables, in code, in YAML and through the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import yaml
from jsonargparse import ArgumentParser

from r1lit.batches import Problem, Response, Verdict
from r1lit.rewards import Accuracy, PlainReward, Reward, RewardFunction, as_reward, score

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


@pytest.mark.parametrize(
    ("spec", "message"),
    [
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
        ([1.0, None], "'given' returned None at row 1, not a finite number"),
        ([math.nan, 1.0], "'given' returned nan at row 0"),
        ([1.0, math.inf], "'given' returned inf at row 1"),
        ([1.0, 10**400], "'given' returned 1000.*… at row 1"),
        ([1.0, 10**5000], "'given' returned an int too long to print at row 1"),
        ([1.0, 1j], "'given' returned 1j at row 1"),
        ([1.0, [1.0]], r"'given' returned \[1.0\] at row 1"),
        (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "'given' returned tensor.* at row 0"),
        (torch.tensor([1.0, math.nan]), r"'given' returned tensor\(nan\) at row 1"),
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
