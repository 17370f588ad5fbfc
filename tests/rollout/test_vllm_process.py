"""Which GPUs the servers of ``serve: true`` get, and where they cannot be."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from r1lit.rollout import VLLMEngine
from r1lit.rollout.vllm.process import check_ranks, groups_of, visible

FOUR = [("node1", gpu) for gpu in range(4)]


def test_each_server_gets_as_many_gpus_as_share_its_tensors():
    assert groups_of([4, 5, 6, 7], {}) == [(4,), (5,), (6,), (7,)]
    assert groups_of([4, 5, 6, 7], {"tensor-parallel-size": 2}) == [(4, 5), (6, 7)]
    assert groups_of([], {}) == []


def test_gpus_are_counted_among_those_that_this_process_sees(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible((4, 5)) == {"CUDA_VISIBLE_DEVICES": "4,5"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,GPU-8f1a")
    assert visible((1, 2)) == {"CUDA_VISIBLE_DEVICES": "3,GPU-8f1a"}
    assert visible(()) == {}, "the trainer's GPU, which this process sees as it is"


def test_servers_on_gpus_of_their_own_are_for_one_machine():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_ranks([(4,), (5,)], FOUR)
        check_ranks([], [("node1", 0)])
        check_ranks([], [("node1", None)] * 2)
    with pytest.raises(ValueError, match=r"serve: true on 2 machines \(node1, node2\).* urls"):
        check_ranks([(4,)], [("node1", 0), ("node2", 0)])
    with pytest.raises(ValueError, match=r"gpus: \[3\] are also the trainer's; .*devices"):
        check_ranks([(3,), (4,)], FOUR)
    with pytest.warns(UserWarning, match=r"one server for 4 GPUs .* on GPU 0; gpus gives"):
        check_ranks([], FOUR)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"urls": ["http://127.0.0.1:8000"]}, r"gpus: \[4, 5\] .* set serve to true"),
        ({"serve": True, "transfer": "ipc"}, "ipc reads memory of the same GPU"),
        ({"serve": True, "sleep": True}, "set sleep to false"),
        ({"serve": True, "flags": {"tensor-parallel-size": 4}}, "give a multiple of it"),
        ({"serve": True, "gpus": [4, 4]}, r"gpus: \[4, 4\] are not different numbers"),
        ({"serve": True, "gpus": [-1]}, "from 0 on"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        VLLMEngine(**{"gpus": [4, 5], **settings})
