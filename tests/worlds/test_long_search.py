"""Searches of known length: what they need, how people of small effort write them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from r1lit.seeding import generator
from r1lit.verifiers import CountdownVerifier
from r1lit.worlds import SearchCorpus, WorldSearch
from r1lit.worlds.countdown import number_sets, step
from r1lit.worlds.search_corpus import (
    LEVELS,
    SLIP_RATE,
    Habits,
    about,
    branch,
    needed_attempts,
    places,
    question,
    write,
)

SPLITS = ("corpus", "train", "held_out")
TRIES = re.compile(r"(\d+) ([-+*/]) (\d+) ([=~]) (\d+)")
ASKED = re.compile(r"Using (?:three of )?([\d, ]+ and \d+), make (\d+)\.")
PATIENT = Habits(go_on=1.0, check=1.0)


@pytest.fixture(scope="module")
def problems():
    return {split: WorldSearch(split, 240).problems() for split in SPLITS}


@pytest.fixture(scope="module")
def pages():
    return SearchCorpus(1200, seed=3).documents()


@pytest.mark.parametrize("numbers", [(9, 4, 7), (3, 3, 8), (2, 11, 5, 6), (4, 4, 1, 4)])
def test_a_search_makes_every_attempt_once_and_no_other(numbers):
    def results(a, b, c):
        firsts = [step(a, op, b) for op in "+-*"]
        seconds = [step(f.result, op, c) for f in firsts if f for op in "+-*"]
        return {s.result for s in seconds if s}

    search = places(numbers)
    assert len({(p.numbers, p.attempt) for p in search}) == len(search)
    wanted = set().union(*(results(*three) for three in permutations(numbers, 3)))
    assert {p.attempt.second.result for p in search} == wanted
    for target, needed in needed_attempts(search).items():
        reached = [p.attempt.second.result == target for p in search]
        assert reached.index(True) == needed - 1


@pytest.mark.parametrize("split", SPLITS)
def test_problems_come_from_every_level_alike_and_their_answers_pass(problems, split):
    found = problems[split]
    names = [f"attempts {low}-{high}" for low, high in LEVELS]
    assert [p.meta["kind"] for p in found] == names * 40
    assert len({p.uid for p in found}) == len(found)
    texts = [f"<think> x </think> <answer> {p.answer} </answer>" for p in found]
    assert all(v.value == 1.0 for v in CountdownVerifier().verify_batch(texts, found))
    for p, (low, high) in zip(found, LEVELS * 40, strict=True):
        assert low <= p.meta["attempts"] <= high
        assert p.uid.endswith(f"-at-{p.meta['attempts']}")
        assert {3, 4} >= {len(p.meta["numbers"])}


def test_splits_share_no_problem(problems, pages):
    sets = {split: {tuple(sorted(p.meta["numbers"])) for p in problems[split]} for split in SPLITS}
    assert not sets["train"] & sets["held_out"] and not sets["train"] & sets["corpus"]
    asked = [m for page in pages for m in ASKED.findall(page.prompt + page.response)]
    assert len(asked) > 500
    read = {tuple(sorted(map(int, re.findall(r"\d+", numbers)))) for numbers, _ in asked}
    assert read <= set(number_sets("corpus", 3)) | set(number_sets("corpus", 4))
    assert len({len(numbers) for numbers in read}) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "test"}, "split: 'test'"),
        ({"num_problems": 0}, "num_problems: 0"),
        ({"num_problems": 10**6}, "num_problems: 1000000"),
        ({"max_attempts": 0}, "max_attempts: 0"),
    ],
)
def test_errors_name_the_setting(options, message):
    with pytest.raises(ValueError, match=message):
        WorldSearch(**options).problems()


def test_max_attempts_leaves_out_what_is_harder():
    found = WorldSearch("train", 30, max_attempts=11).problems()
    assert Counter(p.meta["kind"] for p in found) == {
        "attempts 1-2": 10, "attempts 3-5": 10, "attempts 6-11": 10,
    }  # fmt: skip


def test_who_checks_and_goes_on_is_right_with_just_the_attempts_needed(problems):
    exact = 0
    for p in problems["held_out"][:120]:
        search = places(tuple(p.meta["numbers"]))
        own = write(search, p.meta["target"], PATIENT, generator(0, p.uid))
        assert own.claimed and eval(own.claimed.attempt.expression) == p.meta["target"]
        assert own.text.endswith(", yes.")
        exact += own.stop == p.meta["attempts"]
    assert exact / 120 > 1 - 2 * SLIP_RATE - 0.05  # the others overlooked it by a slip


def test_an_equation_is_exact_and_a_glance_is_right_but_for_slips(pages):
    tries = [m for page in pages for m in TRIES.findall(page.response)]
    slips = 0
    for left, operation, right, sign, value in tries:
        made = step(int(left), operation, int(right))
        assert made and made.left == int(left)
        if sign == "=":
            assert made.result == int(value)
        else:
            slips += about(made.result) != int(value)
    glances = sum(sign == "~" for *_, sign, _ in tries)
    assert 0.5 * SLIP_RATE < slips / glances < 1.5 * SLIP_RATE


def test_reviews_check_what_is_right_and_what_only_seems_so(pages):
    reviews = [page.response for page in pages if page.response.startswith("Review: ")]
    assert len(reviews) > 80
    checks = [line for text in reviews for line in re.findall(r"~ \d+ ~ (\d+), \D+([^.]+)", text)]
    right = [line.endswith(", yes") for _, line in checks]
    assert 0.4 < np.mean(right) < 0.8
    for (target, line), yes in zip(checks, right, strict=True):
        assert (int(line.split(" = ")[1].split()[0].strip(",")) == int(target)) == yes


def test_without_a_check_the_first_glance_that_fits_is_claimed(problems):
    hasty = Habits(go_on=1.0, check=0.0)
    right = []
    for p in problems["train"]:
        search = places(tuple(p.meta["numbers"]))
        own = write(search, p.meta["target"], hasty, generator(1, p.uid))
        assert own.claimed is search[(own.stop - 1) % len(search)]
        right.append(own.claimed.attempt.second.result == p.meta["target"])
    share = [np.mean(right[level::6]) for level in range(6)]
    assert share[0] > 0.7 and share[5] < 0.5  # the longest searches need checks


def test_who_refuses_what_seems_right_goes_on():
    search = places((2, 11, 5, 6))
    results = [place.attempt.second.result for place in search]
    at = results.index(96)
    assert about(96) == about(97) != about(results[at + 1]) and 97 not in results
    hopeless = Habits(go_on=0.0, check=1.0)
    stops = Counter(
        write(search, 97, hopeless, generator(0, i), start=at).stop - at for i in range(200)
    )
    assert stops[2] > 200 * (1 - 4 * SLIP_RATE)  # and gives up after the next, which fails
    stops = Counter(write(search, 99, hopeless, generator(0, i)).stop for i in range(200))
    assert stops[1] > 200 * (1 - 4 * SLIP_RATE)


def test_outlines_hold_every_first_step_in_order(pages):
    outlines = [page.response for page in pages if "First steps: " in page.response]
    assert outlines
    for text in outlines:
        asked, steps = text.split(" First steps: ")
        numbers, _ = ASKED.search(asked).groups()
        given = tuple(map(int, re.findall(r"\d+", numbers)))
        found = steps.removesuffix(".").split(". ")
        expected = [branch(place) for place in places(given)]
        assert found == [b for i, b in enumerate(expected) if i == 0 or b != expected[i - 1]]


def test_effort_is_geometric():
    search = places((2, 11, 5, 6))
    rng = np.random.default_rng(0)
    tried = [write(search, 99, Habits(go_on=0.6, check=1.0), rng).stop for _ in range(2000)]
    assert np.mean(tried) == pytest.approx(2.5, rel=0.08)
    assert np.mean([n > 3 for n in tried]) == pytest.approx(0.6**3, abs=0.03)


def test_threads_go_on_where_the_last_author_stopped(pages):
    threads = [p.response.split("\n") for p in pages if p.response.startswith("Q: ")]
    assert len(threads) > 200
    whole = [lines for lines in threads if "Tried" not in lines[0]]
    for question_line, *posts in whole[:60]:
        numbers, target = ASKED.search(question_line).groups()
        given = tuple(map(int, re.findall(r"\d+", numbers)))
        assert question(given, int(target)) == question_line.removeprefix("Q: ")
        seconds = [str(p.attempt.second).split(" =")[0] for p in places(given)]
        tried = [f"{a} {op} {b}" for post in posts for a, op, b, sign, _ in TRIES.findall(post)
                 if sign == "~"]  # fmt: skip
        assert tried == (seconds * 3)[: len(tried)]


def test_nobody_searches_for_long(pages):
    efforts = [
        len(re.findall("~ \\d+ [<>~]", p.response)) for p in pages if "Assistant:" in p.prompt
    ]
    assert len(efforts) > 350
    assert 1.5 < np.mean(efforts) < 3 and max(efforts) < 48
    assert np.mean([n > 12 for n in efforts]) < 0.02


@pytest.mark.long
def test_a_share_of_patient_authors_never_gives_up(pages):
    def gave_up(documents):
        """Return the share of responses in the template that give up."""
        own = ["give up" in d.response for d in documents if d.prompt]
        return sum(own) / len(own)

    half, all_ = (SearchCorpus(1200, seed=3, patient=p).documents() for p in (0.5, 1.0))
    assert gave_up(all_) == 0 and gave_up(pages) > 0.4
    assert gave_up(half) == pytest.approx(gave_up(pages) / 2, abs=0.06)
    threads, others = [], []
    for a, b in zip(pages, all_, strict=True):
        if not a.prompt:
            (threads if a.response.startswith("Q: ") else others).append((a, b))
    assert others and all(a == b for a, b in others), "lists and tables stay as they are"
    assert sum("give up" in a.response for a, _ in threads) / len(threads) > 0.4
    assert not any("give up" in b.response for _, b in threads)
    with pytest.raises(ValueError, match=r"patient: 1\.5"):
        SearchCorpus(10, patient=1.5)


def test_authors_check_as_much_as_is_said(pages):
    checks = re.compile(r"wait, \d|let me verify|check: ")

    def checks_a_response(documents):
        own = [len(checks.findall(d.response)) for d in documents if d.prompt]
        return sum(own) / len(own)

    seldom = SearchCorpus(1200, seed=3, check=0.03).documents()
    assert 0 < checks_a_response(seldom) < checks_a_response(pages) / 3
    for wrong in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match=rf"check: {wrong}"):
            SearchCorpus(10, check=wrong)
