"""Rewards by rule: format, language, length and repetition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from r1lit.batches import Problem, Response, Status, Verdict
from r1lit.rewards import (
    CosineLength,
    Format,
    GroupLength,
    LanguageConsistency,
    Repetition,
    SpecialTokenFormat,
)

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


def language_response(text: str, question: str = "What is 3 + 4?", **meta: Any) -> Response:
    problem = Problem(uid="", question=question, answer="7", source="test", meta=meta)
    return Response(text=text, problem=problem, verdict=WRONG, num_tokens=9, finished=True)


MIXED = "<think> I 认为 seven </think> <answer> 7 是 </answer>"


def test_only_the_thinking_counts():
    assert LanguageConsistency()([language_response(MIXED)]) == [0.5]
    clean = language_response("<think> I think seven </think> <answer> 是的 </answer>")
    assert LanguageConsistency()([clean, language_response("seven"), language_response("")]) == [
        1.0,
        0.0,
        0.0,
    ]


def test_the_target_is_the_option_then_the_problems_meta_then_the_question():
    rows = [
        language_response(MIXED),
        language_response(MIXED, "三加四等于几？"),
        language_response(MIXED, language="zh"),
    ]
    assert LanguageConsistency()(rows) == pytest.approx([1 / 2, 2 / 3, 2 / 3])
    assert LanguageConsistency(language="en")(rows) == [0.5, 0.5, 0.5]


def test_a_prompt_that_opened_the_thinking():
    rows = [language_response("I 认为 seven </think> 是的"), language_response("I think")]
    assert LanguageConsistency()(rows) == [0.5, 0.0]
    assert LanguageConsistency(think_prefilled=True)(rows) == [0.5, 1.0]


def test_sentences_of_another_language_where_english_is_wanted():
    german = "Also ist die Antwort wohl sieben, aber ich prüfe noch einmal"
    rows = [
        language_response(f"<think> {german} </think> 7"),
        language_response(MIXED, "三加四等于几？"),
    ]
    assert LanguageConsistency(same_script=False)(rows) == pytest.approx([1.0, 2 / 3])
    assert LanguageConsistency()(rows) == pytest.approx([0.0, 2 / 3])


def test_unknown_languages_are_named():
    with pytest.raises(ValueError, match="language: 'xx' is not one of"):
        LanguageConsistency(language="xx")
    with pytest.raises(ValueError, match="language: 'xx' is not one of"):
        LanguageConsistency()([language_response(MIXED, language="xx")])


def length_response(
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
    right = reward([length_response(n) for n in lengths])
    wrong = reward([length_response(n, right=False) for n in lengths])
    assert right == pytest.approx([1.0, 0.875, 0.75, 0.625, 0.5])
    assert wrong == pytest.approx([-1.0, -0.875, -0.75, -0.625, -0.5])


def test_cosine_beyond_the_limit():
    reward = CosineLength(max_tokens=90, exceeded=-3.0)
    rows = [
        length_response(91),
        length_response(10, finished=False),
        length_response(90, right=False, finished=False),
    ]
    assert reward(rows) == [-3.0, -3.0, -3.0]


def test_cosine_of_the_papers_kind():
    reward = CosineLength(max_tokens=100, right=(2.0, 1.0), wrong=(-10.0, 0.0), exceeded=-10.0)
    rows = [
        length_response(50),
        length_response(50, right=False),
        length_response(50, False, status="timeout"),
    ]
    assert reward(rows) == pytest.approx([1.5, -5.0, -5.0])


def test_cosine_checks_its_numbers():
    with pytest.raises(ValueError, match="max_tokens: 0 is not at least 1"):
        CosineLength(max_tokens=0)
    with pytest.raises(ValueError, match=r"wrong: .*nan.* are not finite"):
        CosineLength(max_tokens=9, wrong=(0.0, float("nan")))


def test_group_length_is_kimis():
    rows = [
        length_response(10),
        length_response(15),
        length_response(20),
        length_response(10, False),
        length_response(20, False),
    ]
    assert GroupLength()(rows) == pytest.approx([0.5, 0.0, -0.5, 0.0, -0.5])


def test_group_length_compares_only_responses_to_one_problem():
    rows = [
        length_response(10),
        length_response(99, uid="b"),
        length_response(20),
        length_response(99, uid="b"),
    ]
    assert GroupLength()(rows) == pytest.approx([0.5, 0.0, -0.5, 0.0])


def test_a_problem_that_comes_twice_in_a_rollout_has_two_groups():
    tokens = [10, 20, 30, 40]
    rows = [replace(length_response(n), group=place // 2) for place, n in enumerate(tokens)]
    assert GroupLength()(rows) == pytest.approx([0.5, -0.5, 0.5, -0.5])
    assert [row.group_id for row in rows] == [0, 0, 1, 1]


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
    assert Repetition(n=2)([length_response(text=text)]) == pytest.approx([reward])


def test_repetition_of_a_loop_and_of_none():
    looped = length_response(text="so it is seven, wait, " * 200)
    rewards = Repetition()([looped, length_response(text=" ".join(map(str, range(1000))))])
    assert rewards[0] < -0.95 and rewards[1] == 0.0
    with pytest.raises(ValueError, match="n: 0 is not at least 1"):
        Repetition(n=0)
