import pytest

from r1lit.batches import Problem, Response, Status, Verdict
from r1lit.rewards import CosineLength, GroupLength, Repetition


def response(
    num_tokens: int = 9,
    right: bool = True,
    finished: bool = True,
    uid: str = "a",
    text: str = "",
    status: Status | None = None,
) -> Response:
    status = status or ("right" if right else "wrong")
    return Response(
        text=text,
        problem=Problem(uid=uid, question="", answer="7", source="test"),
        verdict=Verdict(value=float(right), status=status, canonical=None, reason=""),
        num_tokens=num_tokens,
        finished=finished,
    )


def test_cosine_of_right_and_wrong_responses():
    """cos(pi/3) = 1/2, so a third of the way a right one has 0.5 + 0.5 * 3/4."""
    reward = CosineLength(max_tokens=90)
    lengths = [0, 30, 45, 60, 90]
    right = reward([response(n) for n in lengths])
    wrong = reward([response(n, right=False) for n in lengths])
    assert right == pytest.approx([1.0, 0.875, 0.75, 0.625, 0.5])
    assert wrong == pytest.approx([-1.0, -0.875, -0.75, -0.625, -0.5])


def test_cosine_beyond_the_limit():
    reward = CosineLength(max_tokens=90, exceeded=-3.0)
    rows = [response(91), response(10, finished=False), response(90, right=False, finished=False)]
    assert reward(rows) == [-3.0, -3.0, -3.0]


def test_cosine_of_the_papers_kind():
    reward = CosineLength(max_tokens=100, right=(2.0, 1.0), wrong=(-10.0, 0.0), exceeded=-10.0)
    rows = [response(50), response(50, right=False), response(50, False, status="timeout")]
    assert reward(rows) == pytest.approx([1.5, -5.0, -5.0])


def test_cosine_checks_its_numbers():
    with pytest.raises(ValueError, match="max_tokens: 0 is not at least 1"):
        CosineLength(max_tokens=0)
    with pytest.raises(ValueError, match=r"wrong: .*nan.* are not finite"):
        CosineLength(max_tokens=9, wrong=(0.0, float("nan")))


def test_group_length_is_kimis():
    rows = [response(10), response(15), response(20), response(10, False), response(20, False)]
    assert GroupLength()(rows) == pytest.approx([0.5, 0.0, -0.5, 0.0, -0.5])


def test_group_length_compares_only_responses_to_one_problem():
    rows = [response(10), response(99, uid="b"), response(20), response(99, uid="b")]
    assert GroupLength()(rows) == pytest.approx([0.5, 0.0, -0.5, 0.0])


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("a b a b a b", -3 / 5),  # ab ba ab ba ab: 2 unique of 5
        ("A b, a B", -1 / 4),  # ab b, ,a ab: the last stood before
        ("a b c d", 0.0),
        ("a", 0.0),
        ("", 0.0),
        ("我们我们", -1 / 3),
    ],
)
def test_repetition_is_the_share_of_bigrams_that_stood_before(text: str, reward: float):
    assert Repetition(n=2)([response(text=text)]) == pytest.approx([reward])


def test_repetition_of_a_loop_and_of_none():
    looped = response(text="so it is seven, wait, " * 200)
    rewards = Repetition()([looped, response(text=" ".join(map(str, range(1000))))])
    assert rewards[0] < -0.95 and rewards[1] == 0.0
    with pytest.raises(ValueError, match="n: 0 is not at least 1"):
        Repetition(n=0)
