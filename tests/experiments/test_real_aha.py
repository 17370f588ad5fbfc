"""Searches on a real model: problems, priming documents, and the reading of responses."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from experiments.real_aha import reading, traces
from experiments.real_aha.reading import read
from experiments.real_aha.traces import Searches, filled, trace, wording, written
from r1lit.policy import load_tokenizer
from r1lit.seeding import generator
from r1lit.verifiers.countdown import CountdownVerifier
from r1lit.worlds.countdown import number_sets
from r1lit.worlds.search_corpus import WorldSearch, places

NUMBERS, TARGET = (3, 4, 9), 63
FIRST_SIX = "4+3=7,9 left:9+7=16,9-7=2,9*7=63"
SETS = number_sets("corpus")


def own_traces(arm: str, num: int = 300) -> list[traces.Trace]:
    return [trace(generator(1, arm, i), SETS, arm) for i in range(num)]


def num_words(text: str) -> int:
    """Count a digit, a sign or a word as one, much as the model's tokenizer does."""
    return len(re.findall(r"\d|\w+|[^\w\s]", text))


def test_problems_are_the_small_worlds_with_their_attempts():
    ours = Searches("held_out", 48).problems()
    world = {
        (*p.meta["numbers"], p.meta["target"], p.meta["attempts"])
        for p in WorldSearch("held_out", 384).problems()
    }
    assert any((*p.meta["numbers"], p.meta["target"], p.meta["attempts"]) in world for p in ours)
    assert [p.meta["kind"] for p in ours[:4]] == [
        "attempts 1-2", "attempts 3-5", "attempts 6-11", "attempts 12-23",
    ]  # fmt: skip
    for problem in ours:
        numbers, target = tuple(problem.meta["numbers"]), problem.meta["target"]
        results = [place.attempt.second.result for place in places(numbers)]
        assert results.index(target) + 1 == problem.meta["attempts"] <= 23
        assert problem.question == wording(numbers, target)
        right = CountdownVerifier().verify(f"<answer>{problem.answer}</answer>", problem)
        assert right.status == "right"


def test_problems_keep_to_their_bounds_and_splits():
    sets = {
        split: {tuple(sorted(p.meta["numbers"])) for p in Searches(split, 40).problems()}
        for split in ("train", "held_out")
    }
    for split, own in sets.items():
        assert own <= set(number_sets(split)) and not own & set(SETS)
    small = Searches("train", 20, min_attempts=6, max_attempts=11, max_number=9).problems()
    assert all(6 <= p.meta["attempts"] <= 11 and max(p.meta["numbers"]) <= 9 for p in small)
    with pytest.raises(ValueError, match="num_problems: 100000 is more than"):
        Searches("train", 100_000).problems()


def test_a_search_is_written_as_worked_by_hand():
    assert written(places(NUMBERS), 0, 3) == FIRST_SIX
    assert written(places(NUMBERS), 2, 4) == "9*7=63. 4-3=1,9 left:9+1=10"
    assert traces.answered(places(NUMBERS)[2]) == "Check: 9*(4+3)=9*7=63.\n<answer>9*(4+3)</answer>"


@pytest.mark.parametrize("arm", ["search", "wrong", "direct", "solved"])
def test_every_trace_is_clean_and_exact(arm):
    for own in own_traces(arm):
        assert max(own.numbers) <= 12 and tuple(sorted(own.numbers)) in SETS
        found = read(own.own + own.ending, own.numbers, own.target, own.start, arm)
        assert found.is_clean, (own, found)
        assert found.order == [*range(own.start, own.start + found.attempts)]
        assert found.gave_up != found.answered
        assert found.checks == found.answered
        assert (found.checks_failed == 1) == (arm == "wrong" and found.answered)
        for left, right in re.findall(r"(\d+[-+*]\d+)=(\d+)", f"{own.so_far} {own.own}"):
            assert eval(left) == int(right)


def test_filler_has_the_searches_length_and_the_same_ending():
    for own in own_traces("search", 100):
        other = filled(own, num_words)
        assert num_words(other.own) == num_words(own.own) and other.ending == own.ending
        assert num_words(other.so_far) == num_words(own.so_far)
        assert read(other.own + other.ending, own.numbers, own.target, arm="filler").is_clean


def test_authors_give_up_early_yet_some_make_eight_attempts():
    own = traces.sizes(own_traces("search", 3000), num_words)
    assert own.long_share >= 0.05 and own.mean_response <= 100
    assert own.median_per_attempt <= 12


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{FIRST_SIX}. {traces.answered(places(NUMBERS)[2])}", {"attempts": 3, "checks": 1}),
        (f"{FIRST_SIX}. I give up.", {"gave_up": True, "computations": 4}),
        ("4+3=7,9 left:9+7=17. I give up.", {"wrong": 1}),
        ("4+3=8,9 left:9+8=17. I give up.", {"wrong": 1, "skipped": 0}),
        ("4+3=7,8 left:8+7=15. I give up.", {"wrong": 1}),
        ("4+3=7,9 left:9+6=15. I give up.", {"wrong": 1}),
        ("4+3=7,9 left:9+7=16,9*7=63. I give up.", {"skipped": 1, "repeated": 0}),
        ("4+3=7,9 left:9+7=16,9+7=16. I give up.", {"skipped": 0, "repeated": 1}),
        ("4+3=7,9 left:9*7=63,9+7=16. I give up.", {"skipped": 2, "repeated": 0}),
        ("4-3=1,9 left:9+1=10. 4-3=1,9 left:9+1=10. I give up.", {"skipped": 1, "repeated": 1}),
        ("3-4=1,9 left:9+1=10. I give up.", {"wrong": 1}),
        ("Check: 9*(4+3)=9*7=62.\n<answer>9*(4+3)</answer>", {"checks": 1, "wrong": 1}),
        ("Check: 9+(4+3)=9+7=16.\n<answer>9+(4+3)</answer>", {"checks_failed": 1, "wrong": 0}),
    ],
)  # fmt: skip
def test_each_fault_is_read(text, says):
    found = read(text, NUMBERS, TARGET)
    assert {name: getattr(found, name) for name in says} == says


