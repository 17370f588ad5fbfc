import json
import random
from itertools import product

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import Grader, LogicVerifier
from r1lit.verifiers.logic import broken, holds, knights_problem, make_puzzle, question, solutions

# Ann: Bob is a knave. Bob: we are of the same kind. So Ann is a knight, Bob a knave.
PUZZLE = Problem(
    uid="k",
    question="",
    answer="Ann is a knight, Bob is a knave",
    source="t",
    verifier="logic",
    meta={"names": ["Ann", "Bob"], "statements": [["knave", 1], ["same", 0, 1]]},
)


def verdict_of(answer: str, problem: Problem = PUZZLE) -> Verdict:
    return LogicVerifier().verify(f"<think> x </think> <answer> {answer} </answer>", problem)


@pytest.mark.parametrize(
    "answer",
    [
        "Ann is a knight, Bob is a knave",
        "Bob is a knave and Ann is a knight.",
        "ann: KNIGHT; bob: knave",
        "**Ann** is a **knight**\n* Bob = knave",
        "- Ann -> knight\n- Bob -> knave",
        "Ann (knight), Bob (knave)",
        r"\text{Ann is a knight, Bob is a knave}",
        "So Ann is a knight while Bob is a knave",
        r"\boxed{Ann is a knight, Bob is a knave}",
    ],
)
def test_right(answer: str):
    verdict = verdict_of(answer)
    assert (verdict.status, verdict.canonical) == ("right", "KN"), verdict


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ("Ann is a knave, Bob is a knight", "wrong", "what Bob says does not fit"),
        ("Ann is a knight, Bob is a knight", "wrong", "what Ann says does not fit"),
        ("Ann is a knight", "unparsed", "does not say what Bob is"),
        ("", "unparsed", "does not say what Ann is"),
        ("Ann is a knight, Bob is a knave, Ann is a knave", "unparsed", "says twice what Ann is"),
        ("Ann is a knight or Bob is a knave", "unparsed", "does not understand 'or Bob"),
        ("Ann is a knight or a knave, Bob is a knave", "unparsed", "does not understand 'or a"),
        ("Ann is not a knave, Bob is a knave", "unparsed", "does not understand 'Ann is not"),
        ("Ann is a knight, Bob is a knave, Cid is a knave", "unparsed", "does not understand 'Cid"),
        ("everyone says only what is true", "unparsed", "does not understand"),
        ("Ann is a knighthood, Bob is a knave", "unparsed", "does not understand"),
        ("Ann is a knight, Bob is a knave?", "unparsed", "does not understand '?'"),
        ("Ann is a knight, Bob is a knave. " * 100, "unparsed", "is longer than 2000"),
    ],
)
def test_not_right(answer: str, status: str, reason: str):
    verdict = verdict_of(answer)
    assert verdict.status == status and verdict.reason.startswith(reason), verdict


@pytest.mark.parametrize(
    "response",
    ["", "Ann is a knight, Bob is a knave", "<think> <answer>Ann is a knight, Bob is a knave"],
)
def test_no_answer(response: str):
    verdict = LogicVerifier().verify(response, PUZZLE)
    assert (verdict.status, verdict.canonical) == ("unparsed", None)


def test_a_stored_answer_does_not_decide():
    lying = Problem(**{**vars(PUZZLE), "answer": "Ann is a knave, Bob is a knight"})
    assert verdict_of("Ann is a knight, Bob is a knave", lying).status == "right"
    assert verdict_of(lying.answer, lying).status == "wrong"


def test_what_statements_mean():
    both, none, first = (True, True), (False, False), (True, False)
    truth = {
        ("knight", 0): (1, 0, 1),
        ("knave", 0): (0, 1, 0),
        ("same", 0, 1): (1, 1, 0),
        ("number", 1): (0, 0, 1),
        ("not", ("knight", 1)): (0, 1, 1),
        ("and", ("knight", 0), ("knave", 1)): (0, 0, 1),
        ("or", ("knave", 0), ("knight", 1)): (1, 1, 0),
        ("if", ("knight", 0), ("knight", 1)): (1, 1, 0),
    }
    for statement, expected in truth.items():
        assert tuple(holds(statement, k) for k in (both, none, first)) == expected, statement


def test_generated_puzzles_have_one_solution_and_only_it_passes():
    kinds = set()
    for seed in range(60):
        count = 2 + seed % 5
        problem = knights_problem(count, seed)
        names, statements = problem.meta["names"], problem.meta["statements"]
        kinds |= {s[0] for s in statements}
        (solution,) = solutions(statements)
        right = []
        for knights in product((True, False), repeat=count):
            parts = [
                f"{name} is a {'knight' if knight else 'knave'}"
                for name, knight in zip(names, knights, strict=True)
            ]
            random.Random(seed).shuffle(parts)
            if verdict_of(", ".join(parts), problem).status == "right":
                right.append(knights)
        assert right == [solution]
        assert verdict_of(problem.answer, problem).status == "right"
        assert json.loads(json.dumps(problem.meta)) == problem.meta
        assert all(name in problem.question for name in names)
    assert kinds >= {"knight", "knave", "same", "number", "and", "or", "if"}


def test_puzzles_are_a_function_of_size_and_seed():
    assert knights_problem(4, 7) == knights_problem(4, 7)
    assert len({knights_problem(4, seed).question for seed in range(50)}) == 50
    with pytest.raises(ValueError, match="num_inhabitants: 11"):
        make_puzzle(11, 0)
    with pytest.raises(ValueError, match="num_inhabitants: 1"):
        make_puzzle(1, 0)


def test_a_puzzle_in_words():
    text = question(["Ann", "Bob"], [["and", ["knight", 1], ["number", 1]], ["not", ["knave", 0]]])
    assert '"both Bob is a knight and exactly 1 of us is a knight."' in text
    assert '"it is not so that Ann is a knave."' in text
    assert broken([["knight", 1], ["knight", 0]], (True, False)) == 0


@pytest.mark.parametrize(
    "meta",
    [
        {"names": ["Ann"]},
        {"names": ["Ann", "Bob"], "statements": [["knight", 1]]},
        {"names": ["Ann", "ann"], "statements": [["knight", 1], ["knight", 0]]},
        {"names": ["Ann", "Bob"], "statements": [["knight", 2], ["knight", 0]]},
        {"names": ["Ann", "Bob"], "statements": [["wizard", 1], ["knight", 0]]},
        {"names": ["Ann", "Bob"], "statements": [["and", ["knight", 1]], ["knight", 0]]},
        {"names": ["Ann", "Bob"], "statements": ["knight", "knave"]},
    ],
)
def test_bad_puzzles_are_told(meta: dict):
    problem = Problem(uid="k", question="", answer="", source="", meta=meta)
    with pytest.raises(ValueError, match=r"meta|statements"):
        verdict_of("Ann is a knight, Bob is a knave", problem)


def test_the_judge_knows_it():
    grader = Grader()
    texts = [f"<answer>{PUZZLE.answer}</answer>"]
    assert grader.verdicts(texts, [PUZZLE])[0].status == "right"
