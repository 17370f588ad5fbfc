"""Only: a reward for some kinds of problems, from some iteration on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from jsonargparse import ArgumentParser

from r1lit.batches import Problem, Response, Verdict
from r1lit.rewards import ConditionalReward, Reward, RewardFunction, score


class Length(RewardFunction):
    """The number of characters, and what it was asked about."""

    name = "length"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(weight)
        self.asked: list[list[str]] = []

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        self.asked.append([r.text for r in responses])
        return [float(len(r.text)) for r in responses]


def response(text: str, **meta: str) -> Response:
    return Response(
        text=text,
        problem=Problem(uid="p", question="?", answer="", source="s", meta=meta),
        verdict=Verdict(value=0.0, status="unparsed", canonical=None, reason=""),
        num_tokens=1,
        finished=True,
    )


ROWS = [response("a", kind="reasoning"), response("bb", kind="general"),
        response("ccc", kind="harmful"), response("dddd", kind="general")]  # fmt: skip


def test_it_sees_its_own_kinds_and_pays_nothing_for_others():
    inner = Length(weight=0.5)
    only = ConditionalReward(inner, kinds=["general"])
    by_name, total = score([only], ROWS)
    assert by_name == {"length": [0.0, 2.0, 0.0, 4.0]}
    assert total == [0.0, 1.0, 0.0, 2.0]
    assert inner.asked == [["bb", "dddd"]]


def test_it_is_not_called_without_a_response_of_its_kinds():
    inner = Length()
    assert ConditionalReward(inner, kinds=["harmful"])(ROWS[:2]) == [0.0, 0.0]
    assert inner.asked == []


def test_before_its_iteration_it_is_zero_and_not_computed():
    inner = Length()
    rewards = [ConditionalReward(inner, kinds=["general", "harmful"], from_iteration=3)]
    for iteration in (0, 2):
        assert score(rewards, ROWS, iteration) == ({"length": [0.0] * 4}, [0.0] * 4)
    assert inner.asked == []
    assert score(rewards, ROWS, 3)[1] == [0.0, 2.0, 3.0, 4.0]
    assert score(rewards, ROWS)[1] == [0.0, 2.0, 3.0, 4.0]  # as in evaluation


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

    assert ConditionalReward(shout, kinds=["general"])(ROWS) == [0.0, 1.0, 0.0, 1.0]


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="kinds: an empty list"):
        ConditionalReward(Length(), kinds=[])
    with pytest.raises(ValueError, match="from_iteration: -1"):
        ConditionalReward(Length(), from_iteration=-1)
    with pytest.raises(ValueError, match="problem 'p' of source 's' has no kind"):
        ConditionalReward(Length(), kinds=["general"])([response("x")])
    with pytest.raises(ValueError, match="'short' returned"):
        ConditionalReward(short, kinds=["general"])(ROWS)
    with pytest.raises(ValueError, match="not a finite number"):
        score([ConditionalReward(broken, kinds=["general"])], ROWS)


def short(responses):
    return [1.0]


def broken(responses):
    return [float("nan") for _ in responses]
