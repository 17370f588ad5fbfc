import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import CountdownVerifier, Grader, Verifier, check_gold_answers
from r1lit.verifiers.base import conclude


def problem(uid: str, verifier: str, answer: str = "7") -> Problem:
    meta = {"numbers": [3, 4], "target": 7} if verifier == "countdown" else {}
    return Problem(uid=uid, question="", answer=answer, source="test", verifier=verifier, meta=meta)


class Counting(CountdownVerifier):
    def __init__(self) -> None:
        self.batches: list[int] = []
        self.closed = False

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        self.batches.append(len(responses))
        return super().verify_batch(responses, problems)

    def close(self) -> None:
        self.closed = True


def test_every_response_goes_to_its_verifier_and_order_is_kept():
    grader = Grader()
    problems = [problem(str(i), "math" if i % 2 else "countdown") for i in range(6)]
    answers = ["3 + 4", "7", "3 * 4", "7.0", "7", "8"]
    verdicts = grader.verdicts([f"<answer>{a}</answer>" for a in answers], problems)
    grader.close()
    statuses = [v.status for v in verdicts]
    assert statuses == ["right", "right", "wrong", "right", "wrong", "wrong"]
    assert [v.canonical for v in verdicts] == ["7", "7", "12", "7", None, "8"]


def test_one_batch_a_verifier():
    one, other = Counting(), Counting()
    grader = Grader({"one": one, "other": other})
    meta = {"numbers": [1], "target": 1}
    problems = [
        Problem(uid="", question="", answer="", source="", verifier=name, meta=meta)
        for name in ("one", "other", "one")
    ]
    grader.verdicts(["<answer>1</answer>"] * 3, problems)
    assert (one.batches, other.batches) == ([2], [1])
    grader.close()
    assert one.closed and other.closed


class Sleeping(Verifier):
    """Takes ``problem.answer`` seconds for a response."""

    def verify(self, response: str, problem: Problem) -> Verdict:
        time.sleep(float(problem.answer))
        return conclude("wrong", None, "it slept")


