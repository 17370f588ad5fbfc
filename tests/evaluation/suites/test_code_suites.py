"""Suites of programs and of long texts: extraction, known verdicts, real rows."""

from __future__ import annotations

import gzip
import json

import pytest
from suite_rows import write_rows
from tiny import ROOT

from r1lit.evaluation.suites import load_suite
from r1lit.evaluation.suites.long_context import LongContext

DATA = ROOT / ".." / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "humaneval_x_python.jsonl.gz").is_file(), reason="the shared data is not here"
)


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


def test_livecodebench_has_its_words_and_verdicts(tmp_path):
    suite = load_suite("livecodebench")
    folder = write_rows(tmp_path, "livecodebench")
    stdin, calls = suite.read(str(folder / suite.file))
    assert stdin.question == (
        "You will be given a question (problem specification) and will generate a correct Python"
        " program that matches the specification and passes all tests.\n\nQuestion: Add one.\n\n"
        "Read the inputs from stdin solve the problem and write the answer to stdout (do not"
        " directly test on the sample inputs). Enclose your code within delimiters as follows."
        " Ensure that when the python program runs, it reads the inputs, runs the algorithm and"
        " writes output to STDOUT.\n```python\n# YOUR CODE HERE\n```\n\n"
    )
    assert calls.question.endswith(
        "You will use the following starter code to write the solution to the problem and enclose"
        " your code within delimiters.\n```python\nclass Solution:\n    def has(self, a: List[int],"
        " n: int) -> bool:\n\n```\n\n"
    )
    right = "print(int(input()) + 1)"
    method = "class Solution:\n    def has(self, a: List[int], n: int) -> bool:\n        return {}"
    cases = [
        (stdin, "<think>x</think>" + fenced(right), "right"),
        (stdin, fenced("print(3)"), "wrong"),
        (stdin, fenced(right) + "\n" + fenced("print(0)"), "wrong"),  # the last block counts
        (stdin, right, "unparsed"),
        (stdin, "<think>" + fenced(right), "unparsed"),
        (stdin, "I cannot.", "unparsed"),
        (stdin, fenced("while True: pass"), "timeout"),
        (calls, fenced(method.format("n in a")), "right"),
        (calls, fenced(method.format("n not in a")), "wrong"),
    ]
    try:
        verdicts = suite.verifier.verify_batch([c[1] for c in cases], [c[0] for c in cases])
    finally:
        suite.verifier.close()
    assert [v.status for v in verdicts] == [c[2] for c in cases], verdicts


def rows(language: str) -> list[dict]:
    with gzip.open(DATA / f"humaneval_x_{language}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


@needs_data
def test_every_reference_program_of_humaneval_in_two_languages_is_right():
    suite = load_suite("humaneval_mul")
    problems = suite.read(str(DATA / "humaneval_x_python.jsonl.gz"))
    assert len(problems) == 328
    by_uid = {row["task_id"]: row for name in ("python", "cpp") for row in rows(name)}
    sample = problems[:164:4] + problems[164::8]
    responses = []
    for problem in sample:
        row = by_uid[problem.uid]
        responses.append(
            fenced(row["prompt"] + row["canonical_solution"], problem.meta["programming_language"])
        )
    try:
        verdicts = suite.verifier.verify_batch(responses, sample)
        assert [v.status for v in verdicts] == ["right"] * len(sample), [
            (p.uid, v.reason) for p, v in zip(sample, verdicts, strict=True) if v.value != 1
        ]
        early, wrong, silent = suite.verifier.verify_batch(
            [
                fenced("import sys\nsys.exit(0)"),
                fenced("def has_close_elements(numbers, threshold):\n    return True"),
                "I cannot.",
            ],
            [problems[0]] * 3,
        )
        assert (early.status, wrong.status, silent.status) == ("wrong", "wrong", "unparsed")
    finally:
        suite.verifier.close()


@pytest.mark.parametrize("name", ["needle", "multi_hop"])
def test_long_texts_are_as_long_as_they_say_and_hold_their_answer(name):
    suite = load_suite(name)
    problems = suite.source(lengths=[2048, 8192], limit=4).problems()
    again = suite.source(lengths=[2048, 8192], limit=4).problems()
    assert problems == again and len({p.question for p in problems}) == 8
    for problem in problems:
        num_words = len(problem.question.split())
        assert 0.8 < 1.3 * num_words / problem.meta["length"] <= 1.05
        for word in problem.answer.split():
            assert problem.question.count(word) >= 1
        verify = suite.verifier.verify
        assert verify(f"<think>so</think> {problem.answer}.", problem).status == "right"
        assert verify("I do not know.", problem).status == "unparsed"
    first, second = problems[:2]
    assert suite.verifier.verify(second.answer, first).status == "wrong"
    both = f"{first.answer} {second.answer}"
    assert suite.verifier.verify(both, first).status == "wrong"
    if name == "multi_hop":
        part = " ".join(first.answer.split()[:-1])
        assert suite.verifier.verify(part, first).status == "wrong"
        named = ", ".join(f"VAR {word}" for word in first.answer.split())
        assert suite.verifier.verify(f"{named} AND NO OTHER.", first).status == "right"
        assert suite.verifier.verify(f"{named}, VAR QQX", first).status == "wrong"
    with pytest.raises(ValueError, match="neither needle nor hops"):
        LongContext(task="other")
