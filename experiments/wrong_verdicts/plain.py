r"""Math-verify alone as a verifier, for an audit beside ours.

    r1lit audit-verifier --problems TableProblems --problems.path math500.jsonl \
        --problems.question problem --problems.answer answer --run runs/plain \
        --verifier experiments.wrong_verdicts.plain.PlainMathVerify

``r1lit.verifiers.MathVerifier`` decides with the same library, but reads answers by a grammar of
its own and compares most values itself. What that changes is the difference of the two audits.
"""

from __future__ import annotations

from math_verify import parse, verify

from r1lit.problems import Problem, Verdict
from r1lit.text.extract import extract_final
from r1lit.verifiers import Verifier
from r1lit.verifiers.base import conclude


class PlainMathVerify(Verifier):
    """Right if math-verify's ``verify(parse(gold), parse(answer))`` says so, with its defaults.

    Args:
        whole_response: whether ``parse`` gets the whole response, as in most rewards that use it;
            else what our extraction finds in it, as a formula, so that only reading and comparing
            differ from ours.
    """

    def __init__(self, whole_response: bool = False) -> None:
        self.whole_response = whole_response

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Return math-verify's verdict; its time limits need the main thread."""
        text = response if self.whole_response else as_formula(extract_final(response) or "")
        answer = parse(text)
        if not answer:
            return conclude("unparsed", None, "math-verify reads no answer")
        is_right = verify(parse(as_formula(problem.answer)), answer)
        return conclude("right" if is_right else "wrong", str(answer[-1]), "")


def as_formula(text: str) -> str:
    r"""Return a text between dollars, where math-verify finds LaTeX, if it has no formula.

    Of what was tried with MATH-500 this served math-verify best.

    >>> as_formula(r"\frac{1}{2}"), as_formula(r"So $\frac12$."), as_formula("")
    ('$\\frac{1}{2}$', 'So $\\frac12$.', '')
    """
    has_formula = any(mark in text for mark in ("$", r"\boxed", r"\(", r"\["))
    return f"${text}$" if text and not has_formula else text
