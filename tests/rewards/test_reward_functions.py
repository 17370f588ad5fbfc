from typing import get_args

import pytest

from r1lit.batches import Problem, Response, Status, Verdict
from r1lit.rewards import Accuracy, Format, Overlong
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
