import time
from itertools import permutations, product

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import CountdownVerifier


def verdict_of(
    answer: str, numbers: tuple[int, ...] = (3, 5, 7), target: int = 56, **meta: int
) -> Verdict:
    meta = {"numbers": list(numbers), "target": target, **meta}
    problem = Problem(uid="c", question="", answer="", source="countdown", meta=meta)
    response = f"<think> 3 + 5 = 8 </think> <answer> {answer} </answer>"
    return CountdownVerifier().verify_timed(response, problem)


@pytest.mark.parametrize(
    "answer",
    ["(3 + 5) * 7", "7*(5+3)", "((3)+(5))*((7))", "(3 + 5) × 7", "(3+5)·7 = 56", "(03 + 5) * 7"],
)
def test_right(answer: str):
    verdict = verdict_of(answer)
    assert (verdict.value, verdict.status, verdict.canonical) == (1.0, "right", "56")


@pytest.mark.parametrize(
    ("answer", "canonical", "reason"),
    [
        ("3 + 5 * 7", "38", "equals 38, not 56"),
        ("5 / 3 + 7", "26/3", "equals 26/3, not 56"),
        ("3 − 5 − 7", "-9", "equals -9, not 56"),
        ("7 ÷ 5 ÷ 3", "7/15", "equals 7/15, not 56"),
        ("3 * 3 * 5 + 7 + 4", None, "uses 3 twice"),
        ("8 * 7", None, "uses 8, which is not given"),
        ("5 + 7", None, "does not use 3"),
        ("56", None, "uses 56, which is not given"),
        ("(3 + 5) * 7 = 57", None, "equals 56, not 57 as it says"),
        ("7 / (5 - 5)", None, "divides by zero"),
    ],
)
def test_wrong(answer: str, canonical: str | None, reason: str):
    verdict = verdict_of(answer)
    assert (verdict.status, verdict.canonical, verdict.reason) == ("wrong", canonical, reason)


def test_equal_numbers_are_counted():
    assert verdict_of("3 * 3 + 7", (3, 3, 7), 16).status == "right"
    assert verdict_of("3 + 7", (3, 3, 7), 10).reason == "uses 3 only once"
    assert verdict_of("3 + 3 + 3 + 7", (3, 3, 7), 16).reason == "uses 3 3 times"


def test_some_of_the_numbers():
    def reason(answer: str) -> str:
        return verdict_of(answer, (3, 5, 7, 8), 56, num_used=3).reason

    assert reason("(3 + 5) * 7") == ""
    assert reason("7 * 8") == "uses 2 numbers, not 3"
    assert reason("(3 + 5) * 7 + 8 - 8") == "uses 8 twice"
    assert reason("7 * 8 + 3 - 3") == "uses 3 twice"
    assert reason("3 + 5 + 7 + 8") == "uses 4 numbers, not 3"


def test_fractions_on_the_way_are_exact():
    assert verdict_of("8 / (3 - 8 / 3)", (3, 3, 8, 8), 24).status == "right"
    assert verdict_of("1 / 3 * 3", (1, 3, 3), 1).status == "right"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "(3 + 5) * 7 = 56 = 56",
        "(3 + 5) * 7 = 28 * 2",
        "56 = (3 + 5) * 7",
        "(3 + 5) * 7 =",
        "(3 + 5)(7)",
        "3 5 7",
        "-3 + 5 + 7",
        "3 + (-5) + 7",
        "+3 + 5 + 7",
        "3 ** 5 + 7",
        "3 // 5 + 7",
        "3 ^ 5 + 7",
        "9**9**9",
        "1e9999",
        "3.0 + 5 + 7",
        "3_0 + 5 + 7",
        "٣ + 5 + 7",
        "3² + 5 + 7",
        "(3 + 5 * 7",
        "3 + 5) * 7",
        "3 + ",
        "()",
        "__import__('os').getpid()",
        "(3 + 5) * 7 or 3 + 5 * 7",
        r"\frac{3}{5} + 7",
        "(" * 50 + "3 + 5" + ")" * 50 + " * 7",
        "(" * 10_000,
        "9" * 1_000_000,
    ],
)
def test_unparsed_at_no_cost(answer: str):
    start = time.process_time()
    verdict = verdict_of(answer)
    assert (verdict.value, verdict.status, verdict.canonical) == (0.0, "unparsed", None)
    assert verdict.reason
    assert time.process_time() - start < 2.0


def test_agrees_with_python_on_every_expression_of_three_numbers():
    """Python's own arithmetic, on text that we wrote ourselves, is the grader of the parser."""
    values: dict[bool, int] = {True: 0, False: 0}
    for (a, b, c), p, q in product(permutations((2, 3, 12)), "+-*/", "+-*/"):
        for text in (f"{a}{p}{b}{q}{c}", f"({a} {p} {b}) {q} {c}", f"{a} {p} ({b} {q} {c})"):
            expected = eval(text)
            verdict = verdict_of(text, (2, 3, 12), 6)
            assert (verdict.status == "right") == (abs(expected - 6) < 1e-9), text
            values[verdict.status == "right"] += 1
    assert values[True] > 5 and values[False] > 100


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (r"so \boxed{(3+5)*7}", "right"),
        (r"<answer> $(3 + 5) \times 7$ </answer>", "right"),
        (r"<answer> \boxed{\left(3+5\right) \cdot 7 = 56} </answer>", "right"),
        (r"<answer> (3 + 5) * 7 </answer> no, \boxed{3 + 5 * 7}", "wrong"),
        (r"<think> \boxed{(3+5)*7} </think>", "unparsed"),
        (r"\boxed{(3+5)*7", "unparsed"),
        (r"\boxed{(3+5)*7 \text{ or } 3}", "unparsed"),
    ],
)
def test_boxes_and_signs_of_latex(response: str, status: str):
    meta = {"numbers": [3, 5, 7], "target": 56}
    problem = Problem(uid="c", question="", answer="", source="countdown", meta=meta)
    assert CountdownVerifier().verify(response, problem).status == status


@pytest.mark.parametrize(
    "response", ["", "(3 + 5) * 7", "<think> <answer>(3 + 5) * 7</answer>", "<answer>(3 + 5) * 7"]
)
def test_no_answer(response: str):
    meta = {"numbers": [3, 5, 7], "target": 56}
    problem = Problem(uid="c", question="", answer="", source="countdown", meta=meta)
    verdict = CountdownVerifier().verify(response, problem)
    assert (verdict.status, verdict.reason) == ("unparsed", "no <answer>")


def test_a_problem_without_target_is_the_users_mistake():
    problem = Problem(uid="c7", question="", answer="", source="x", meta={"numbers": [1]})
    with pytest.raises(ValueError, match=r"'c7' has no target"):
        CountdownVerifier().verify("<answer>1</answer>", problem)


def test_it_takes_microseconds():
    verdict_of("(3 + 5) * 7")
    fastest = min(verdict_of("(3 + 5) * 7 = 56").seconds for _ in range(200))
    assert fastest < 200e-6
