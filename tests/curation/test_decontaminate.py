"""What shares ten words with an evaluation problem is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from r1lit.batches import Problem
from r1lit.curation import Candidate, Context, Decontaminate
from r1lit.curation.filters import gram_numbers, words
from r1lit.data import ProblemSource
from r1lit.rollout import ModelSpec

CONTEXT = Context(seed=0, folder=Path(), model=ModelSpec(name="", tokenizer=None))  # type: ignore[arg-type]
TEN = "one two three four five six seven eight nine ten"


class Asked(ProblemSource):
    """An evaluation of these questions; it counts how often it is read."""

    def __init__(self, *questions: str, answer: str = "7") -> None:
        self.questions = questions
        self.answer = answer
        self.num_read = 0

    def problems(self) -> list[Problem]:
        self.num_read += 1
        return [
            Problem(uid=f"e{i}", question=q, answer=self.answer, source="e")
            for i, q in enumerate(self.questions)
        ]


def why(source: ProblemSource, question: str, response: str = "", n: int = 10) -> str | None:
    filter_ = Decontaminate([source], n=n)
    filter_.begin(CONTEXT)
    problem = Problem(uid="p", question=question, answer="", source="s")
    candidate = Candidate(
        problem=problem, sample=0, text=response, status="right", reason="", num_tokens=1,
        finished=True,
    )  # fmt: skip
    return filter_.drop([candidate])[0]


def test_ten_words_in_a_row_are_enough_and_nine_are_not():
    source = Asked(f"Zero {TEN} eleven")
    found = why(source, f"Say: ONE, two three\n four five-six seven eight nine ten. Or {TEN[:3]}?")
    assert found == f"the question shares “{TEN}” with e0"
    assert why(source, TEN.removesuffix(" ten")) is None
    assert why(source, TEN.replace("five", "fife")) is None
    assert why(source, "Other?", f"I think {TEN}") == f"the response shares “{TEN}” with e0"
    assert why(source, "Other?", "ten nine eight seven six five four three two one") is None


def test_a_short_question_may_not_be_asked_whole():
    source = Asked("Using 3, 5 and 7, make 24.", TEN)
    assert why(source, "using 3 5 and 7  make 24") == "the question of e0"
    assert why(source, "Using 3, 5 and 7, make 25.") is None
    assert why(source, "Now: Using 3, 5 and 7, make 24.") is None  # not the whole question
    assert why(source, "Other?", "Using 3, 5 and 7, make 24.") is None


def test_han_characters_are_words():
    source = Asked("小明有三个苹果又买了两个")
    assert why(source, "问题：小明有三个苹果又买了五个") == (
        "the question shares “小 明 有 三 个 苹 果 又 买 了” with e0"
    )
    assert why(source, "小红有三个苹果又买了两") is None


def test_the_gold_answer_counts_if_it_is_long():
    assert why(Asked("Short?", answer=TEN), "Other?", TEN) is not None
    assert why(Asked("Short?", answer="7"), "Other?", "7") is None


def test_a_benchmarks_wording_is_no_content():
    wording = "Answer with the letter of the right choice alone and say nothing more please."
    many = Asked(*(f"{wording} What is thing number {i}?" for i in range(12)))
    assert why(many, f"{wording} What is the sun?") is None
    assert why(many, f"{wording} What is thing number 3?") is not None
    few = Asked(*(f"{wording} What is thing number {i}?" for i in range(3)))
    assert why(few, f"{wording} What is the sun?") is not None


def test_the_index_is_built_once():
    source = Asked(TEN)
    filter_ = Decontaminate([source])
    filter_.begin(CONTEXT)
    filter_.begin(CONTEXT)
    assert source.num_read == 1


def test_settings_are_checked():
    with pytest.raises(ValueError, match="evaluations: no source"):
        Decontaminate([])
    with pytest.raises(ValueError, match="n: 1 is not at least 2"):
        Decontaminate([Asked()], n=1)


def test_grams_are_numbers_of_their_words():
    text = words(f"{TEN} {TEN}")
    grams = gram_numbers(text, 10)
    assert len(grams) == 11 and grams[0] == grams[10] and len(set(grams.tolist())) == 10
    assert len(gram_numbers(text, 21)) == 0
    assert gram_numbers(["a", "b"], 2)[0] != gram_numbers(["b", "a"], 2)[0]
