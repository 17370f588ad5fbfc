import csv
from fractions import Fraction
from pathlib import Path

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import Game24Verifier

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def verdict_of(response: str, numbers: object = (4, 9, 10, 13), **meta: int) -> Verdict:
    problem = Problem(
        uid="g", question="", answer="", source="t", meta={"numbers": numbers, **meta}
    )
    return Game24Verifier().verify(response, problem)


@pytest.mark.parametrize(
    "response",
    [
        "<answer>(10 - 4) * (13 - 9)</answer>",
        "<answer>(10 - 4) * (13 - 9) = 24</answer>",
        r"\boxed{(10 - 4) \times (13 - 9)}",
        r"$\boxed{(10-4)\cdot(13-9)=24}$",
        r"<answer>$\left(10-4\right)\times(13-9)$</answer>",
        "13 - 9 = 4 (left: 4 4 10)\nAnswer: (10 - 4) * (13 - 9) = 24",
        "**Answer:** (13 − 9) × (10 − 4)",
        "Answer: 4 * 9\nAnswer: (10 - 4) * (13 - 9) = 24.",
    ],
)
def test_right(response: str):
    verdict = verdict_of(response)
    assert (verdict.status, verdict.canonical) == ("right", "24")


@pytest.mark.parametrize(
    ("response", "status", "reason"),
    [
        ("<answer>24</answer>", "wrong", "uses 24, which is not given"),
        ("<answer>4 * 9 - 10 - 13</answer>", "wrong", "equals 13, not 24"),
        ("<answer>(10 - 4) * (13 - 9) = 25</answer>", "wrong", "equals 24, not 25 as it says"),
        ("<answer>4 + 10 + 10</answer>", "wrong", "uses 10 twice"),
        ("<answer>4 / (9 - 9)</answer>", "wrong", "divides by zero"),
        ("<answer>24 = (10 - 4) + (13 - 9)</answer>", "wrong", "equals 10, not 24 as it says"),
        ("<answer>24 = 24 = (10 - 4) * (13 - 9)</answer>", "unparsed", "has no single"),
        ("<answer>(10-4)*(13-9) or 24</answer>", "unparsed", "has 'o' where"),
        ("<answer>10 - 4 = 6, 13 - 9 = 4, 6 * 4 = 24</answer>", "unparsed", "has no single"),
        ("<answer>int('24')</answer>", "unparsed", "has 'i' where"),
        (r"<answer>\frac{4}{9}</answer>", "unparsed", "has"),
        ("(10 - 4) * (13 - 9)", "unparsed", "no <answer>"),
        ("<think> Answer: (10 - 4) * (13 - 9) </think>", "unparsed", "no <answer>"),
        ("<answer> unfinished\nAnswer: (10 - 4) * (13 - 9)", "unparsed", "no <answer>"),
        ("", "unparsed", "no <answer>"),
    ],
)
def test_not_right(response: str, status: str, reason: str):
    verdict = verdict_of(response)
    assert verdict.status == status and verdict.reason.startswith(reason), verdict


def test_numbers_and_target():
    assert verdict_of("<answer>1 + 2</answer>", "1 2", target=3).status == "right"
    for numbers in (None, "", "1 x", [1.0], [True], [-1], []):
        with pytest.raises(ValueError, match="numbers of problem 'g'"):
            verdict_of("<answer>1</answer>", numbers)


def solve(terms: list[tuple[Fraction, str]]) -> str | None:
    """Return an expression that is 24, by combining any two of the terms until one is left."""
    if len(terms) == 1:
        return terms[0][1] if terms[0][0] == 24 else None
    for i, (a, left) in enumerate(terms):
        for j, (b, right) in enumerate(terms):
            if i == j:
                continue
            rest = [term for k, term in enumerate(terms) if k not in (i, j)]
            options = [(a - b, "-")]
            if i < j:
                options += [(a + b, "+"), (a * b, "*")]
            if b:
                options.append((a / b, "/"))
            for value, sign in options:
                found = solve([*rest, (value, f"({left} {sign} {right})")])
                if found:
                    return found
    return None


@pytest.mark.long
@pytest.mark.skipif(not (DATA / "game24.csv").is_file(), reason="the shared data is not here")
def test_every_solvable_puzzle():
    with (DATA / "game24.csv").open(newline="") as file:
        puzzles = [row["Puzzles"] for row in csv.DictReader(file)]
    assert len(puzzles) == 1362
    solved = 0
    for puzzle in puzzles:
        expression = solve([(Fraction(n), n) for n in puzzle.split()])
        if expression is None:
            continue
        solved += 1
        for response in (f"<answer> {expression} </answer>", f"Answer: {expression} = 24"):
            assert verdict_of(response, puzzle).status == "right", (puzzle, expression)
        other = expression.replace(puzzle.split()[0], str(int(puzzle.split()[0]) + 20), 1)
        assert verdict_of(f"<answer> {other} </answer>", puzzle).status == "wrong"
        bare = f"<answer> {expression.translate(dict.fromkeys(map(ord, '()')))} </answer>"
        value = verdict_of(bare, puzzle)
        assert value.canonical is not None or value.reason == "divides by zero"
    assert solved == 1362
