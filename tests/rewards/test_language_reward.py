from typing import Any

import pytest

from r1lit.batches import Problem, Response, Verdict
from r1lit.rewards import LanguageConsistency

WRONG = Verdict(value=0.0, status="wrong", canonical=None, reason="")


def response(text: str, question: str = "What is 3 + 4?", **meta: Any) -> Response:
    problem = Problem(uid="", question=question, answer="7", source="test", meta=meta)
    return Response(text=text, problem=problem, verdict=WRONG, num_tokens=9, finished=True)


MIXED = "<think> I 认为 seven </think> <answer> 7 是 </answer>"


def test_only_the_thinking_counts():
    assert LanguageConsistency()([response(MIXED)]) == [0.5]
    clean = response("<think> I think seven </think> <answer> 是的 </answer>")
    assert LanguageConsistency()([clean, response("seven"), response("")]) == [1.0, 0.0, 0.0]


def test_the_target_is_the_option_then_the_problems_meta_then_the_question():
    rows = [response(MIXED), response(MIXED, "三加四等于几？"), response(MIXED, language="zh")]
    assert LanguageConsistency()(rows) == pytest.approx([1 / 2, 2 / 3, 2 / 3])
    assert LanguageConsistency(language="en")(rows) == [0.5, 0.5, 0.5]


def test_a_prompt_that_opened_the_thinking():
    rows = [response("I 认为 seven </think> 是的"), response("I think")]
    assert LanguageConsistency()(rows) == [0.5, 0.0]
    assert LanguageConsistency(think_prefilled=True)(rows) == [0.5, 1.0]


def test_sentences_of_another_language_where_english_is_wanted():
    german = "Also ist die Antwort wohl sieben, aber ich prüfe noch einmal"
    rows = [response(f"<think> {german} </think> 7"), response(MIXED, "三加四等于几？")]
    assert LanguageConsistency(same_script=False)(rows) == pytest.approx([1.0, 2 / 3])
    assert LanguageConsistency()(rows) == pytest.approx([0.0, 2 / 3])


def test_unknown_languages_are_named():
    with pytest.raises(ValueError, match="language: 'xx' is none of"):
        LanguageConsistency(language="xx")
    with pytest.raises(ValueError, match="language: 'xx' is none of"):
        LanguageConsistency()([response(MIXED, language="xx")])
