"""Measures are kept where they apply, and nowhere counted as 0."""

from __future__ import annotations

import math

import pytest

from r1lit.batches import Problem, Response, Verdict
from r1lit.evaluation.run_folder import eval_metrics_of
from r1lit.rewards import RewardFunction
from r1lit.rewards.plain import as_reward


def response(text, kind):
    problem = Problem(uid=text, question="?", answer="", source="t", meta={"kind": kind})
    verdict = Verdict(value=0.0, status="wrong", canonical=None, reason="")
    return Response(text=text, problem=problem, verdict=verdict, num_tokens=1, finished=True)


class GeneralLength(RewardFunction):
    """The length of responses to general problems."""

    name = "length"

    def __init__(self):
        super().__init__(2.0)  # eval metrics are unweighted
        self.seen = []

    def applies(self, response):
        return response.problem.meta["kind"] == "general"

    def __call__(self, responses):
        self.seen += [r.text for r in responses]
        return [float(len(r.text)) for r in responses]


RESPONSES = [response("ab", "reasoning"), response("abc", "general"), response("", "general")]


def test_a_measure_is_asked_only_about_what_it_applies_to():
    length = GeneralLength()
    assert eval_metrics_of([length], RESPONSES) == [{}, {"length": 3.0}, {"length": 0.0}]
    assert length.seen == ["abc", ""]


def test_nan_is_silence():
    def halves(responses):
        return [len(r.text) / 2 if r.text else math.nan for r in responses]

    assert eval_metrics_of([as_reward(halves), GeneralLength()], RESPONSES) == [
        {"halves": 1.0},
        {"halves": 1.5, "length": 3.0},
        {"length": 0.0},
    ]
    assert eval_metrics_of([as_reward(halves)], RESPONSES[2:]) == [{}]
    assert eval_metrics_of([], RESPONSES) == [{}, {}, {}]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (None, "returned None"),
        ([1.0], "returned 1 rewards for 3 responses"),
        ([1.0, math.inf, 0.0], "not a finite number"),
        ([1.0, "x", 0.0], "not a finite number"),
        ("abc", "not a list"),
    ],
)
def test_what_is_no_list_of_numbers_is_an_error(values, says):
    def broken(responses):
        return values

    with pytest.raises(ValueError, match=says):
        eval_metrics_of([as_reward(broken)], RESPONSES)
