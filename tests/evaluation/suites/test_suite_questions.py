"""The questions of suites keep their 10-grams, and not their wording, out of training data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from suite_rows import write_rows

from r1lit.batches import Problem
from r1lit.curation import Candidate, Context, Decontaminate
from r1lit.evaluation.suites import NAMES
from r1lit.evaluation.suites.questions import SuiteQuestions
from r1lit.rollout import ModelSpec


def test_all_suites_are_asked_for_and_absent_ones_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = str(write_rows(tmp_path / "data", "gsm8k", "math500", "mmlu"))
    asked = {suite.name for suite in SuiteQuestions(folder=folder).suites}
    assert asked == set(NAMES) - {"needle", "multi_hop"}
    few = SuiteQuestions(["gsm8k", "math500", "mmlu", "aime2024"], folder)
    with pytest.warns(UserWarning, match="the data of aime2024 cannot be loaded"):
        problems = few.problems()
    assert {problem.source for problem in problems} == {"gsm8k", "math500", "mmlu"}
    needed = SuiteQuestions(["gsm8k", "aime2024"], folder, needed=["aime2024"])
    with pytest.raises(ValueError, match=r"^suite aime2024: .*SuiteQuestions\.folder names$") as no:
        needed.problems()
    assert "data.f" not in str(no.value)  # a key of r1lit test's data, which a filter has not
    with pytest.raises(ValueError, match=r"no suite can be loaded; .* SuiteQuestions\.folder"):
        SuiteQuestions(["aime2024"], folder).problems()


def test_a_suites_wording_is_no_content_though_other_suites_lack_it(tmp_path):
    """MMLU's prompt stands in every question of it, and in few of all suites together."""
    rows = [
        {"question": f"Which of these is {i} plus {i}?", "choices": ["0", "1", "2", "3"],
         "answer": 1, "subject": "abstract_algebra"}
        for i in range(12)
    ]  # fmt: skip
    (tmp_path / "mmlu.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    long = "Ann has twelve red apples and buys seven more of them on Monday number {}"
    sums = [{"question": long.format(i), "answer": f"#### {i}"} for i in range(60)]
    (tmp_path / "gsm8k_test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sums))
    filter_ = Decontaminate([SuiteQuestions(["mmlu", "gsm8k"], str(tmp_path))], wording_share=0.9)
    filter_.begin(Context(seed=0, folder=Path(), model=ModelSpec(name="m", tokenizer=None)))
    [mmlu] = SuiteQuestions(["mmlu"], str(tmp_path)).problems()[:1]
    wording = mmlu.question.split("\n")[0]
    assert len(wording.split()) > 10
    assert reason(filter_, f"{wording} Which planet is largest?") is None
    assert "shares" in (reason(filter_, f"{long.format(7)} with Bob") or "")


def reason(filter_: Decontaminate, question: str) -> str | None:
    problem = Problem(uid="p", question=question, answer="", source="s")
    candidate = Candidate(
        problem=problem, sample=0, text="", status="right", reason="", num_tokens=1, finished=True
    )
    return filter_.drop([candidate])[0]
