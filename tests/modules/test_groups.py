"""Taking rollouts apart and together, and dynamic sampling over them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from r1lit.batches import Problem, PromptBatch, Response, Rollout, Verdict
from r1lit.collect import DynamicSampling, Fresh
from r1lit.collect.dynamic_sampling import groups_of_unequal_rewards
from r1lit.groups import join_rollouts, take_groups
from r1lit.modules.plan import BatchPlan
from r1lit.rollout.worker import Timings

RIGHT = Verdict(value=1.0, status="right", canonical="1", reason="")
WRONG = Verdict(value=0.0, status="wrong", canonical="2", reason="")


def make(problems: list[Problem], rewards: list[list[float]], width: int = 3) -> Rollout:
    num_rows = 2 * len(problems)
    flat = [reward for group in rewards for reward in group]
    marks = torch.tensor([int(problem.uid) for problem in problems for _ in range(2)])
    return Rollout(
        iteration=1,
        group_size=2,
        prompts=tuple((int(problem.uid),) for problem in problems),
        responses=tuple(
            Response(
                text=f"{problems[b // 2].uid}/{b % 2}",
                problem=problems[b // 2],
                verdict=RIGHT if reward else WRONG,
                num_tokens=width,
                finished=True,
            )
            for b, reward in enumerate(flat)
        ),
        response_BT=marks[:, None].repeat(1, width),
        length_B=torch.full((num_rows,), width),
        loss_mask_BT=torch.ones(num_rows, width, dtype=torch.bool),
        logp_sampler_BT=-marks[:, None].float().repeat(1, width),
        logp_old_BT=-marks[:, None].float().repeat(1, width),
        rewards={"accuracy": torch.tensor(rewards)},
        reward_PG=torch.tensor(rewards),
        advantage_BT=torch.tensor(flat)[:, None].repeat(1, width),
    )


def problem(uid: int) -> Problem:
    return Problem(uid=str(uid), question="?", answer="1", source="test")


def consistent(rollout: Rollout) -> list[int]:
    """Check that all of a rollout speaks of the same problems; return their uids."""
    uids = [int(p.uid) for p in rollout.problems]
    rows = [uid for uid in uids for _ in range(2)]
    assert [prompt[0] for prompt in rollout.prompts] == uids
    assert [r.text for r in rollout.responses] == [f"{u}/{g}" for u in uids for g in range(2)]
    assert rollout.response_BT[:, 0].tolist() == rows
    assert rollout.logp_old_BT[:, 0].tolist() == [-row for row in rows]
    right = [r.verdict.value for r in rollout.responses]
    assert rollout.reward_PG.flatten().tolist() == right == rollout.advantage_BT[:, 0].tolist()
    assert rollout.rewards["accuracy"].flatten().tolist() == right
    return uids


def test_groups_are_mixed_when_their_rewards_differ():
    rollout = make([problem(p) for p in range(4)], [[0, 1.0], [1.0, 1.0], [0.0, 0], [1.0, 0]])
    assert groups_of_unequal_rewards(rollout) == [0, 3]


def test_taking_groups_takes_everything_of_them():
    rollout = make([problem(p) for p in (7, 8, 9)], [[0, 1.0], [1.0, 1.0], [1.0, 0]])
    assert consistent(take_groups(rollout, [2, 0])) == [9, 7]
    assert consistent(take_groups(rollout, [1])) == [8]


def test_joining_pads_and_keeps_everything():
    wide = make([problem(1)], [[0.0, 1.0]], width=5)
    narrow = make([problem(2), problem(3)], [[1.0, 1.0], [1.0, 0.0]], width=2)
    joined = join_rollouts([narrow, wide])
    assert consistent(joined) == [2, 3, 1]
    assert joined.mask_BT.sum(-1).tolist() == [2, 2, 2, 2, 5, 5]
    assert joined.mask_BT.dtype == torch.bool and joined.response_BT.shape == (6, 5)
    assert (joined.logp_old_BT[:4, 2:] == 0).all()


def test_rollouts_of_two_iterations_are_not_joined():
    one, two = make([problem(1)], [[0.0, 1.0]]), make([problem(2)], [[0.0, 1.0]])
    object.__setattr__(two, "iteration", 2)
    with pytest.raises(AssertionError):
        join_rollouts([one, two])


def sample_dynamically(mixed: str, wanted: int) -> tuple[list[int], int, list[range]]:
    """Run dynamic sampling; ``mixed`` has a letter a prompt, m for mixed."""
    batch = PromptBatch(
        iteration=1, problems=tuple(problem(p) for p in range(len(mixed))), group_size=2,
        prompts=tuple((p,) for p in range(len(mixed))), num_prompts=wanted,
        positions=tuple(range(len(mixed))),
    )  # fmt: skip
    asked: list[range] = []

    class Rewarded(Fresh):
        def generating(self, batch: PromptBatch, run: Any, timings: Timings) -> Any:
            return nullcontext()

        def groups(self, batch: PromptBatch, rows: Any, run: Any, timings: Timings) -> Rollout:
            asked.append(rows)
            rewards = [[0.0, 1.0] if mixed[p] == "m" else [1.0, 1.0] for p in rows]
            return make([batch.problems[p] for p in rows], rewards, width=2 + len(asked))

    collected = DynamicSampling(Rewarded())(batch, None, Timings())
    sampled = [int(p.uid) for rollout in collected.sampled for p in rollout.problems]
    assert sampled == list(range(asked[-1].stop)), "dropped groups too"
    return consistent(collected.rollout), len(sampled) - wanted, asked


def test_mixed_groups_need_no_reserve():
    assert sample_dynamically("mmm---", 3) == ([0, 1, 2], 0, [range(0, 3)])


def test_the_reserve_fills_what_is_missing_and_no_more():
    groups, num_dropped, asked = sample_dynamically("m--m-mmm", 3)
    assert groups == [0, 3, 5]
    assert asked == [range(0, 3), range(3, 5), range(5, 6)]
    assert num_dropped == 3


def test_an_exhausted_reserve_is_filled_with_unmixed_groups_of_the_first_round():
    groups, num_dropped, asked = sample_dynamically("-m-----", 3)
    assert groups == [1, 0, 2]
    assert num_dropped == 4
    assert asked[-1].stop == 7


def test_no_group_is_mixed():
    assert sample_dynamically("----", 2) == ([0, 1], 2, [range(0, 2), range(2, 4)])
    assert sample_dynamically("--", 2) == ([0, 1], 0, [range(0, 2)])


PLAN = {"num_prompts": 6, "group_size": 4, "train_batch_size": 12, "micro_batch_tokens": 512,
        "num_inner_epochs": 2, "world_size": 2}  # fmt: skip


def test_a_plan_counts():
    plan = BatchPlan(**PLAN)
    assert (plan.num_rows, plan.num_minibatches, plan.updates_per_iteration) == (24, 2, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_batch_size": 10}, "train_batch_size: 10 does not divide 6 prompts x 4"),
        ({"world_size": 5}, "train_batch_size: 12 does not divide among 5 ranks"),
        *(({name: 0}, f"{name}: 0 is not at least 1") for name in PLAN),
    ],
)
def test_plans_that_do_not_come_out_even_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        BatchPlan(**{**PLAN, **change})


def test_a_plan_prints(capsys):
    data = {"num_train_problems": {"countdown": 1200, "chain": 60}, "num_iterations": 10}
    BatchPlan(**PLAN).print(data, max_tokens=64, max_tokens_from={7: 128})
    printed = " ".join(capsys.readouterr().out.split())
    assert "24" in printed and "minibatches of 12 rows" in printed
    assert "512 tokens in a micro-batch, at most" in printed
    assert "prompts, of 1,260 problems (1,200 countdown, 60 chain)" in printed
    assert "128 tokens at most from iteration 7 on" in printed
