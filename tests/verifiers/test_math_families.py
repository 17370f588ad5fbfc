r"""Families of answers that are right, beside the families that look like them and are not.

Every gold answer goes through every form, so that a form is held for numbers, fractions, roots,
lists and intervals alike, not for the one example that showed a fault.
"""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import MathVerifier

GOLDS = {
    "5": "6", "-4": "4", "2.5": "3.5", r"\frac{7}{2}": r"\frac{5}{2}", r"3\sqrt{2}": "7",
    r"12\pi": r"13\pi", "x+1": "x+2", "y=2x": "y=3x", r"50\%": r"60\%", "(1,2)": "(2,1)",
    "[0,5)": "[0,6)", "2,3": "4", r"\text{east}": r"\text{west}",
}  # fmt: skip
"""Gold answers, each with another answer."""
NUMBERS = {gold: other for gold, other in GOLDS.items() if gold not in (r"\text{east}", "y=2x")}

UNREAD = (
    r"@o \; ? \; @g", r"@g \; ? \; @o", r"\not= @g", r"\neq @g", "@g @ @o", r"@g \# @o", r"@o # @g",
    r"\cancel{@g}", r"\xcancel{@g}", r"\sout{@g}", r"\phantom{@g}", "@g | @o", r"@g \| @o",
    r"@g, \ldots", r"@g \ldots @o", r"\neg @g", r"@o \quad @g", r"@g \qquad @o", r"@g \\ @o",
    "@g & @o", r"@g \implies @o", r"@o \to @g", r"@g \neq @o", r"@o \neq @g", r"@g \sim @o",
    r"\overset{@o}{@g}", r"\stackrel{@o}{@g}", r"\underbrace{@g}_{@o}", r"@g\footnote{@o}",
    r"@o \approx @g", "@o = @g", "@g = @o", r"\boxed{@o} @g x", "@g; @o", "@g, @o", "@o, @g",
    "@g or @o",
    "@g and @o", "@g to @o", r"@g \text{ or } @o", r"@o \text{ or } @g", r"@g\text{ in words }@o",
    r"@g\text{ cm}, @o\text{ cm}", r"@g\text{ cm} @o\text{ cm}", "< @g", r"\le @g", "> @g",
    "not @g", r"\text{not }@g", r"\text{not} @g", "maybe @g", "@g?", "@g (wrong)", "@g wrong",
    r"@g\text{ (wrong)}", r"@g\text{ is false}", r"@g\text{?}", r"@g\text{ maybe}", r"\pm @o @g",
)  # fmt: skip
"""Forms with the gold answer ``@g`` and another ``@o`` in them that do not say the gold answer."""
CHANGING = (
    "lakh", "lakhs", "crore", "million", "billion", "trillion", "zillion", "thousand", "hundred",
    "dozen", "dozens", "gross", "half", "halves", "third", "tenths", "hundredths", "score or so",
    "or more", "or less", "at most", "at least", "and a half", "plus one", "minus 1", "times two",
    "squared", "cubed", "percent off", "less", "more", "and more", "something", "k", "M", "B",
    "bn", "万", "亿", "多", "左右", "不对", "错", "wrong", "incorrect", "maybe", "not", "if x > 1",
    "approximately", "ish?", "to 6", "over 2", "mod 7", "twice", "pi", "sqrt",
)  # fmt: skip
UNITS = (
    "cm", "km/h", "miles per hour", "cookies", "(apples)", "square units", "sq. ft.", "dollars",
    "units", "m/s", "kg", "hours", "平方厘米", "元", "chocolate chip cookies", "ways", "degrees",
)  # fmt: skip
LOOKS = (
    r"\textcolor{red}{@}", r"\color{red}{@}", r"\color{red} @", r"{\color{blue} @}", r"\large @",
    r"{\large @}", r"{\Huge @}", r"\displaystyle @", r"\boldsymbol{@}", r"\bm{@}", r"\mathbf{@}",
    r"\underline{@}", r"\ensuremath{@}", r"\textcolor{red}{\boldsymbol{@}}", "$@$", r"\( @ \)",
    "**@**", "{@}", r"\boxed{@}", r"\fbox{@}", " @ .", "@\n", "\u200b@", "The answer is $@$.",
    "Final Answer: @", "答案是：@", "故答案为：@．", "所以答案是：@。", "因此，最终答案为 @。",
)  # fmt: skip


