"""None"""

from __future__ import annotations

import ast
import re
import time

import pytest
from tiny import ROOT

from r1lit.text.extract import extract_answer, extract_final, thinking_and_answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think> a </think> <answer> 7 </answer>", "7"),
        ("<think> a </think> <answer> 7 </answer> <answer>\n8 \t</answer>", "8"),
        ("<answer>7</answer>", "7"),
        ("no tags were promised </think> <answer>7</answer>", "7"),
        ("<answer>7</answer> <answer> 8", "7"),
        ("<answer> 6 <answer> 7 </answer> </answer>", "7"),
        ("<think> <think> a </think> <answer>7</answer>", "7"),
        ("<think> a </think> b </think> <answer>7</answer>", "7"),
        ("<think> a </think> <answer>7</answer> <think> hm <answer>8</answer> </think>", "7"),
        ("<think> a </think> <answer>7</answer> <think> and on <answer>8</answer>", "7"),
        ("<answer>\u200b7\u200d1\ufeff</answer>", "71"),
        ("<answer></answer>", ""),
        ("", None),
        ("7", None),
        ("<answer> 7", None),
        ("7 </answer>", None),
        ("</answer> 7 <answer>", None),
        ("<think> <answer>7</answer> </think>", None),
        ("<think> a <answer>7</answer>", None),
        ("thought in the prompt's tags: <answer>7</answer> </think>", None),
        ("<think> a <think> b </think> <think> <answer>7</answer>", None),
        ("<Answer>7</Answer>", None),
        ("<ans\u200bwer>7</ans\u200bwer>", None),
    ],
)
def test_extract_answer(response: str, answer: str | None):
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "parts"),
    [
        ("<think> a </think> b", (" a ", " b")),
        ("x <think> a </think> b", (" a ", "x  b")),
        ("a </think> b", ("a ", " b")),
        ("<think> a", (" a", "")),
        ("b", ("", "b")),
        ("<think>1</think>2<think>3</think>4", ("13", "24")),
        ("", ("", "")),
    ],
)
def test_thinking_and_answer(response: str, parts: tuple[str, str]):
    assert thinking_and_answer(response) == parts


@pytest.mark.parametrize(
    ("response", "box"),
    [
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {3}", "3"),
        (r"{ \boxed{4}", "4"),
        (r"\boxed{5} \boxed{6", "5"),
        (r"<think> \boxed{7} </think> so", None),
        (r"<think> \boxed{7}", None),
        (r"\boxed{8", None),
        ("9", None),
    ],
)
def test_extract_a_box(response: str, box: str | None):
    assert extract_final(response) == box


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        "<answer></answer>",
        "\\boxed{",
        "{",
        "<",
    ],
)
def test_a_megabyte_takes_linear_time(piece: str):
    response = piece * (1_000_000 // len(piece)) + "</think> <answer> 7 </answer>"
    start = time.process_time()
    extract_final(response)
    assert extract_answer(response) == "7"
    assert time.process_time() - start < 5.0


FILES = sorted((ROOT / "r1lit").rglob("*.py"))
BEHIND_A_GROUP = re.compile(r"\)(?:[*+?]|\{\d+(?:,\d*)?\})\+")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_possessive_quantifier_stands_behind_a_group(path):
    # Python 3.11.0 to 3.11.4 matches too much or nothing (gh-106052); (?>…) is right in all
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not BEHIND_A_GROUP.search(node.value), node.value
