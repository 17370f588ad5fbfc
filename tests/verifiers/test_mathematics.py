from collections.abc import Callable

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.text.plain_numbers import number_of, whole_number
from r1lit.verifiers import MathVerifier

Decide = Callable[[str, str], Verdict]


@pytest.mark.parametrize(
    ("answer", "gold", "canonical"),
    [
        ("1080", "1,080", "1080"),
        ("$1,080", "1080", "1080"),
        (r"\$18.9", r"\$18.90", "189/10"),
        ("72 clips", "72", "72"),
        ("$ 5 dollars per hour.", "5", "5"),
        ("-3", "-3", "-3"),
        ("72.0", "72", "72"),
        ("72.", "72", "72"),
        (r"11,\! 111", "11111", "11111"),
        (r"\frac{1}{20,\!000}", "1/20{,}000.", "1/20000"),
        ("0.333333", r"\frac{1}{3}", "333333/1000000"),
        (r"10\%", "0.1", "1/10"),
        (r"10\%", "10", "1/10"),
        ("1/2", r"\frac{1}{2}", "1/2"),
        ("0.5", r"\frac{1}{2}", "1/2"),
        (r"$\dfrac12$", "0.5", "1/2"),
        (r"2\sqrt{113}", r"\sqrt{452}", "21.26029163"),
        ("sqrt(452)", r"2\sqrt{113}", "21.26029163"),
        ("pi/2", r"\frac{\pi}{2}", "1.570796327"),
        ("90 degrees", r"90^\circ", "90"),
        ("east", r"\text{east}", "east"),
        ("C", r"\text{(C)}", "c"),
        ("E", r"\text{(E)}", "e"),
        ("5", "x=5", "5"),
        ("7, 3, 5", "3, 5, 7", "{3, 5, 7}"),
        ("[-2, 7]", r"x \in [-2,7]", "[-2, 7]"),
        ("(3, pi/2)", r"\left( 3, \frac{\pi}{2} \right)", "(3, 1.570796327)"),
        ("(b+2)(a+5)", "(a+5)(b+2)", "a*b + 2*a + 5*b + 10"),
        (r"1-\sqrt{19}, 1+\sqrt{19}", r"1 \pm \sqrt{19}", "{-3.358898944, 5.358898944}"),
        ("infinity", r"\infty", "oo"),
        ("52_{8}", "52_8", "52_8"),
        ("c + b + a", "a + b + c", "a + b + c"),
        (r"\dfrac{1 }{ 2}  \text{?!}", r"\frac{1}{2} \text{?!}", "1/2"),
        (r"\left\langle 1, 2 \right\rangle", r"\langle 1,2 \rangle", r"\langle1,2\rangle"),
    ],
)
def test_right(verdict_of: Decide, answer: str, gold: str, canonical: str):
    verdict = verdict_of(answer, gold)
    assert (verdict.status, verdict.canonical, verdict.reason) == ("right", canonical, "")


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("1081", "1,080"),
        ("-72", "72"),
        ("5 million", "5"),
        ("3 or 4", "4"),
        ("4, 5", "4"),
        ("0.33", r"\frac{1}{3}"),
        ("(4,2)", "(2,4)"),
        ("[2,4]", "(2,4)"),
        ("52_9", "52_8"),
        (r"\frac{2}{2^{98}}", r"\frac{1}{2^{98}}"),
        ("west", r"\text{east}"),
        ("D", r"\text{(C)}"),
        ("1/0", "5"),
        (r"\infty", "5"),
        ("q - p", "p - q"),
        ("a + b + d", "a + b + c"),
    ],
)
def test_wrong(verdict_of: Decide, answer: str, gold: str):
    verdict = verdict_of(answer, gold)
    assert (verdict.value, verdict.status) == (0.0, "wrong")
    assert gold.replace(",", "") in verdict.reason.replace(",", "").replace("\\\\", "\\")


@pytest.mark.parametrize(
    "answer",
    ["", r"\frac", "\x00", "\ud800", "$$", "}{", "7" * 2001, "{" * 300, "(" * 99 + "5" + ")" * 99],
)
def test_unparsed(verdict_of: Decide, answer: str):
    verdict = verdict_of(answer, "5")
    assert (verdict.status, verdict.canonical) == ("unparsed", None)
    assert verdict.reason and verdict.seconds < 5.0


def test_whole_numbers_agree_with_math_verify(math_verifier: MathVerifier):
    """The shortcut for whole numbers decides as the worker processes do."""
    texts = ["7", "-7", "+7", "007", "$7$", r"\$7", "1,234", "1234", "0", "-0", "70", "12,345,678"]
    for gold in texts:
        replies = math_verifier.pool.run([{"answer": answer, "gold": gold} for answer in texts])
        problem = Problem(uid="m", question="", answer=gold, source="test")
        here = math_verifier.verify_batch([f"<answer>{t}</answer>" for t in texts], [problem] * 12)
        assert [v.status for v in here] == [r.content["status"] for r in replies], gold
        assert [v.canonical for v in here] == [r.content["canonical"] for r in replies], gold


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (r"<think> x </think> So \boxed{72}.", "right"),
        (r"So \boxed{72}", "right"),
        (r"\boxed{72} <answer> 71 </answer>", "wrong"),
        (r"<answer> \boxed{72} </answer>", "right"),
        (r"<think> \boxed{72} </think> So", "unparsed"),
        (r"<think> so <answer> 72 </answer>", "unparsed"),
        (r"<answer> 71 </answer> <answer> 72 </answer>", "right"),
        ("The answer is 72.", "unparsed"),
        ("", "unparsed"),
        ("a" * 1_000_000 + "<answer>72</answer>", "right"),
    ],
)
def test_where_the_answer_is_taken(math_verifier: MathVerifier, response: str, status: str):
    problem = Problem(uid="m", question="", answer="72", source="test")
    assert math_verifier.verify(response, problem).status == status


def test_a_problem_without_gold_answer_is_an_error_and_no_vote(verdict_of: Decide):
    verdict = verdict_of("5", " ")
    assert (verdict.status, verdict.canonical) == ("error", None)
    assert "no gold answer" in verdict.reason


def test_a_vote_is_short(verdict_of: Decide):
    one, other = verdict_of("10^{5000}", "5"), verdict_of("10^{5001}", "5")
    assert one.canonical and other.canonical and one.canonical != other.canonical
    assert len(one.canonical) < 300


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="timeout_s: 0"):
        MathVerifier(timeout_s=0)
    with pytest.raises(ValueError, match="num_workers: 0"):
        MathVerifier(num_workers=0)


def test_a_number_of_more_digits_than_python_reads_is_no_number_and_no_crash():
    digits = "7" * 5000
    assert (
        number_of(digits) is whole_number(digits) is number_of(rf"\frac{{{digits}}}{{3}}") is None
    )
