"""The many ways to write an answer, and the ways to write none."""

from collections.abc import Callable

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import MathVerifier
from r1lit.verifiers.last_expression import last_expression

Decide = Callable[[str, str], Verdict]
MATRIX = r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1 1/2", r"1\frac{1}{2}"), ("2 3/4", "2.75"), ("-1 1/2", "-1.5"), ("1½", "3/2"),
        ("½", "0.5"), ("１２", "12"), ("5²", "25"), ("√2", r"\sqrt{2}"), ("2π", r"2\pi"),
        ("–5", "-5"), ("∞", r"\infty"), ("1 000 000", "1000000"), ("2.5e3", "2500"),
        ("50%", r"50\%"), ("50％", "0.5"), ("5 cm^2", "5"), ("5 cm²", "5"), ("5m", "5"),
        (r"5\text{ cm}^2", "5"), ("5 m", "5m"),
        (r"\{6,5\}", r"\{5,6\}"), ("x = 5 or x = 6", "5, 6"),
        ("0<x<1", "(0,1)"), ("(0,1)", "0<x<1"), (r"x \le 5", r"(-\infty,5]"),
        (r"(0,1)\cup(2,3)", r"(2,3)\cup(0,1)"), ("(-oo, 5)", r"(-\infty,5)"),
        ("[[1,2],[3,4]]", MATRIX), (r"\begin{bmatrix}1&2\\3&4\end{bmatrix}", MATRIX),
        ("all real numbers", r"\mathbb{R}"), ("B and A", r"\text{A,B}"), ("Yes.", r"\text{yes}"),
        ("答案是5", "5"), ("答案为：$\\frac{1}{2}$。", "0.5"), ("所以 x = 5。", "5"), ("5 元", "5"),
        ("5千米", "5"), ("5或6", "5, 6"), ("The final answer is $5$.", "5"), ("**5**", "5"),
        (r"\(5\)", "5"), ("Answer: 5", "5"), (r"\boxed{6} no, \boxed{5}", "5"),
        (r"\boxed{\boxed{5}}", "5"), ("10/2", "5"), (r"\int_0^5 1 dx", "5"),
        (r"5\text{ cm}", "5"), (r"5 \text{平方厘米}", "5"), (r"5~\mathrm{m/s}", "5"),
        ("5个苹果", "5"),
        ("一共有5个苹果", "5"), ("共5人", "5"), ("x**2+1", "x^2+1"), (r"5 \text{ or } 6", "5, 6"),
        (r"\textbf{(C)}\ 42", "42"), (r"\textbf{(C)}\ 42", "C"), (r"\text{(C) }42", r"\text{(C)}"),
        ("1,080", "48 + 24 is not it.\n#### 1,080"), ("0.5", r"#### \frac{1}{2}"), ("3:00", "3:00"),
        (r"5\text{ million}", r"5\text{ million}"),
    ],
)  # fmt: skip
def test_right(verdict_of: Decide, answer: str, gold: str):
    verdict = verdict_of(answer, gold)
    assert verdict.status == "right" and verdict.canonical, verdict


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("不是5", "5"), ("可能是5", "5"), ("大约是5", "5"), ("答案不是5", "5"), ("5或6", "5"),
        ("5万", "5"), ("5千", "5"), ("The answer is not 5", "5"), ("answer: 5 or 6", "5"),
        ("5 5", "10"), ("5\n6", "11"), (r"5 \quad 6", "11"), (r"5\ 6", "11"), ("1 1/2", "1/2"),
        ("tsea", r"\text{east}"), ("t s a e", r"\text{east}"), ("ddo", "odd"), ("no", "yes"),
        ("east or west", r"\text{east}"), ("A", r"\text{A,B}"), ("1e9999", "5"), ("-1e9999", "5"),
        (r"x \le 5", r"(-\infty,5)"), ("[0,1)", "0<x<1"), ("[[1,2],[4,3]]", MATRIX),
        ("5 million", "5"), ("5 dozen", "5"), ("5 and a half", "5"), ("<5", "5"), ("5+i", "5"),
        ("4.9999999", "5"), ("5.0000001", "5"), ("3.14", r"\pi"), ("٥", "5"), ("5е0", "5"),
        (r"5\text{ or 6}", "5"), (r"5\text{ or maybe 6}", "5"), (r"5\mathrm{ or 6}", "5"),
        (r"5\mbox{ or more}", "5"), (r"5\textbf{, not 6}", "5"), (r"5\text{ million}", "5"),
        (r"p - q\text{ or 6}", "p - q"), (r"\pi\text{ or 6}", r"\pi"),
        (r"\text{(C)}\text{ or 6}", "C"),
        (r"\textbf{(C)}\text{ or (D)}", "C"), (r"\textbf{(C)}, D", "C"),
        (r"\textbf{(C)}\ 5, 6", "C"), (r"\textbf{(C)} or maybe D", "C"),
        (r"5\text{ and a half}", "5"), (r"5\text{ is wrong}", "5"), (r"5\text{万}", "5"),
        (r"5\text{不是}", "5"), ("5个半", "5"), ("5个多月", "5"), ("5人左右", "5"),
        ("5年以上", "5"),
        ("~5", "5"), ("5~6", "11"), (r"\textbf{(C)}\ 42", "D"), (r"\textbf{(C)}\ 5 or 6", "5"),
        ("4:00", "5:00"), ("1/0", "2/0"), (r"3:00\text{ PM}", "4:00"), ("5", "48 #### 6"),
        (r"\boxed{5} no, \boxed{6}", "5"), ("1,2", "1,2,3"), ("1,2,3,4", "1,2,3"), (r"\pm 5", "5"),
    ],
)  # fmt: skip
def test_not_right(verdict_of: Decide, answer: str, gold: str):
    verdict = verdict_of(answer, gold)
    assert verdict.value == 0.0 and verdict.status in ("wrong", "unparsed") and verdict.reason


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
    ("answer", "gold"),
    [
        ("= 5", "5"), (r"=\frac{7}{2}", r"\frac{7}{2}"), (r"\text{The answer is } 5", "5"),
        (r"\text{Answer: }\frac12", "1/2"), (r"\frac34 \text{ or } 75\%", "3/4"),
        (r"12\pi \mathrm{~cm}^{2}", r"12\pi"), (r"12\pi\ \mathrm{square\ units}", r"12\pi"),
        (r"10 \mathrm{~m} / \mathrm{s}", "10"), ("10", r"10 \mathrm{~m} / \mathrm{s}"),
        (r"10\text{ m/s}", r"10 \mathrm{~m} / \mathrm{s}"), (r"5\,cm", "5"),
        (r"\left\{x \mid -1 < x \le 2\right\}", "(-1,2]"),
        (r"\left\{ x \,\middle|\, x > 3 \right\}", r"(3,\infty)"),
        (r"\mathbb{R}\setminus\{3\}", r"(-\infty,3)\cup(3,\infty)"),
        (r"\mathbb{R} \backslash [1,2]", r"(-\infty,1)\cup(2,\infty)"),
        (r"(-\infty, 3) U (3, \infty)", r"(-\infty,3)\cup(3,\infty)"),
        (r"\text{all real numbers}", r"(-\infty,\infty)"), (r"\varnothing", r"\emptyset"),
        (r"\sin 30^\circ", r"\frac12"), (r"\tan^2(60^{\circ})", "3"), (r"5\degree", "5"),
        (r"0.\bar3", "1/3"), (r"\nicefrac{3}{4}", "0.75"), (r"\sqrt[3]2", r"2^{1/3}"),
        (r"\lg 100", "2"), (r"{10 \choose 3}", "120"), (r"\texttt{5}", "5"),
    ],
)  # fmt: skip
def test_more_forms(verdict_of: Decide, answer: str, gold: str):
    assert verdict_of(answer, gold).status == "right"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"10\text{ km/h}", r"10 \mathrm{~m} / \mathrm{s}"), (r"5\text{e3}", "5"),
        (r"5~\text{tens}", "5"), (r"\text{not the answer: }5", "5"), (r"\sin 30^\circ", "0.6"),
        (r"\mathbb{R}\setminus\{3\}", r"(-\infty,4)\cup(4,\infty)"), (r"=\ne 5", "5"),
        (r"\frac34 \text{ or } 76\%", "3/4"), (r"0.\bar34", "1/3"),
    ],
)  # fmt: skip
def test_more_forms_of_something_else(verdict_of: Decide, answer: str, gold: str):
    assert verdict_of(answer, gold).value == 0.0


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
