"""Every gold answer passes its own verifier, and none passes when one digit or letter differs."""

import json
import re
from pathlib import Path

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import MathVerifier

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def gold_answers(name: str) -> list[str]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in ../shared/data")
    answers = [json.loads(line)["answer"] for line in path.read_text().splitlines()]
    return [answer.split("####")[-1].strip() for answer in answers]


def perturbed(answer: str) -> str:
    if re.search(r"\d", answer):
        return re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), answer, count=1)
    if answer.startswith(r"\text"):
        return re.sub(r"([A-Za-z])(\)?\})$", lambda m: ("D" if m[1] != "D" else "B") + m[2], answer)
    return f"7 + {answer}"


def verdicts(verifier: MathVerifier, answers: list[str], golds: list[str]) -> list[Verdict]:
    responses = [f"<think> x </think> <answer> {answer} </answer>" for answer in answers]
    problems = [Problem(uid="g", question="", answer=gold, source="test") for gold in golds]
    return verifier.verify_batch(responses, problems)


@pytest.mark.parametrize(
    ("name", "count"),
    [("gsm8k_train.jsonl", 7473), ("gsm8k_test.jsonl", 1319), ("math500.jsonl", 500)],
)
def test_gold_answers(math_verifier: MathVerifier, name: str, count: int):
    golds = gold_answers(name)
    assert len(golds) == count
    judged = verdicts(math_verifier, golds, golds)
    assert [(g, v) for g, v in zip(golds, judged, strict=True) if v.status != "right"] == []
    assert all(verdict.canonical for verdict in judged)
    others = [perturbed(gold) for gold in golds]
    judged = verdicts(math_verifier, others, golds)
    assert [(o, v) for o, v in zip(others, judged, strict=True) if v.status != "wrong"] == []