def judge(verifier: MathVerifier, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
    """Return a verdict for each pair of answer and gold answer."""
    problems = [Problem(uid="", question="", answer=gold, source="t") for _, gold in pairs]
    return verifier.verify_batch([f"<answer> {answer} </answer>" for answer, _ in pairs], problems)


def assert_right(verifier: MathVerifier, pairs: Sequence[tuple[str, str]]) -> None:
    judged = zip(pairs, judge(verifier, pairs), strict=True)
    lost = [(pair, verdict) for pair, verdict in judged if verdict.status != "right"]
    assert lost == []


def assert_not_right(verifier: MathVerifier, pairs: Sequence[tuple[str, str]]) -> None:
    judged = zip(pairs, judge(verifier, pairs), strict=True)
    paid = [(pair, v) for pair, v in judged if v.value or v.status not in ("wrong", "unparsed")]
    assert paid == []


def written(form: str, gold: str) -> str:
    return form.replace("@g", gold).replace("@o", GOLDS[gold])


def test_an_answer_is_read_whole_or_not_at_all(math_verifier: MathVerifier):
    pairs = [(written(form, gold), gold) for form in UNREAD for gold in GOLDS]
    assert_not_right(math_verifier, [(answer, gold) for answer, gold in pairs if answer != gold])


@pytest.mark.parametrize("form", [r"@\text{ %}", r"@ \mathrm{%}", r"@~\text{%}", "@ %", "@ (%)"])
def test_words_that_change_a_value_are_no_unit(math_verifier: MathVerifier, form: str):
    golds = [gold for gold in NUMBERS if gold not in ("2,3", r"50\%")]
    texts = [(form.replace("@", gold), gold) for gold in golds]
    pairs = [(text.replace("%", word), gold) for text, gold in texts for word in CHANGING]
    assert_not_right(math_verifier, pairs)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_may_stand_on_either_side(math_verifier: MathVerifier, unit: str):
    in_text = [f"{gold}\\text{{ {unit}}}" for gold in ("5", r"\frac{7}{2}", r"12\pi", "2.5")]
    bare = [f"{gold} {unit}" for gold in ("5", "495", "1,080", "2.5", r"\frac{7}{2}")]
    for text in in_text + (bare if unit.isascii() else []):
        number = text.partition("\\text")[0] if "\\text" in text else text.partition(" ")[0]
        assert_right(math_verifier, [(text, number), (number, text), (text, text)])


def test_a_unit_is_dropped_from_every_part(math_verifier: MathVerifier):
    right = [
        (r"5\text{ cm}, 6\text{ cm}", "5, 6"), (r"\text{6 ways}", "6"), ("12π cm²", r"12\pi"),
        (r"12\pi\text{ cm}^2", r"12\pi"), (r"12\pi cm^{2}", r"12\pi"), ("12.5kg", "12.5"),
        (r"30^\circ\text{C}", r"30^\circ"), ("16（页)", "16"), ("80（元）", "80"),
        ("9", "9 (apples)"), ("$9", "9 dollars"),
        ("Janet makes $18 every day.", "18"), ("Final Answer: Janet makes $18 every day.", "18"),
        ("So she has 18 eggs in the basket", "18"),
    ]  # fmt: skip
    assert_right(math_verifier, right)
    not_right = [
        (r"5\text{ cm}, 6\text{ cm}", "5"), (r"5\text{ cm}, 6\text{ cm}", "6"),
        (r"\text{6 or 7 ways}", "6"), ("5 km", "5 m"), (r"5\text{ cm}", r"5\text{ m}"),
        ("5 cents", r"\$5"), ("3:00 AM", r"3:00\text{ PM}"), ("5 hours", r"5\text{ minutes}"),
        (r"5\text{ cm}^2", r"5\text{ cm}^3"), ("70 km per hour", "70 miles per hour"),
        ("Janet does not make 18 dollars", "18"), ("Janet makes 18 or 19 every day", "18"),
        ("Janet makes maybe 18 a day", "18"), ("Janet makes 18 thousand every day", "18"),
        ("Two of them make 18 every day", "18"), ("she has 9 and they have 18", "18"),
    ]  # fmt: skip
    assert_not_right(math_verifier, not_right)


@pytest.mark.parametrize("form", LOOKS)
def test_looks_and_words_around_change_nothing(math_verifier: MathVerifier, form: str):
    assert_right(math_verifier, [(form.replace("@", gold), gold) for gold in NUMBERS])
    others = [(form.replace("@", other), gold) for gold, other in NUMBERS.items()]
    assert_not_right(math_verifier, others)


IDENTICAL = (
    "495 cookies", "70 miles per hour", "9 (apples)", "5 or 6", "n is odd", "1, 2, \\ldots, 9",
    r"\text{none of these}", "3 \\pmod 5", "?", "5 million", "maybe", "not 5", "5 6", "@#&",
    "\\foo",
    "no solution!", r"\text{(A), (C)}", "第三象限", "f'(x)", "12:30 PM", r"\langle 1 \rangle",
    "x" * 399, "y " * 700, "(" * 40 + "1" + ")" * 40, "1e99999", "9^{9^{9^{9}}}", "<<1+1=2>>",
    r"\{(x,y) \mid \exists z\}", "Let $x$ be", "$", "{", r"\begin{cases} 1 \\ 2 \end{cases}",
)  # fmt: skip


@pytest.mark.long
def test_identical_text_is_right_whatever_it_says():
    verifier = MathVerifier(timeout_s=1.0)
    pairs = [(gold, gold) for gold in IDENTICAL]
    assert_right(verifier, pairs)
    assert all(v.canonical and len(v.canonical) < 300 for v in judge(verifier, pairs))
    verifier.close()


def scientific(value: Fraction, exponent: int) -> str:
    return rf"{float(value):.15g} \times 10^{{{exponent}}}"


@pytest.mark.parametrize(
    "exponent", [-300, -40, -31, -19, -12, -9, -7, -6, -3, 0, 3, 6, 12, 40, 300]
)
def test_a_difference_counts_at_every_magnitude(math_verifier: MathVerifier, exponent: int):
    near = [Fraction(91, 10), Fraction(161, 100), Fraction(16001, 10000), Fraction(-16, 10)]
    gold = scientific(Fraction(16, 10), exponent)
    assert_not_right(math_verifier, [(scientific(n, exponent), gold) for n in near])
    assert_not_right(
        math_verifier, [("0", gold), (gold, "0"), (rf"2 \times 10^{{{exponent}}}", gold)]
    )
    assert_not_right(math_verifier, [(gold, rf"\frac{{\pi}}{{2}} \times 10^{{{exponent}}}")])
    same = [scientific(Fraction(16, 100), exponent + 1), scientific(Fraction(160), exponent - 2)]
    assert_right(
        math_verifier, [(text, gold) for text in (*same, gold.replace(r"\times", r"\cdot"))]
    )


def test_rounding_takes_six_digits_of_what_cannot_be_written_shorter(math_verifier: MathVerifier):
    right = [("0.333333", r"\frac{1}{3}"), ("0.333333333", r"\frac{1}{3}"),
             ("0.666667", r"\frac{2}{3}"), ("0.6666666", r"\frac{2}{3}"),
             ("-0.666667", r"-\frac{2}{3}"), (r"\sqrt{2}", "1.414214"), (r"12\pi", "37.699112"),
             (r"33.333333\%", r"\frac{1}{3}")]  # fmt: skip
    wrong = [("0.33", r"\frac{1}{3}"), ("0.33333", r"\frac{1}{3}"), ("1.4142", r"\sqrt{2}"),
             ("3.14", r"\pi"), ("4.9999999", "5"), ("5.0000001", "5"),
             ("0.000123", r"\frac{1}{8100}"), ("0.6666663", r"\frac{2}{3}"),
             ("0.6666668", r"\frac{2}{3}"), ("-0.6666668", r"-\frac{2}{3}"),
             ("1.414214", r"\sqrt{2}"), ("1.4142131", r"\sqrt{2}"), (r"\sqrt{3}", "1.732052"),
             ("21.260292", r"2\sqrt{113}"), ("3.141593", r"\pi"), ("3.14159265358979", r"\pi"),
             ("262537412640768744", r"e^{\pi\sqrt{163}}"), ("0.540302", r"\cos(1)"),
             ("0.5000001", r"\frac{1}{2}"), ("2.4999999", "2.5"),
             ("1000000.1", "1000000")]  # fmt: skip
    assert_right(math_verifier, right)
    assert_not_right(math_verifier, wrong)
