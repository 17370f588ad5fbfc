"""The audit of a verifier: rates that are known beforehand, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from r1lit.evaluation.audit import REWRITES, audit, main
from r1lit.problems import Problem, Verdict
from r1lit.verifiers import Grader, Verifier
from r1lit.verifiers.base import conclude

SUMS = [
    Problem(uid=str(n), question=f"What is {n} + {n}?", answer=str(2 * n), source="sums")
    for n in (7, 12, 600)
]
CHOICES = [
    Problem(uid=letter, question="Which?", answer=letter, source="c", verifier="choice",
            meta={"choices": ["red", "green", "blue"]})
    for letter in "ABC"
]  # fmt: skip


class Lenient(Verifier):
    """Pays what contains the gold answer."""

    def verify(self, response: str, problem: Problem) -> Verdict:
        found = problem.answer in response
        return conclude("right" if found else "wrong", None, "")


class Refusing(Verifier):
    """Pays nothing but the bare answer in tags."""

    def verify(self, response: str, problem: Problem) -> Verdict:
        bare = response == f"<answer> {problem.answer} </answer>"
        return conclude("right" if bare else "wrong", None, "")


def rows(report: dict, keeps: bool) -> dict[str, tuple[int, int]]:
    return {
        row["rewrite"]: (row["false"], row["n"])
        for row in report["rewrites"]
        if row["keeps"] == keeps
    }


def test_names_are_told_apart():
    assert len({(rewrite.name, rewrite.keeps) for rewrite in REWRITES}) == len(REWRITES)


@pytest.mark.long
@pytest.mark.parametrize("problems", [SUMS, CHOICES], ids=["sums", "choices"])
def test_the_own_verifiers_are_right_on_every_rewrite(problems):
    grader = Grader()
    try:
        report, cases = audit(problems, grader, progress=False)
    finally:
        grader.close()
    assert cases == []
    assert report["false_positives"]["value"] == report["false_negatives"]["value"] == 0
    assert report["false_positives"]["problems"]["high"] > 0.5  # three problems show little
    assert all(n in (1, 3) for _, n in {**rows(report, True), **rows(report, False)}.values())


def test_a_lenient_verifier_pays_what_is_denied_and_a_strict_one_refuses_forms():
    report, cases = audit(SUMS, Grader({"math": Lenient()}), progress=False)
    paid = rows(report, False)
    assert paid["denied"] == paid["one of two"] == paid["only thought"] == (3, 3)
    assert paid["refusal"] == paid["nothing"] == paid["another problem's answer"] == (0, 3)
    assert rows(report, True)["box"] == (0, 3)
    assert rows(report, True)["commas of thousands"] == (1, 1)  # 1,200 does not contain 1200
    assert {case["rewrite"] for case in cases if not case["keeps"]} >= {"denied", "sign changed"}
    report, _ = audit(SUMS, Grader({"math": Refusing()}), progress=False)
    assert rows(report, True)["as it is"] == (0, 3) and rows(report, True)["box"] == (3, 3)
    assert report["false_positives"]["value"] == 0 < report["false_negatives"]["low"]


def test_the_command_writes_the_false_verdicts(tmp_path: Path, capsys):
    table = tmp_path / "sums.jsonl"
    lines = [json.dumps({"question": p.question, "answer": p.answer}) for p in SUMS]
    table.write_text("\n".join(lines))
    run = tmp_path / "audit"
    arguments = ["--problems", "TableProblems", "--problems.path", str(table), "--run", str(run)]
    main([*arguments, "--verifier", "test_audit.Lenient"])
    printed = capsys.readouterr().out
    assert "wrong answers are paid" in printed and "| changed | denied | 3 | 3 |" in printed
    cases = [json.loads(line) for line in (run / "cases.jsonl").read_text().splitlines()]
    report = json.loads((run / "audit.json").read_text())
    assert len(cases) == sum(row["false"] for row in report["rewrites"])
    assert all(case["gold"] and case["response"] for case in cases)


@pytest.mark.long
def test_what_cannot_be_audited_is_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match=r"^problems: no other problem of verifier 'math'"):
        audit([SUMS[0]], Grader(), progress=False)
    code = Problem(uid="f", question="", answer="", source="s", verifier="functional_code")
    with pytest.raises(ValueError, match=r"^problems: 'f' has no gold answer to rewrite"):
        audit([code, code], Grader(), progress=False)
    table = tmp_path / "odd.jsonl"
    row = json.dumps({"question": "q", "answer": "So 5 of them, and then we eat 5 more of them."})
    table.write_text("\n".join([row, row.replace('"q"', '"p"')]))
    arguments = ["--problems", "TableProblems", "--problems.path", str(table)]
    with pytest.raises(ValueError, match=r"^problems: none of 2 gold answers"):
        main([*arguments, "--run", str(tmp_path / "run")])
