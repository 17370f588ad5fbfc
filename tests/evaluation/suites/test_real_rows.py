"""Suites on real rows: prompts are filled, gold answers are right, published readings agree."""

from __future__ import annotations

import json

import pytest
from tiny import ROOT

from r1lit.evaluation.suites import load_suite
from r1lit.problems import Problem

DATA = ROOT / ".." / "shared" / "data"
pytestmark = pytest.mark.skipif(
    not (DATA / "mmlu_dev_val.jsonl").is_file(), reason="the shared data is not here"
)

FILES = {
    "mmlu": ("mmlu_dev_val.jsonl", 1816),
    "mmlu_redux": ("mmlu_redux.jsonl.gz", 5432),  # 5,330 ok and 102 with a corrected letter
    "mmlu_pro": ("mmlu_pro_sample.jsonl", 210),
    "drop": ("drop_dev_sample.jsonl.gz", 1192),
    "mgsm": ("mgsm_en.tsv", 11 * 250),
    "math500": ("math500.jsonl", 500),
    "gsm8k": ("gsm8k_test.jsonl", 1319),
    "ifeval": ("ifeval_input.jsonl", 540),
}


@pytest.mark.parametrize("name", FILES)
def test_every_row_becomes_a_problem_whose_gold_answer_is_right(name):
    suite = load_suite(name)
    file, count = FILES[name]
    problems = suite.read(str(DATA / file))
    assert len({problem.uid for problem in problems}) == len(problems) == count
    if suite.grader is None:
        return
    verifier = suite.verifier
    verdicts = [verifier.verify(verifier.gold_text(p), p).status for p in problems]
    assert set(verdicts) == {"right"}
    refusal = "That cannot be said."  # to MMLU-Pro's last pattern, "I do not know" is the letter I
    assert {verifier.verify(refusal, p).status for p in problems} <= {"wrong", "unparsed"}


def test_mmlu_pro_reads_real_outputs_as_published():
    """Two of 210 differ: their outputs name no letter in either form, and were guessed."""
    verifier = load_suite("mmlu_pro").verifier
    with (DATA / "mmlu_pro_sample.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    read = [verifier.letter(row["model_outputs"], "ABCDEFGHIJ") for row in rows]
    differ = [row for row, letter in zip(rows, read, strict=True) if letter != row["pred"]]
    assert len(differ) == 2
    for row in differ:
        assert "answer is (" not in row["model_outputs"] and "nswer: " not in row["model_outputs"]


def test_drop_and_mmlu_pro_agree_with_the_rewards_of_another_harness():
    """Two of ten differ: its DROP counts "Oakland Raiders" fully, and "4" where golds are 2."""
    drop, letters = load_suite("drop").verifier, load_suite("mmlu_pro").verifier
    with (DATA / "suite_samples.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    values = []
    for row in rows:
        meta = row["metadata"]
        if row["benchmark"] == "drop":
            golds = "|".join(dict.fromkeys(meta["correct_answers"]))
            problem = _problem(golds, {})
            values.append((row["reward"], drop.verify(row["model_response"], problem).value))
        elif row["benchmark"] == "mmlu_pro":
            match = letters.verify(
                row["model_response"],
                _problem(row["expected_answer"], {"choices": meta["options"]}),
            )
            values.append((row["reward"], match.value))
    assert len(values) == 10
    differ = [(reward, value) for reward, value in values if reward != value]
    assert differ == [(1.0, 0.6667), (1.0, 0.0)]


def _problem(answer, meta):
    return Problem(uid="", question="", answer=answer, source="", meta=meta)
