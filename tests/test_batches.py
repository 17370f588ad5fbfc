"""The invariants that frozen dataclasses assert."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch

from r1lit.batches import Problem, PromptBatch, Response, Rollout, Verdict
from r1lit.supervised_batches import PackedRows

PROBLEMS = tuple(Problem(uid=f"u{p}", question="?", answer="1", source="s") for p in range(3))


def batch(**changes) -> PromptBatch:
    fields = {
        "iteration": 0, "problems": PROBLEMS, "prompts": ((1,), (2,), (3,)), "group_size": 2,
        "num_prompts": 2, "positions": (4, 7, 9),
    }  # fmt: skip
    return PromptBatch(**{**fields, **changes})


def rollout(**changes) -> Rollout:
    verdict = Verdict(value=1.0, status="right", canonical="1", reason="")
    responses = tuple(
        Response(
            text=f"{b}", problem=PROBLEMS[b // 2], verdict=verdict, num_tokens=1, finished=True
        )
        for b in range(6)
    )
    fields = {
        "iteration": 0, "group_size": 2, "prompts": ((1,), (2,), (3,)), "responses": responses,
        "response_BT": torch.ones(6, 4, dtype=torch.long), "logp_old_BT": torch.zeros(6, 4),
        "logp_sampler_BT": torch.zeros(6, 4), "length_B": torch.full((6,), 4),
        "loss_mask_BT": torch.ones(6, 4, dtype=torch.bool),
        "rewards": {"accuracy": torch.ones(3, 2)},
        "reward_PG": torch.ones(3, 2), "advantage_BT": torch.zeros(6, 4),
    }  # fmt: skip
    return Rollout(**{**fields, **changes})


def test_samples_are_named_by_position_prompt_major():
    assert batch().samples(range(0, 2)) == [8, 9, 14, 15]
    assert batch().samples(range(2, 3)) == [18, 19]


@pytest.mark.parametrize(
    "wrong", [{"prompts": ((1,),)}, {"positions": (1, 2)}, {"num_prompts": 0}, {"num_prompts": 4},
              {"group_size": 0}]
)  # fmt: skip
def test_prompt_batches_that_cannot_be(wrong):
    with pytest.raises(AssertionError):
        batch(**wrong)


def test_groups_and_problems_are_prompt_major():
    made = rollout()
    assert made.num_prompts == 3
    texts = [[r.text for r in group] for group in made.groups()]
    assert texts == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert made.problems == PROBLEMS


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompts": ((1,), (2,))},
        {"group_size": 3},
        {"loss_mask_BT": torch.ones(6, 4)},
        {"loss_mask_BT": torch.ones(6, 3, dtype=torch.bool)},
        {"length_B": torch.ones(6)},
        {"length_B": torch.ones(5, dtype=torch.long)},
        {"logp_sampler_BT": torch.zeros(6, 5)},
        {"logp_old_BT": torch.zeros(6, 5)},
        {"reward_PG": torch.ones(2, 3)},
        {"advantage_BT": torch.zeros(6)},
        {"rewards": {"accuracy": torch.ones(6)}},
    ],
)
def test_rollouts_that_cannot_be(wrong):
    with pytest.raises(AssertionError):
        rollout(**wrong)


@pytest.mark.parametrize(("value", "status"), [(1.0, "wrong"), (0.0, "right"), (1.5, "right")])
def test_verdicts_that_cannot_be(value, status):
    with pytest.raises(AssertionError):
        Verdict(value=value, status=status, canonical=None, reason="")


def test_packed_rows_keep_everything_when_moved():
    rows = PackedRows(
        iteration=3, input_ids_RL=torch.ones(2, 4, dtype=torch.long),
        position_ids_RL=torch.arange(4).repeat(2, 1), loss_mask_RL=torch.ones(2, 4) > 0,
    )  # fmt: skip
    moved = rows.to("meta")
    assert moved.iteration == 3 and moved.loss_mask_RL.dtype == torch.bool
    assert {moved.input_ids_RL.device.type, moved.position_ids_RL.device.type} == {"meta"}
    with pytest.raises(AssertionError):
        PackedRows(iteration=0, input_ids_RL=torch.ones(2, 4), position_ids_RL=torch.ones(2, 3),
                   loss_mask_RL=torch.ones(2, 4) > 0)  # fmt: skip


def test_nothing_is_changed_in_place():
    with pytest.raises(FrozenInstanceError):
        rollout().iteration = 1  # type: ignore[misc]
