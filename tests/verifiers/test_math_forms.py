"""The many ways to write an answer, and the ways to write none."""

from collections.abc import Callable

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import MathVerifier
from r1lit.verifiers.last_expression import last_expression

Decide = Callable[[str, str], Verdict]


@pytest.mark.parametrize("number", ["2", "(2)", "{2}", r"\left(2\right)"])
@pytest.mark.parametrize(
    "behind", ["(3)", "{3}", "[3]", r"\{3\}", r"\left(3\right)", r"\binom{3}{1}"]
)
def test_numbers_side_by_side_are_no_sum(verdict_of: Decide, number: str, behind: str):
    assert verdict_of(number + behind, "5").value == 0.0
    product = "(" in number + behind or "binom" in behind
    assert verdict_of(number + behind, "6").value == float(product)
    assert verdict_of(r"2\frac{1}{3}", "7/3").status == "right"


@pytest.mark.parametrize(
    ("response", "expression"),
    [
        ("The answer is 72.", "72"),
        ("First the answer is 3. Then the answer is: **72**.", "72"),
        (r"So the answer to the question is $\frac{1}{2}$.", r"\frac{1}{2}"),
        ("Final answer: 72", "72"),
        ("所以答案是72。", "72"),
        ("答案：$72$", "72"),
        ("so $x = 3$ and $x + 1 = 4$", "4"),
        (r"hence \[ x = 7 \]", "7"),
        ("She sold 48 + 24 = 72 clips.", "72"),
        ("It costs $1,080", "$1,080"),
        ("<think> The answer is 3. </think> It is 72", "72"),
        ("The answer is 3 or 4.", "3 or 4"),
        ("The answer is not 72.", "not 72"),
        ("It is 3 or 4", None),
        ("Is it 72?", None),
        ("No idea", None),
        ("", None),
        ("<think> The answer is 72.", None),
        ("<answer> 72", None),
        (r"\boxed{72", None),
        ("72\nand so on", None),
        ("The answer cannot be 72.", None),
        ("The answer can't be 72.", None),
        ("The answer could be $72$.", None),
        ("答案不是72。", None),
        ("答案可能是72", None),
        ("It is not $72$.", None),
        ("It might be 72", None),
        ("so $3$ or $4$", None),
        ("so $3$ or 4", None),
        ("Is it $72$?", None),
        ("The answer is 72?", "72?"),
        ("She could buy 72 apples.", "72"),
        ("It is not 3, so $x = 72$", "72"),
        ("She pays $5 and he pays $67, $72 in all.", "$72"),
        ("Janet makes $9 * 8 = $72 a day.", "$72"),
        ("First $5, then $ 6, so\n#### 1,080", "1,080"),
        (r"It costs $\$18.90$.", r"\$18.90"),
        ("The answer is $5x - 7y + 4 = 0$.", "5x - 7y + 4 = 0"),
        ("The answer is $f(2) = 0$.", "0"),
    ],
)
def test_last_expression(response: str, expression: str | None):
    assert last_expression(response) == expression


def test_what_is_no_number_votes_for_itself(verdict_of: Decide):
    assert verdict_of("4:00", "5:00").canonical != verdict_of("5:00", "5:00").canonical


@pytest.mark.long
def test_the_weakest_form_is_an_option(math_verifier: MathVerifier):
    problem = Problem(uid="m", question="", answer="72", source="test")
    weak = MathVerifier(last_expression=True)
    for response in ("The answer is 72.", "so $x = 72$", "She has 72 clips."):
        assert math_verifier.verify(response, problem).status == "unparsed"
        assert weak.verify(response, problem).status == "right"
    # tags and boxes still come first
    assert weak.verify("<answer>71</answer> The answer is 72.", problem).status == "wrong"
    assert weak.verify(r"\boxed{71}. The answer is 72.", problem).status == "wrong"
    assert weak.verify("a " * 500_000 + "The answer is 72.", problem).status == "right"
    assert weak.verify("The answer is 71 or 72.", problem).status == "wrong"
    weak.close()
