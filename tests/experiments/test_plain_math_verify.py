"""Math-verify alone beside ours: what an audit of both says, and labelled solutions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.wrong_verdicts import labelled
from experiments.wrong_verdicts.plain import PlainMathVerify
from r1lit.evaluation.audit import main as audit
from r1lit.files import write_records
from r1lit.problems import Problem

WHOLE = PlainMathVerify(whole_response=True)


def status(verifier: PlainMathVerify, response: str, gold: str) -> str:
    problem = Problem(uid="p", question="", answer=gold, source="s", verifier="math")
    return verifier.verify(response, problem).status


@pytest.mark.parametrize(
    ("response", "gold", "extracted", "whole"),
    [
        (r"<answer> 3\sqrt{13} </answer>", r"3\sqrt{13}", "right", "wrong"),
        (r"So \boxed{0.5}.", r"\frac12", "right", "right"),
        ("<think> 7 </think> <answer> I do not know. </answer>", "7", "wrong", "right"),
        ("<answer> not 7 </answer>", "7", "wrong", "right"),
        ("nothing", "7", "unparsed", "unparsed"),
    ],
)
def test_math_verify_reads_the_answer_or_the_whole_response(response, gold, extracted, whole):
    found = status(PlainMathVerify(), response, gold), status(WHOLE, response, gold)
    assert found == (extracted, whole)


def test_the_audit_takes_it_in_place_of_ours(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in (11, 17, 23)]
    write_records(tmp_path / "sums.jsonl", rows)
    words = ["--problems", "TableProblems", f"--problems.path={tmp_path}/sums.jsonl"]
    plain = ["--verifier=experiments.wrong_verdicts.plain.PlainMathVerify"]
    paid = {}
    for name, own in (("ours", []), ("plain", [*plain, "--verifier.whole_response=true"])):
        audit([*words, f"--run={tmp_path / name}", *own])
        cases = (tmp_path / name / "cases.jsonl").read_text().splitlines()
        paid[name] = {c["rewrite"] for c in map(json.loads, cases) if not c["keeps"]}
    assert paid["ours"] == set() and {"only thought", "denied"} <= paid["plain"]


def test_labelled_solutions_are_matched_with_their_gold_answers(tmp_path, capsys) -> None:
    def solution(n: int, answer: int) -> dict:
        steps = ["So", f"\\boxed{{{answer}}}"]
        own = {"steps": steps, "final_answer_correct": answer == n}
        return {"id": f"gsm8k-{n}", "problem": f"Problem {n}? ", **own}

    write_records(tmp_path / "bench.jsonl", [solution(1, 1), solution(2, 3), solution(9, 9)])
    gold = [{"question": f"Problem {n}?", "answer": f"Sums.\n#### {n}"} for n in (1, 2)]
    write_records(tmp_path / "gold.jsonl", [*gold, {"question": "Problem 9?", "answer": None}])
    assert labelled.main([f"{tmp_path}/bench.jsonl", f"{tmp_path}/gold.jsonl"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + 4
    assert all(row.endswith("| 0 of 1 | 0 of 1 |") for row in table[2:])
