"""The MajorityVote metric against hand-computed values, and over two ranks."""

from __future__ import annotations

import math
import multiprocessing

import pytest
import torch
import torch.distributed

from r1lit.batches import Problem, Response, Rollout, Verdict
from r1lit.metrics.majority_vote import MajorityVote


def rollout(*groups: str) -> Rollout:
    """One group a string: upper case right, lower case wrong, a dot casts no vote."""
    responses = tuple(
        Response(
            text=key,
            problem=Problem(uid=str(p), question="?", answer="A", source="s"),
            verdict=Verdict(
                value=float(key.isupper()),
                status="right" if key.isupper() else "wrong",
                canonical=None if key == "." else key,
                reason="",
            ),
            num_tokens=1,
            finished=True,
        )
        for p, group in enumerate(groups)
        for key in group
    )
    shape = (len(groups), len(groups[0]))
    return Rollout(
        iteration=0,
        group_size=shape[1],
        prompts=((0,),) * shape[0],
        responses=responses,
        response_BT=torch.zeros(len(responses), 1, dtype=torch.long),
        length_B=torch.ones(len(responses), dtype=torch.long),
        loss_mask_BT=torch.ones(len(responses), 1, dtype=torch.bool),
        logp_sampler_BT=torch.zeros(len(responses), 1),
        logp_old_BT=torch.zeros(len(responses), 1),
        rewards={},
        reward_PG=torch.zeros(shape),
        advantage_BT=torch.zeros(len(responses), 1),
    )


def values(metric: MajorityVote) -> dict[str, float]:
    return {name: float(value) for name, value in metric.compute().items()}


# per problem: pass@1 2/3, 0, 1/3; pass@2 1, 0, 2/3; cons@2 2/3, 0, 1/3; cons@3 1, 0, 1/3
EXPECTED = {
    "pass_at_1": 1 / 3,
    "pass_at_1_stderr": (1 / 3) / math.sqrt(3),
    "pass_at_2": 5 / 9,
    "pass_at_3": 2 / 3,
    "cons_at_1": 1 / 3,
    "cons_at_2": 1 / 3,
    "cons_at_3": 4 / 9,
    "num_problems": 3,
    "num_samples": 3,
}


def test_values_by_hand_over_two_updates():
    metric = MajorityVote()
    metric.update(rollout("AbA", "bb."))
    metric.update(rollout("Abc"))
    assert values(metric) == pytest.approx(EXPECTED)


def test_reset_forgets():
    metric = MajorityVote()
    metric.update(rollout("bb"))
    metric.reset()
    metric.update(rollout("AAAA"))
    result = values(metric)
    assert result["pass_at_1"] == result["cons_at_4"] == 1.0
    assert math.isnan(result["pass_at_1_stderr"])  # one problem has no spread


def test_group_sizes_must_agree():
    metric = MajorityVote()
    metric.update(rollout("Ab"))
    with pytest.raises(ValueError, match=r"group_size=3 differs from 2"):
        metric.update(rollout("Abc"))


def test_nothing_seen_is_an_error():
    with pytest.raises(ValueError, match="no rollout"), pytest.warns(UserWarning):
        MajorityVote().compute()


def _rank(rank: int, store: str, results) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    metric = MajorityVote()
    metric.update(rollout("AbA", "bb.") if rank == 0 else rollout("Abc"))
    results.put(values(metric))
    torch.distributed.destroy_process_group()


def test_two_ranks_compute_what_one_would(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    ranks = [
        context.Process(target=_rank, args=(r, str(tmp_path / "store"), results)) for r in (0, 1)
    ]
    for process in ranks:
        process.start()
    try:
        assert [results.get(timeout=60) for _ in ranks] == [pytest.approx(EXPECTED)] * 2
    finally:
        for process in ranks:
            process.join(30)
