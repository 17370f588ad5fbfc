"""Reading vLLM's replies: of which weights each token is, and what is not taken."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from r1lit.endpoint.client import MalformedReply
from r1lit.rollout.vllm_reply import read_completion

VERSIONS = {"run-2": 2, "run-4": 4}
CHOICE: dict[str, Any] = {
    "index": 0,
    "finish_reason": "stop",
    "token_ids": [7, 8, 9, 2],
    "logprobs": {"content": [{"token_id": t, "logprob": -t / 10} for t in (7, 8, 9, 2)]},
    "weight_versions": [
        {"version": "run-2", "start": 0, "end": 3},
        {"version": "run-4", "start": 3, "end": 4},
    ],
}


def test_each_token_has_the_version_that_drew_it():
    completion = read_completion(CHOICE, VERSIONS)
    assert completion.versions_T().tolist() == [2, 2, 2, 4] and completion.version == 2
    assert completion.logps.tolist() == pytest.approx([-0.7, -0.8, -0.9, -0.2])
    choice = CHOICE | {"weight_versions": [{"version": "run-4", "start": 0, "end": 4}]}
    completion = read_completion(choice, VERSIONS)
    assert completion.versions_T().tolist() == [4] * 4 and completion.version == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"finish_reason": "abort"}, "ended by 'abort'"),
        ({"weight_versions": []}, "it was restarted"),
        ({"weight_versions": [{"version": "default", "start": 0, "end": 4}]}, "'default'"),
        ({"weight_versions": [*CHOICE["weight_versions"], CHOICE["weight_versions"][1]]}, "of 5"),
        ({"token_ids": [7, 8, 9, 3]}, "not those of its tokens"),
    ],
)
def test_a_reply_that_is_not_whole_or_of_other_weights(change: dict[str, Any], told: str):
    with pytest.raises(MalformedReply, match=told):
        read_completion(copy.deepcopy(CHOICE) | change, VERSIONS)