def test_a_search_after_a_check_that_failed_is_read_on():
    text = "9*8=63. Check: 9*8=9*8=72. 4-3=1,9 left:9+1=10. I give up."
    found = read(text, NUMBERS, TARGET)
    assert (found.attempts, found.checks, found.checks_failed) == (2, 1, 1)
    assert found.order[-1] == 3, "4-3 opens the fourth attempt"


@pytest.mark.parametrize(
    ("text", "hits", "found"),
    [
        ("4+3=7,9 left:9+7=63. Check: 9+(4+3)=9+7=16.\n<answer>9+(4+3)</answer>", 1, 1),
        ("4+3=7,9 left:9+7=63. Check: 9+(4+3)=9+7=63.\n<answer>9+(4+3)</answer>", 1, 0),
        (f"{FIRST_SIX}. {traces.answered(places(NUMBERS)[2])}", 0, 0),
        ("4+3=7,9 left:9+7=63,9-7=2. Check: 9-(4+3)=9-7=2.", 0, 0),
        ("4+3=7,9 left:9+7=63. I give up.", 0, 0),
        ("Check: 9*(4+3)=9*7=62.", 0, 0),
    ],
)  # fmt: skip
def test_a_false_hit_is_found_by_a_check_that_fails(text, hits, found):
    own = read(text, NUMBERS, TARGET)
    assert (own.false_hits, own.false_hits_found) == (hits, found)


def test_who_never_gives_up_solves_every_problem():
    own = own_traces("solved")
    assert all("<answer>" in trace.ending and trace.own for trace in own)
    assert max(trace.own.count("=") for trace in own) > 20


def test_unseen_numbers_stand_in_no_other_problem():
    problems = traces.UnseenNumbers(24, min_attempts=6).problems()
    assert len({p.uid for p in problems}) == 24
    for problem in problems:
        numbers = tuple(problem.meta["numbers"])
        assert all(13 <= n <= 20 for n in numbers) and 6 <= problem.meta["attempts"] <= 23
        results = [place.attempt.second.result for place in places(numbers)]
        assert results.index(problem.meta["target"]) + 1 == problem.meta["attempts"]
        right = CountdownVerifier().verify(f"<answer>{problem.answer}</answer>", problem)
        assert right.status == "right"
    with pytest.raises(ValueError, match="num_problems: 1000 is more than"):
        traces.UnseenNumbers(1000).problems()


@pytest.mark.parametrize(
    "text",
    ["", "The answer is 63.", FIRST_SIX, f"{FIRST_SIX}, I give", "4 + 3 = 7. I give up.",
     f"{FIRST_SIX}. I give up. <answer>9</answer>"],
)  # fmt: skip
def test_other_forms_are_not_well_formed(text):
    assert not read(text, NUMBERS, TARGET).well_formed
    assert not read(text, NUMBERS, TARGET, arm="direct").well_formed


def test_a_continuation_is_read_from_its_place():
    found = read("9*7=63. I give up.", NUMBERS, TARGET, start=2)
    assert found.is_clean and found.order == [2]
    assert read("9+7=16. I give up.", NUMBERS, TARGET, start=2).repeated == 1


def test_arms_have_equal_tokens_and_the_same_arithmetic(monkeypatch):
    made = {arm: arm_documents(arm, monkeypatch) for arm in reading.FORMS}
    tokens = {arm: sum(num_words(d.response) + 1 for d in own) for arm, own in made.items()}
    assert max(tokens.values()) <= 1.01 * min(tokens.values())
    lines = [{d.response for d in own if not d.prompt} for own in made.values()]
    assert all(own == lines[0] for own in lines) and lines[0]
    total = sum(num_words(text) + 1 for text in lines[0])
    assert total == pytest.approx(2_000, rel=0.08)
    held_out = {tuple(sorted(p.meta["numbers"])) for p in Searches("held_out", 200).problems()}
    for own in made.values():
        asked = [re.match(r"Using (\d+), (\d+) and (\d+),", d.prompt) for d in own if d.prompt]
        assert not {tuple(sorted(map(int, m.groups()))) for m in asked if m} & held_out


def arm_documents(arm, monkeypatch):
    class Words:
        def encode(self, text, add_special_tokens):
            return [0] * num_words(text)

    monkeypatch.setattr(traces, "load_tokenizer", lambda name: Words())
    monkeypatch.setattr(traces, "prompt_text", lambda *given: "")
    return traces.PrimingDocuments(arm, num_tokens=20_000).documents()


def test_documents_are_the_same_on_every_call(monkeypatch):
    assert arm_documents("search", monkeypatch) == arm_documents("search", monkeypatch)


def test_the_number_of_documents_can_be_bounded(monkeypatch):
    source = traces.PrimingDocuments("search", num_tokens=20_000, num_documents=50)
    assert source.num_documents == 50
    assert len(list(islice(source.traces(num_words), 3))) == 3


def test_an_unknown_arm_and_a_model_without_chat_template_are_lines(policy, tmp_path):
    with pytest.raises(ValueError, match="arm: 'none'"):
        traces.PrimingDocuments("none")
    tokenizer = load_tokenizer(str(policy))
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((policy / "config.json").read_text())
    with pytest.raises(ValueError, match="chat template"):
        traces.PrimingDocuments(tokenizer=str(tmp_path)).documents()
