from __future__ import annotations

import re
from pathlib import Path

import pytest

from r1lit.text.prompts import R1_ZERO, TEMPLATES, render

ROOT = Path(__file__).resolve().parents[2]


def test_r1_zero_is_the_paper_s_table_1():
    assert render("r1_zero", "What is 2 + 2?") == (
        "A conversation between User and Assistant. The user asks a question, and the Assistant "
        "solves it. The assistant first thinks about the reasoning process in the mind and then "
        "provides the user with the answer. The reasoning process and answer are enclosed within "
        "<think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning "
        "process here </think> <answer> answer here </answer>. User: What is 2 + 2?. Assistant:"
    )
    assert TEMPLATES["r1_zero"] == R1_ZERO
    assert render("small_world", "2?") == render("r1_zero", "2?").replace("2?. A", "2? A")


def test_presets_ask_the_shipped_base_as_it_was_pretrained_and_real_models_as_the_paper_does():
    def used(*patterns):
        paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
        # which compares them, and which has a base of its own, of pages of questions and answers
        paths = [
            p for p in paths if p.parent.name not in ("prompts", "tools") or len(patterns) == 1
        ]
        real = "configs/data/*" in patterns  # the small scale on a GPU is one of real models
        paths = [path for path in paths if real or path.stem != "small_real"]
        return {t for p in paths for t in re.findall(r"template: (\w+)", p.read_text())}

    assert used("configs/mini/*", "configs/r1/*.yaml", "experiments/*/[!f]*.yaml") == {
        "small_world",
        "chat",
    }
    assert used("experiments/tools/*.yaml") == {"question_answer", "chat"}  # chat: the roles
    full = ("configs/r1/full/**/*.yaml", "configs/r1/small_real/*", "experiments/r1/[fs]*l.yaml")
    real = used("configs/*.yaml", "configs/data/*", "configs/eval/*", *full)
    assert "r1_zero" in real and "small_world" not in real


def test_templates_by_name_and_in_full():
    assert render("question_answer", "Why?") == "Question: Why?\nAnswer:"
    assert render("plain", "Why?") == "Why?"
    assert render("Q={question};", "Why?") == "Q=Why?;"


def test_braces_in_questions_are_left_alone():
    assert render("plain", r"\frac{1}{2} {question} {}") == r"\frac{1}{2} {question} {}"


def test_no_template_is_an_error():
    with pytest.raises(ValueError, match="template: 'r1-zero' is neither one of"):
        render("r1-zero", "Why?")


def test_every_template_has_one_place_for_the_question():
    assert all(text.count("{question}") == 1 for text in TEMPLATES.values())
