from collections.abc import Sequence

import pytest
from jsonargparse import ArgumentParser

from r1lit.batches import Problem, Response, Verdict
from r1lit.rewards import Accuracy, Format, Overlong, RewardFunction, score

PROBLEM = Problem(uid="c", question="", answer="7", source="test")


def response(text: str, right: bool) -> Response:
    verdict = Verdict(
        value=float(right), status="right" if right else "wrong", canonical=None, reason=""
    )
    return Response(text=text, problem=PROBLEM, verdict=verdict, num_tokens=90, finished=True)


ROWS = [
    response("<think> x </think> <answer> 7 </answer>", True),
    response("<think> x </think> <answer> 8 </answer>", False),
    response("<answer> 7 </answer>", True),
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
    rewards, total = score(functions, ROWS)
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
    rewards, total = score([Fixed("n", [1, 2, True])], ROWS)
    assert rewards == {"n": [1.0, 2.0, 1.0]} and total == [1.0, 2.0, 1.0]
    assert all(type(value) is float for value in rewards["n"] + total)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([], "at least one reward function"),
        ([Accuracy(), Fixed("n", None)], "'n' returned None"),
        ([Fixed("n", [1.0, 2.0])], "'n' returned 2 rewards for 3 responses"),
        ([Fixed("n", [0.0, float("nan"), 0.0])], "'n' returned nan at row 1"),
        ([Fixed("n", [0.0, 1.0, float("-inf")])], "'n' returned -inf at row 2"),
        ([Fixed("n", [None, 1.0, 1.0])], "'n' returned None at row 0"),
        ([Fixed("n", [1.0, "1", 1.0])], "'n' returned '1' at row 1"),
        ([Accuracy(), Accuracy(weight=0.5)], "two reward functions are named 'accuracy'"),
        (
            [Fixed("n", [1.0] * 3, weight=float("nan"))],
            "weight: that of reward function 'n' is nan",
        ),
    ],
)
def test_mistakes_name_the_reward_function(functions: list[RewardFunction], message: str):
    with pytest.raises(ValueError, match=message):
        score(functions, ROWS)


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
    assert score(rewards, ROWS)[1] == pytest.approx([0.85, -0.15, 0.75])


def test_an_unknown_key_is_an_error(tmp_path):
    path = tmp_path / "rewards.yaml"
    path.write_text(YAML.replace("weight: 0.1", "wieght: 0.1"))
    with pytest.raises(Exception, match="wieght"):
        parser().parse_args(["-c", str(path)])
