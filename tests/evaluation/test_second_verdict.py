"""A second verdict, from a response's text and its gold answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from r1lit.evaluation.second_verdict import answer_of, is_right
from r1lit.files import read_records

RECORDED = Path(__file__).parents[2] / "notebooks" / "data" / "aha" / "responses.jsonl"


@pytest.mark.parametrize(
    ("response", "gold", "right"),
    [
        ("<think> 6 * 7 = 42 </think> <answer> 7 * 6 </answer>", "7 * 6", True),
        ("<answer>(3+5)*7</answer>", "7 * ( 5 + 3 )", True),
        ("<answer> 3 + 5 * 7 </answer>", "7 * ( 5 + 3 )", False),
        ("<answer> 28 * 2 </answer>", "7 * ( 5 + 3 )", None),  # other numbers: not known
        (r"So \boxed{1,080}.", "1080", True),
        (r"\boxed{\frac{1}{2}}", "0.5", True),
        ("<answer> 0.333 </answer>", "1/3", None),  # may be rounded
        ("<answer> 0.4 </answer>", "1/3", False),
        ("x = 12", "12", True),
        ("<answer> x = 13 </answer>", "12", False),
        ("The answer is 12.", "12", True),
        ("<answer> Blue </answer>", "blue", True),
        ("<answer> azure </answer>", "blue", None),
        ("<answer> 5 / 0 </answer>", "5", None),
        ("", "5", None),
        ("<answer> 5 </answer>", "", None),
    ],
)
def test_numbers_expressions_and_texts(response: str, gold: str, right: bool | None) -> None:
    assert is_right(response, gold) is right


def test_the_answer_of_a_text_without_tags_is_in_its_last_line() -> None:
    assert answer_of("First 5.\nThe answer is: 7.") == "7"


def test_it_never_contradicts_the_verdicts_of_a_real_run() -> None:
    rows = read_records(RECORDED)
    pairs = [(x["status"], is_right(x["response"], str(x["answer"]))) for x in rows]
    assert ("right", False) not in pairs and ("wrong", True) not in pairs
    assert sum(v is not None for s, v in pairs) > 0.9 * len(pairs) > 500
