"""Completions become responses with verdicts in one way, in training, evaluation and scoring."""

from __future__ import annotations

from dataclasses import replace

from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.problems import Problem, Transcript, Verdict
from r1lit.rollout import Completion
from r1lit.rollout.grading import graded
from r1lit.verifiers import ExactVerifier, Grader

TOKENIZER = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")


def problem(answer: str, verifier: str = "exact") -> Problem:
    return Problem(uid=answer, question="?", answer=answer, source="s", verifier=verifier)


class Counting(ExactVerifier):
    """Counts the calls; a stand-in for a verifier that shares work over a batch."""

    calls = 0
    decided = 0

    def verify_batch(self, responses, problems):
        self.calls += 1
        self.decided += len(responses)
        return super().verify_batch(responses, problems)


def completion(number: int) -> Completion:
    text = f"<answer> {number} </answer>"
    return Completion(text=text, token_ids=None, logps=None, finish_reason="stop")


def test_verdicts_are_the_graders_and_of_one_batch_a_verifier():
    counting = Counting()
    grader = Grader({"exact": counting, "other": ExactVerifier()})
    problems = [problem("4"), problem("5", "other"), problem("6")]
    responses = graded([completion(n) for n in (4, 5, 7)], problems, grader, TOKENIZER)
    assert [r.verdict.status for r in responses] == ["right", "right", "wrong"]
    assert [r.problem for r in responses] == problems
    assert (counting.calls, counting.decided) == (1, 2)


def test_verdicts_that_completions_bring_stay():
    counting = Counting()
    kept = Verdict(value=1.0, status="right", canonical="x", reason="kept")
    played = Transcript(
        messages=(), text="", ended="done", verdict=kept, turn_ends=(), turn_rewards=(),
        num_calls=0, num_invalid=0,
    )  # fmt: skip
    completions = [
        replace(completion(9), verdict=kept),
        replace(completion(9), transcript=played),
        completion(9),
    ]
    problems = [problem("4")] * 3
    responses = graded(completions, problems, Grader({"exact": counting}), TOKENIZER)
    assert [r.verdict.reason for r in responses][:2] == ["kept", "kept"]
    assert responses[2].verdict.status == "wrong" and counting.decided == 1
