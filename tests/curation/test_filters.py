"""Each filter at its edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from r1lit.batches import Problem
from r1lit.curation import (
    Candidate,
    CodeBlocks,
    Context,
    Correct,
    CorrectByJudge,
    Dedupe,
    Filter,
    Finished,
    LanguageConsistent,
    Length,
    LongParagraphs,
    MaxPerProblem,
    RepeatedText,
    ResponseTemplate,
    WellFormed,
)
from r1lit.rollout import ModelSpec
from r1lit.verifiers import GenerativeVerifier

CONTEXT = Context(seed=0, folder=Path(), model=ModelSpec(name="", tokenizer=None))  # type: ignore[arg-type]


def candidate(text: str = "<think> a </think> b", sample: int = 0, **changes: Any) -> Candidate:
    meta = {k: changes.pop(k) for k in ("kind", "language") if k in changes}
    question, uid = changes.pop("question", "What is it?"), changes.pop("uid", "p")
    problem = Problem(uid=uid, question=question, answer="b", source="s", meta=meta)
    verdict = {"status": "right", "reason": "", "num_tokens": 5, "finished": True, **changes}
    return Candidate(problem=problem, sample=sample, text=text, **verdict)


def why(filter_: Filter, text: str = "<think> a </think> b", **changes: Any) -> str | None:
    filter_.begin(CONTEXT)
    return filter_.drop([candidate(text, **changes)])[0]


def test_correct_and_finished():
    assert why(Correct()) is None
    assert why(Correct(), status="wrong", reason="7 is not 8") == "wrong: 7 is not 8"
    assert why(Correct(), status="timeout") == "timeout"
    assert why(Finished()) is None
    assert why(Finished(), finished=False, num_tokens=9) == "cut after 9 tokens"


def test_kinds_that_a_filter_does_not_concern_pass():
    only = Correct(kinds=["reasoning"])
    assert why(only, status="wrong")  # no kind is said: reasoning
    assert why(only, status="wrong", kind="general") is None
    with pytest.raises(ValueError, match="kinds: \\[\\] is not a list of kinds"):
        Correct(kinds=[])


def test_readable_measures_the_thinking_alone():
    mixed = "<think> wait 我 try </think> 答案"
    assert why(LanguageConsistent(0.9), mixed, language="en") == "0.667 of the words are en"
    assert why(LanguageConsistent(0.6), mixed, language="en") is None
    assert why(LanguageConsistent(0.9), "<think> wait </think> 答案", language="en") is None
    assert why(LanguageConsistent(0.9), "<think> 等等 再试 </think> yes", language="zh") is None
    assert (
        why(LanguageConsistent(0.9), mixed, question="我们 怎么 算 出 它 呢") is not None
    )  # zh by question
    with pytest.raises(ValueError, match="problem 'p' names 'xx'"):
        why(LanguageConsistent(), mixed, language="xx")


@pytest.mark.parametrize("thinking", ["", "3 + 4 = 7", "$x + y$ `code`"])
def test_a_chain_without_words_mixes_nothing(thinking):
    assert why(LanguageConsistent(1.0), f"<think>{thinking}</think> 7", language="zh") is None
    assert why(LanguageConsistent(1.0), f"<think>{thinking}</think> 7", language="en") is None


def test_a_paragraph_ends_at_a_blank_line():
    two = "<think>one two three\n \nfour five</think> " + "six " * 20
    assert why(LongParagraphs(max_words=3), two) is None
    assert why(LongParagraphs(max_words=2), two) == "a paragraph of 3 words"
    assert why(LongParagraphs(max_words=4), two.replace("\n \n", "\n")) == "a paragraph of 5 words"
    assert why(LongParagraphs(None, max_characters=13), two) is None
    assert why(LongParagraphs(None, max_characters=12), two) == "a paragraph of 13 characters"
    assert why(LongParagraphs(max_words=3), "<think>我们再试</think> x") == "a paragraph of 4 words"
    with pytest.raises(ValueError, match="max_words: give it"):
        LongParagraphs(None)


def test_a_code_block_counts_in_the_thinking_only():
    assert why(CodeBlocks(), "<think>so\n```python\nx\n```\n</think> 3")
    assert why(CodeBlocks(), "<think>so\n  ~~~\nx\n</think> 3")
    assert why(CodeBlocks(), "<think>so `x` and a ``` here</think> 3") is None
    assert why(CodeBlocks(), "<think>so</think>\n```python\nx\n```") is None


def test_format_is_the_format_rewards():
    r1, zero = "<think> a </think> b", "<think> a </think> <answer> b </answer>"
    assert why(WellFormed(), r1) is None and why(WellFormed(), zero) is None
    assert why(WellFormed(answer_tags=True), zero) is None
    assert why(WellFormed(answer_tags=True), r1) == "not in the required format"
    assert why(WellFormed(), "<think> a </think> ") and why(WellFormed(), "a </think> b")
    assert why(WellFormed(think_prefilled=True), "a </think> b") is None


def test_length_includes_its_bounds():
    assert why(Length(5, 5)) is None
    assert why(Length(6)) == "5 tokens" == why(Length(1, 4))
    with pytest.raises(ValueError, match="max_tokens: 1 is less than min_tokens: 2"):
        Length(2, 1)


def test_a_loop_is_seen_by_its_repeated_grams():
    assert why(RepeatedText(most=0.59, n=2), "a b a b a b") == "0.600 of the 2-grams stood before"
    assert why(RepeatedText(most=0.6, n=2), "a b a b a b") is None
    assert why(RepeatedText(most=0.0, n=20), "a b a b a b") is None  # shorter than n


# asking a judge


class Asked:
    """A judge that knows one answer and counts."""

    name = "asked"

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, prompt: str) -> str:
        self.count += 1
        return "VERDICT: CORRECT" if "forty-two" in prompt else "VERDICT: INCORRECT"


def test_the_judge_is_asked_where_rules_did_not_decide():
    model = Asked()
    filter_ = CorrectByJudge(GenerativeVerifier(model))
    whys = filter_.drop(
        [
            candidate("<think> x </think> forty-two", status="unparsed", sample=0),
            candidate("<think> x </think> forty", status="unparsed", sample=1),
            candidate("<think> x </think> forty-two", status="wrong", reason="no", sample=2),
            candidate("<think> x </think> forty", status="right", sample=3),
        ]
    )
    assert whys[0] is None and whys[3] is None and whys[2] == "wrong: no"
    assert whys[1] is not None and whys[1].startswith("wrong: the judge says")
    assert model.count == 2
    also = CorrectByJudge(GenerativeVerifier(model), undecided=["wrong"])
    assert why(also, "<think> x </think> forty-two", status="wrong") is None
    with pytest.raises(ValueError, match="undecided: \\['right'\\]"):
        CorrectByJudge(GenerativeVerifier(model), undecided=["right"])  # type: ignore[list-item]


# comparing


def kept(filter_: Filter, candidates: list[Candidate]) -> list[tuple[str, int]]:
    filter_.begin(CONTEXT)
    whys = filter_.drop(candidates)
    return [(c.problem.uid, c.sample) for c, w in zip(candidates, whys, strict=True) if w is None]


def test_equal_responses_are_kept_once_white_space_aside():
    texts = ["one two three", "one  two\n three ", "one two four"]
    group = [candidate(text, sample=i) for i, text in enumerate(texts)]
    assert kept(Dedupe(jaccard=None), group) == [("p", 0), ("p", 2)]
    other = [candidate(texts[0], uid="q")]  # the same question under another name
    assert kept(Dedupe(jaccard=None), group + other) == [("p", 0), ("p", 2)]
    other = [candidate(texts[0], uid="q", question="Another?")]
    assert kept(Dedupe(jaccard=None), group + other)[-1] == ("q", 0)


def test_a_run_forgets_the_run_before():
    filter_ = Dedupe()
    assert kept(filter_, [candidate()]) == kept(filter_, [candidate()]) == [("p", 0)]


def test_near_duplicates_of_one_problem_by_jaccard():
    base = [f"w{i}" for i in range(20)]
    near = [*base[:-1], "x"]  # 16 grams of 5 each, 15 shared: 15 / 17
    group = [candidate(" ".join(words), sample=i) for i, words in enumerate([base, near])]
    assert kept(Dedupe(jaccard=15 / 17), group) == [("p", 0)]
    assert kept(Dedupe(jaccard=0.89), group) == [("p", 0), ("p", 1)]
    filter_ = Dedupe(jaccard=0.8)
    filter_.begin(CONTEXT)
    assert filter_.drop(group)[1] == "Jaccard index 0.882 with sample 0"
    elsewhere = [group[0], candidate(group[1].text, uid="q", question="Another?")]
    assert kept(Dedupe(jaccard=0.8), elsewhere) == [("p", 0), ("q", 0)]


def test_short_and_empty_texts_are_compared_too():
    group = [candidate(text, sample=i) for i, text in enumerate(["7", "7.", "8", "", "!"])]
    assert kept(Dedupe(), group) == [("p", 0), ("p", 2), ("p", 3)]


def test_the_result_does_not_hang_on_how_many_come_at_a_time():
    group = [
        candidate(f"a b c d e {i % 3}", sample=i, uid=uid, question=f"{uid}?")
        for uid in ("p", "q")
        for i in range(6)
    ]
    for filter_ in (Dedupe(), MaxPerProblem(2)):
        whole = kept(filter_, group)
        filter_.begin(CONTEXT)
        apart = [
            (c.problem.uid, c.sample)
            for half in (group[:6], group[6:])
            for c, w in zip(half, filter_.drop(half), strict=True)
            if w is None
        ]
        assert apart == whole and len(whole) < len(group)


def test_at_most_n_of_a_problem_by_the_seed():
    uids = "pqrstu"
    group = [candidate(str(i), sample=i, uid=u, num_tokens=9 - i) for u in uids for i in range(8)]
    found = kept(MaxPerProblem(3), group)
    assert found == kept(MaxPerProblem(3), group)
    by_uid = {u: tuple(s for uid, s in found if uid == u) for u in uids}
    assert {len(s) for s in by_uid.values()} == {3} and len(set(by_uid.values())) > 2
    other = MaxPerProblem(3)
    other.begin(Context(seed=1, folder=Path(), model=CONTEXT.model))
    whys = other.drop(group)
    assert [(c.problem.uid, c.sample) for c, w in zip(group, whys, strict=True) if not w] != found
    assert kept(MaxPerProblem(2, prefer="first"), group[:8]) == [("p", 0), ("p", 1)]
    assert kept(MaxPerProblem(2, prefer="shortest"), group[:8]) == [("p", 6), ("p", 7)]
    assert kept(MaxPerProblem(2, prefer="longest"), group[:8]) == [("p", 0), ("p", 1)]
    assert len(kept(MaxPerProblem(8), group)) == 48


# the template


def test_the_papers_letters_and_texts_that_look_like_fields():
    template = ResponseTemplate(text="|special_token|{thinking}|special_token|{summary}")
    assert template.write("{summary}", "s") == "|special_token|{summary}|special_token|s"
    assert ResponseTemplate().write("", "hello") == "<think> </think> hello"
    assert ResponseTemplate(without_thinking="{summary}").write("", "hello") == "hello"
    assert ResponseTemplate(text="{summary} because {thinking}").write("t", "s") == "s because t"


def test_the_parts_of_a_candidate():
    assert candidate("<think> a </think> b").parts == ("a", "b")
    assert candidate("a </think> b").parts == ("a", "b")
    assert candidate("only").parts == ("", "only")
    assert candidate("<think> never closed").parts == ("never closed", "")
    assert candidate(kind="general").kind == "general" and candidate().kind == "reasoning"
