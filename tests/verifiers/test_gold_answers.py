"""Every gold answer passes its own verifier, and none passes when one digit or letter differs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.problems import LETTERS
from r1lit.verifiers import ChoiceVerifier, MathVerifier
from r1lit.verifiers.exact import normalised

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def rows(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in ../shared/data")
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def gold_answers(name: str) -> list[str]:
    key = "Answer" if name == "svamp.jsonl" else "answer"
    return [str(row[key]).split("####")[-1].strip() for row in rows(name)]


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
    [
        ("gsm8k_train.jsonl", 7473),
        ("gsm8k_test.jsonl", 1319),
        ("svamp.jsonl", 1000),
        ("math500.jsonl", 500),
    ],
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


def test_solutions_of_math500_pass_by_their_own_box(math_verifier: MathVerifier):
    """A whole written solution, whose last box holds the answer, is judged right."""
    problems = rows("math500.jsonl")
    golds = [Problem(uid="g", question="", answer=r["answer"], source="test") for r in problems]
    judged = math_verifier.verify_batch([row["solution"] for row in problems], golds)
    lost = [r["unique_id"] for r, v in zip(problems, judged, strict=True) if v.status != "right"]
    assert lost == []


def test_gold_answers_in_a_sentence(math_verifier: MathVerifier):
    """The weakest form finds the same answers, in English and in Chinese, and no perturbed one."""
    verifier = MathVerifier(timeout_s=20.0, last_expression=True)
    golds = gold_answers("gsm8k_test.jsonl")
    forms = (
        "Hence the answer is {}.",
        "The final answer is ${}$.",
        "所以答案是{}。",
        "So she has {}.",
    )
    for form in forms:
        texts = [form.format(gold) for gold in golds]
        others = [form.format(perturbed(gold)) for gold in golds]
        problems = [Problem(uid="g", question="", answer=gold, source="test") for gold in golds]
        assert {v.status for v in verifier.verify_batch(texts, problems)} == {"right"}
        assert {v.status for v in verifier.verify_batch(others, problems)} == {"wrong"}
        assert {v.status for v in math_verifier.verify_batch(texts, problems)} == {"unparsed"}
    verifier.close()


@pytest.mark.long
def test_mmlu():
    """Every right letter passes, in many forms and as the option's text; no other letter does."""
    verifier = ChoiceVerifier()
    problems = rows("mmlu_dev_val.jsonl")
    assert len(problems) == 1816
    forms = ("<answer> {} </answer>", r"So \boxed{{{}}}.", "The answer is ({}).", "Answer: **{}**")
    same = texts = 0
    for n, row in enumerate(problems):
        choices, right = row["choices"], LETTERS.index(row["answer"])
        problem = Problem(
            uid=str(n), question="", answer=row["answer"], source="mmlu", meta={"choices": choices}
        )
        for place, choice in enumerate(choices):
            letter, expected = LETTERS[place], float(place == right)
            labelled = f"<answer> {letter}. {choice} </answer>"
            for response in (forms[(n + place) % 4].format(letter), labelled):
                verdict = verifier.verify(response, problem)
                assert (verdict.value, verdict.canonical) == (expected, letter), (n, response)
            texts += 1
            verdict = verifier.verify(f"<answer> {choice} </answer>", problem)
            assert verdict.value == expected or verdict.status == "unparsed", (n, choice, verdict)
            if verdict.canonical != letter:
                same += 1
                twin = [c for c in choices if normalised(c) == normalised(choice)]
                assert len(twin) > 1 and verdict.status == "unparsed", (n, choice, verdict)
        both = f"<answer> {LETTERS[right]} or {LETTERS[right - 1]} </answer>"
        assert verifier.verify(both, problem).status == "unparsed"
    assert texts == 4 * 1816 and same == 8, same  # the data repeats an option in four problems
