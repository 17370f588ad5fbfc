"""Judges for tests of evaluation: real verifiers where they are, plain ones elsewhere."""

from __future__ import annotations

import re
import time

from r1lit.batches import Problem, Verdict
from r1lit.rollout import InProcessEngine
from r1lit.verifiers import Grader, Verifier

NAMES = ("functional_code", "stdin_code", "choice", "exact", "ifeval_strict", "ifeval_loose")


class LastWord(Verifier):
    """Right if the response ends with the gold answer; no need of any other program."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        words = response.split()
        right = bool(words) and words[-1] == problem.answer
        return Verdict(
            value=float(right),
            status="right" if right else "wrong",
            canonical=words[-1] if words else None,
            reason="" if right else "another last word",
        )


class PlainJudge(Grader):
    """The default grader, with ``LastWord`` under every name that it does not know."""

    def __init__(self) -> None:
        super().__init__()
        for name in NAMES:
            if name not in self.verifiers:
                self.verifiers[name] = LastWord()


class RuleJudge:
    """A judge by rules, in the form that each suite's official prompt requests.

    An answer with the gold one in it is correct, "know" in it no attempt; of two answers the
    longer one is better.
    """

    def __call__(self, prompt: str) -> str:
        if "## Model Outputs" in prompt:
            first, second = re.findall(r'"output": """(.*?)"""', prompt, re.DOTALL)
            return "m" if len(first) > len(second) else "M"
        if "Assistant A's Answer|>" in prompt:
            first, second = re.findall(
                r"<\|The Start of Assistant .'s Answer\|>\n(.*?)\n<\|The End", prompt, re.DOTALL
            )
            sign = "=" if len(first) == len(second) else ">>" if len(first) > len(second) else None
            return f"My verdict: [[A{sign}B]]" if sign else "My verdict: [[B>A]]"
        answer, gold = (
            re.findall(rf"(?:{names})[:：] (.*)", prompt)[-1].lower().strip(" .")
            for names in (
                "Predicted [Aa]nswer|预测答案",
                "Gold target|Ground Truth Answer|正确答案",
            )
        )
        right = gold in answer
        if "===Task===" in prompt:
            return f"Explanation: so.\nDecision: {'TRUE' if right else 'FALSE'}"
        return "A" if right else "C" if "know" in answer or "知道" in answer else "B"


class SlowEngine(InProcessEngine):
    """Hands over a response every fifth of a second."""

    def stream(self, requests, on_finished):
        def slowly(indices, completions):
            for index, completion in zip(indices, completions, strict=True):
                time.sleep(0.2)
                on_finished([index], [completion])

        super().stream(requests, slowly)


class Digits(Verifier):
    """Right if the response holds a digit: a random policy is, now and then."""

    needs_answer = False

    def verify(self, response: str, problem: Problem) -> Verdict:
        digits = [c for c in response if c.isdigit()]
        return Verdict(
            value=float(bool(digits)),
            status="right" if digits else "wrong",
            canonical=digits[-1] if digits else None,
            reason="" if digits else "no digit",
        )


class DigitJudge(Grader):
    """Judges everything by ``Digits``; after ``limit`` responses it fails, as a full disk would."""

    def __init__(self, limit: int | None = None, pause_s: float = 0.0) -> None:
        super().__init__({"math": Digits()})
        self.limit = limit
        self.pause_s = pause_s
        self.num_judged = 0

    def verdicts(self, texts, problems):
        time.sleep(self.pause_s)
        self.num_judged += len(texts)
        if self.limit is not None and self.num_judged > self.limit:
            raise ValueError("the grader has had enough")
        return super().verdicts(texts, problems)
