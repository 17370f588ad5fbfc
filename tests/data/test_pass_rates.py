"""Problems kept by the pass rate that a policy has on them."""

import json

import pytest

from r1lit.batches import Problem
from r1lit.data import LateProblems, PassRates, ProblemSource

RIGHT = {"never": "000", "rare": "100", "half": "10", "always": "11", "undecided": "01"}


class Five(ProblemSource):
    def problems(self):
        uids = [*RIGHT, "unseen"]
        return [Problem(uid=u, question=u, answer="1", source="five") for u in uids]


@pytest.fixture
def responses(tmp_path):
    status = {"0": "wrong", "1": "right"}
    lines = [{"uid": u, "status": status[c]} for u, right in RIGHT.items() for c in right]
    lines[-2]["status"] = "timeout"  # counts as not right
    (tmp_path / "responses.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return tmp_path


@pytest.mark.parametrize(
    ("low", "high", "kept"),
    [
        (0.05, 0.95, ["rare", "half", "undecided"]),
        (0.0, 0.4, ["never", "rare"]),
        (0.5, 1.0, ["half", "always", "undecided"]),
        (1 / 3, 1 / 3, ["rare"]),
    ],
)
def test_kept_in_order_by_rate(responses, low, high, kept):
    for path in (responses, responses / "responses.jsonl"):
        source = PassRates(Five(), str(path), low, high)
        assert [problem.uid for problem in source.problems()] == kept


def test_the_source_begins_when_it_did(responses):
    assert PassRates(LateProblems(Five(), 3), str(responses)).from_iteration == 3


def test_bad_input(responses, tmp_path):
    with pytest.raises(ValueError, match=r"low: 0\.9 and high: 0\.1"):
        PassRates(Five(), "x", 0.9, 0.1)
    with pytest.raises(ValueError, match=r"responses: there is no file '.*nowhere'"):
        PassRates(Five(), str(tmp_path / "nowhere")).problems()
    with pytest.raises(ValueError, match="responses to 5 of the source's 6 problems, and none"):
        PassRates(Five(), str(responses), 0.6, 0.7).problems()