class SleepingBatch(Sleeping):
    """Decides about all responses of a batch at once and measures nothing."""

    def verify_batch(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        return [self.verify(r, p) for r, p in zip(responses, problems, strict=True)]


def test_each_verdict_has_its_own_time():
    problems = [problem(str(i), "s", answer) for i, answer in enumerate(("0.2", "0"))]
    slow, quick = Grader({"s": Sleeping()}).verdicts(["", ""], problems)
    assert slow.seconds >= 0.2 > 0.1 > quick.seconds > 0


def test_a_batch_without_times_shares_its_own():
    problems = [problem(str(i), "s", answer) for i, answer in enumerate(("0.2", "0"))]
    start = time.perf_counter()
    first, second = Grader({"s": SleepingBatch()}).verdicts(["", ""], problems)
    assert first.seconds == second.seconds
    assert 0.2 <= first.seconds + second.seconds <= time.perf_counter() - start


TESTS = {"tests": ["assert f() == 1"]}


@pytest.mark.parametrize(
    ("name", "text", "meta"),
    [
        ("math", "<answer> x + 1 </answer>", {}),
        ("functional_code", "```python\ndef f(): return 1\n```", TESTS),
    ],
)
def test_a_response_that_no_process_sees_does_not_share_its_time(name: str, text: str, meta):
    """The batch waits for a process to start, which is no time of the refused response."""
    grader = Grader()
    one = Problem(uid="", question="", answer="1 + x", source="", verifier=name, meta=meta)
    start = time.perf_counter()
    refused, right = grader.verdicts(["", text], [one, one])
    batch = time.perf_counter() - start
    grader.close()
    assert (refused.status, right.status) == ("unparsed", "right")
    assert 0 < refused.seconds < batch / 4 and 0 < right.seconds <= batch


def test_an_unknown_verifier_is_named_before_anything_is_judged():
    counting = Counting()
    grader = Grader({"countdown": counting})
    problems = [problem("a", "countdown"), problem("b", "chess")]
    with pytest.raises(ValueError, match=r"'b' names 'chess', which is none of \['countdown'\]"):
        grader.verdicts(["", ""], problems)
    assert counting.batches == []


def test_mistakes_in_length_are_told():
    class Short(CountdownVerifier):
        def verify_batch(
            self, responses: Sequence[str], problems: Sequence[Problem]
        ) -> list[Verdict]:
            return super().verify_batch(responses, problems)[:-1]

    with pytest.raises(ValueError, match="2 of them for 1 problems"):
        Grader().verdicts(["", ""], [problem("a", "math")])
    with pytest.raises(ValueError, match="'countdown' returned 0 verdicts for 1 texts"):
        Grader({"countdown": Short()}).verdicts([""], [problem("a", "countdown")])


@pytest.mark.long
def test_golds_that_are_no_answers_are_told():
    grader = Grader()
    good = [problem(str(i), "math", str(i)) for i in range(20)]
    prose = "They are two, and two more come along, so that there are four of them at the end: 4"
    check_gold_answers(grader, [*good[:8], problem("x", "math", prose)], "data.train")
    check_gold_answers(grader, [problem("c", "countdown", prose)], "data.train")
    check_gold_answers(grader, [], "data.train")
    message = r"data.test: none of 1 gold answers of source 'test' .* 'math'; that of 'x' is 'They"
    with pytest.raises(ValueError, match=message):
        check_gold_answers(grader, [problem("x", "math", prose)], "data.test")
    with pytest.raises(ValueError, match="'b' names 'chess'"):
        check_gold_answers(grader, [problem("b", "chess")], "data.train")
    grader.close()


def test_what_a_verifier_lacks_is_told_before_the_run():
    class Lacking(Counting):
        needs_answer = False

        def check(self) -> None:
            raise ImportError("jsonschema is missing")

    with pytest.raises(ImportError, match="jsonschema is missing"):
        check_gold_answers(Grader({"lacking": Lacking()}), [problem("a", "lacking")], "data.train")


def test_a_verifier_that_is_slow_on_gold_answers_is_named_while_it_decides(monkeypatch):
    class Slow(Verifier):
        def verify(self, response: str, problem: Problem) -> Verdict:
            assert said.wait(timeout=30), "nothing was said while it decided"
            return Verdict(value=1.0, status="right", canonical="7", reason="")

    said, lines = threading.Event(), []
    monkeypatch.setattr("r1lit.verifiers.gold_answers.SLOW_S", 0.05)
    monkeypatch.setattr("warnings.warn", lambda line: (lines.append(line), said.set()))
    check_gold_answers(Grader({"slow": Slow()}), [problem("a", "slow")], "data.train")
    assert lines and lines[0].startswith("data.train: the verifier 'slow' has not decided about 1")


def test_an_environment_with_its_own_verdicts_needs_no_gold_answer():
    row = Problem(uid="g", question="", answer="", source="games", environment="frozen_lake")
    message = "If the environment 'frozen_lake' gives verdicts, set verifier: none"
    grader = Grader()
    with pytest.raises(ValueError, match=message):
        check_gold_answers(grader, [row], "data.train")
    check_gold_answers(grader, [replace(row, verifier="none")], "data.train")
    grader.close()


def test_nothing_to_judge():
    assert Grader().verdicts([], []) == []


def test_verifiers_are_chosen_in_yaml(tmp_path):
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    parser.add_argument("--grader", type=Grader)
    path = tmp_path / "grader.yaml"
    path.write_text(
        """
grader:
  class_path: r1lit.verifiers.Grader
  init_args:
    verifiers:
      sums: {class_path: r1lit.verifiers.CountdownVerifier}
      math:
        class_path: r1lit.verifiers.MathVerifier
        init_args: {timeout_s: 2.5, num_workers: 1}
"""
    )
    parser.add_argument("-c", action="config")
    grader = parser.instantiate_classes(parser.parse_args(["-c", str(path)])).grader
    assert isinstance(grader.verifiers["sums"], CountdownVerifier)
    assert (grader.verifiers["math"].timeout_s, grader.verifiers["math"].num_workers) == (2.5, 1)
    assert all(isinstance(verifier, Verifier) for verifier in grader.verifiers.values())


def test_verifiers_are_imported_without_torch():
    """So that another trainer can use them; the libraries of mathematics load in the workers."""
    code = "import sys, r1lit.verifiers as _; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "lightning", "transformers", "sympy", "math_verify"}
    assert "r1lit.verifiers" in done.stdout.split() and not heavy & set(done.stdout.split())
