"""The single turn: a response, then the verdict of its problem's verifier."""

from __future__ import annotations

from r1lit.environments import Reply, SingleTurn
from r1lit.problems import Problem
from r1lit.verifiers import ExactVerifier, Grader, Verifier


def problem(answer: str, verifier: str = "exact") -> Problem:
    return Problem(uid=answer, question="?", answer=answer, source="s", verifier=verifier)


class Counting(ExactVerifier):
    """Counts the calls; a stand-in for a verifier that shares work over a batch."""

    calls = 0
    in_background = True

    def verify_batch(self, responses, problems):
        self.calls += 1
        return super().verify_batch(responses, problems)


def test_an_episode_is_one_reply_and_its_verdict():
    environment = SingleTurn(Grader())
    episode = environment.begin(problem("4"), seed=0)
    step = episode.step(Reply(text="<answer> 4 </answer>"))
    assert step.messages == () and step.verdict.status == "right"


def test_verdicts_are_the_graders_and_of_one_batch_a_verifier():
    counting: Verifier = Counting()
    environment = SingleTurn(Grader({"exact": counting, "other": ExactVerifier()}))
    problems = [problem("4"), problem("5", "other"), problem("6")]
    texts = [f"<answer> {n} </answer>" for n in (4, 5, 7)]
    verdicts = environment.verdicts(texts, problems)
    assert [v.status for v in verdicts] == ["right", "right", "wrong"]
    assert [environment.decides_early(p) for p in problems] == [True, False, True]
    assert counting.calls == 1
