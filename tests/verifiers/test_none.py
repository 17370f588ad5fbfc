"""The verifier of problems that no rule decides."""

from __future__ import annotations

from r1lit.batches import Problem
from r1lit.verifiers import Grader, check_gold_answers

HELLO = Problem(uid="1", question="Hello!", answer="", source="general", verifier="none")


def test_no_response_is_right_and_none_casts_a_vote():
    grader = Grader()
    texts = ["<think> hm </think> Hello!", "", "<answer> Hello! </answer>"]
    verdicts = grader.verdicts(texts, [HELLO] * 3)
    assert {(v.value, v.status, v.canonical) for v in verdicts} == {(0.0, "unparsed", None)}
    check_gold_answers(grader, [HELLO], "data.train")  # an empty gold answer is no fault here
    grader.close()
