import pytest

from r1lit.batches import Problem, Response, Verdict
from r1lit.rewards import Format, SpecialTokenFormat

PROBLEM = Problem(uid="", question="", answer="7", source="test")
WRONG = Verdict(value=0.0, status="wrong", canonical=None, reason="")


def response(text: str) -> Response:
    return Response(text=text, problem=PROBLEM, verdict=WRONG, num_tokens=9, finished=True)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (" 3 + 4 </think> <answer> 7 </answer>", 1.0),
        ("</think><answer>7</answer>", 1.0),
        ("<think> 3 + 4 </think> <answer> 7 </answer>", 0.0),
        (" 3 + 4 <answer> 7 </answer>", 0.0),
        (" 3 + 4 </think> so <answer> 7 </answer>", 0.0),
        (" 3 + 4", 0.0),
    ],
)
def test_a_template_that_opened_the_thinking(text: str, reward: float):
    assert Format(think_prefilled=True)([response(text)]) == [reward]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think> 3 + 4 </think> The answer is 7.", 1.0),
        ("<think></think>7", 1.0),
        ("<think> 3 </think> <answer> 7 </answer>", 1.0),
        ("<think> 3 + 4 </think>", 0.0),
        ("<think> 3 + 4 </think> \u200b\n", 0.0),
        ("So <think> 3 + 4 </think> 7", 0.0),
        ("<think> 3 </think> 7 <think> 4 </think> 8", 0.0),
        ("<think> 3 </think> 7 </think>", 0.0),
        ("3 + 4 </think> 7", 0.0),
    ],
)
def test_a_summary_without_answer_tags(text: str, reward: float):
    assert Format(answer_tags=False)([response(text)]) == [reward]


def test_an_opened_template_and_a_summary_as_released_r1_writes():
    rows = [response("3 + 4 </think>\n\n7"), response("<think> 3 + 4 </think> 7"), response("7")]
    assert Format(think_prefilled=True, answer_tags=False)(rows) == [1.0, 0.0, 0.0]


S = "|special_token|"


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (f"{S}3 + 4{S}7", 1.0),
        (f"\n {S} 3 + 4 {S} The answer is 7.\n", 1.0),
        (f"{S}{S}7", 1.0),
        (f"{S}3 + 4{S}", 0.0),
        (f"{S}3 + 4{S} \u200b", 0.0),
        (f"So {S}3 + 4{S}7", 0.0),
        (f"{S}3 + 4", 0.0),
        (f"3 + 4{S}7", 0.0),
        (f"{S}3{S}4{S}7", 0.0),
        ("7", 0.0),
        ("", 0.0),
        (S * 100_000, 0.0),
    ],
)
def test_the_special_token_form_of_the_cold_start(text: str, reward: float):
    assert SpecialTokenFormat()([response(text)]) == [reward]


def test_another_token_and_a_template_that_opened():
    rows = [response("3 + 4 § 7"), response("§ 3 + 4 § 7"), response("7")]
    assert SpecialTokenFormat(token="§", think_prefilled=True)(rows) == [1.0, 0.0, 0.0]
    assert SpecialTokenFormat(token="§")(rows) == [0.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="token: ' ' has nothing visible in it"):
        SpecialTokenFormat(token=" ")
