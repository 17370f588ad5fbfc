"""Rewards of steps and of tokens in reinforcement learning, through the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from metrics_page import assert_documented
from test_ppo import NO_VALIDATION, PENALTY, ppo
from test_resume import assert_equal, everything, run_and_kill
from tiny import data, grpo_config, merge, model, step

from r1lit.batches import Response, Rollout
from r1lit.cli import main
from r1lit.modules import GRPOModule
from r1lit.modules.token_values import token_values
from r1lit.objectives import GAE
from r1lit.rewards import RewardFunction, StepRewards
from r1lit.text.scored_text import pieces

SUPERVISION = {
    "class_path": "r1lit.objectives.DAPO",
    "init_args": {"advantage": {"class_path": "r1lit.objectives.ProcessSupervision"}},
}
IMPLICIT = {
    "class_path": "r1lit.objectives.DAPO",
    "init_args": {"advantage": {"class_path": "r1lit.objectives.ImplicitProcess"}},
}


class HalfAndEnd(RewardFunction):
    """Pays the first half of a text 1, and the rest the text's length."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return [0.0] * len(responses)

    def step_rewards(self, responses: Sequence[Response]) -> list[StepRewards]:
        return [
            StepRewards(ends=(len(r.text) // 2, len(r.text)), rewards=(1.0, float(len(r.text))))
            if len(r.text) > 1
            else StepRewards()
            for r in responses
        ]


HALF = [{"class_path": "test_step_rewards.HalfAndEnd"}]


def watch(monkeypatch) -> list[Rollout]:
    """Return a list that gets each iteration's rollout with its advantages."""
    seen: list[Rollout] = []
    update = GRPOModule.update

    def watched(self, rollout: Rollout, *args: object, **options: object) -> object:
        seen.append(rollout)
        return update(self, rollout, *args, **options)

    monkeypatch.setattr(GRPOModule, "update", watched)
    return seen


def test_rewards_of_steps_reach_the_tokens_that_end_them(fit, monkeypatch) -> None:
    seen = watch(monkeypatch)
    cli = fit(
        "run", NO_VALIDATION, model(rewards=HALF, objective=SUPERVISION), data(num_iterations=2)
    )
    decode = partial(cli.model.tokenizer.decode, skip_special_tokens=True)
    num_checked = 0
    for rollout in seen:
        for row, response in enumerate(rollout.responses):
            text, ids = response.text, rollout.response_BT[row, : response.num_tokens].tolist()
            assert float(rollout.reward_BT[row].sum()) == (1.0 + len(text)) * (len(text) > 1)
            places = rollout.step_end_BT[row].nonzero().flatten().tolist()
            if len(places) == 2:
                ends = list(accumulate(map(len, pieces(decode, ids))))
                assert [0, *ends][places[0]] < len(text) // 2 <= ends[places[0]]
                assert float(rollout.reward_BT[row, places[0]]) == 1.0
                num_checked += 1
    assert num_checked > 4


def test_ppo_adds_rewards_of_steps_to_its_penalty(fit, monkeypatch) -> None:
    seen = watch(monkeypatch)
    fit("run", ppo(PENALTY), model(rewards=HALF), data(num_iterations=2))
    for rollout in seen:
        length_B = torch.tensor([len(r.text) for r in rollout.responses])
        paid_B = torch.where(length_B > 1, 1.0 + length_B, 0.0)
        penalty_B = rollout.reward_BT.sum(-1) - paid_B
        assert float(penalty_B.abs().max()) < 1.0
        paid_B = rollout.reward_BT.sum(-1)
        gae_B = (GAE().returns(rollout)[:, 0] - paid_B).abs()  # its lambda_critic is 1
        assert float(gae_B.max()) < 1e-3


def prime(**init_args: object) -> dict[str, object]:
    adam = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}}
    own = {"objective": IMPLICIT, "steps": [step("ProcessModel", optimizer=adam, beta=0.5)]}
    return merge(NO_VALIDATION, model(**{**own, **init_args}))


class EveryOther(RewardFunction):
    """Pays every other response; verdicts stay what they are."""

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        return [float(row % 2) for row in range(len(responses))]


def test_implicit_rewards_are_beta_times_the_log_ratio(fit, monkeypatch, tmp_path: Path) -> None:
    checked = []
    update = GRPOModule.update

    def watched(self: GRPOModule, made: Rollout, *args: object, **options: object) -> object:
        rows = len(made.responses)
        reward_BT = made.extra("process_reward_BT", "this test")
        phi, ref = (
            token_values(m, made, rows, 1.0, 4096).logp_BT
            for m in (self.process_model, self.process_reference)
        )
        torch.testing.assert_close(reward_BT, 0.5 * (phi - ref), atol=1e-5, rtol=0)
        checked.append(float(reward_BT.sum(-1).mean()))
        return update(self, made, *args, **options)

    monkeypatch.setattr(GRPOModule, "update", watched)
    fit("run", prime(), model(rewards=[{"class_path": "test_step_rewards.EveryOther"}]),
        data(num_iterations=2))  # fmt: skip
    # no response of a random policy is right; rewards are of after the update, which has learnt it
    assert checked[0] < -0.1
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["train/process_loss"] < math.log(2)  # that of the first minibatch
    assert lines[0]["train/process_reward"] == pytest.approx(checked[0], abs=1e-5)
    assert_documented({key for line in lines for key in line if "/" in key})


def test_prime_needs_its_own_advantage(fit) -> None:
    with pytest.raises(ValueError, match="ProcessModel writes process_reward_BT, which neither"):
        fit("run", prime(objective={"class_path": "r1lit.objectives.DAPO"}))
    with pytest.raises(ValueError, match=r"no step writes process_reward_BT.*steps\.ProcessModel"):
        fit("run", prime(steps=[]))
    steps = [PENALTY, *prime()["model"]["init_args"]["steps"]]
    with pytest.raises(ValueError, match="KLInReward writes reward_BT, which neither"):
        fit("run", prime(steps=steps))


@pytest.mark.slow
def test_prime_killed_and_resumed_is_bit_equal(tmp_path: Path, policy: Path) -> None:
    whole = grpo_config(tmp_path / "whole", policy, prime())
    broken = grpo_config(tmp_path / "broken", policy, prime())
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, 3, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    ended = everything(tmp_path / "whole")
    assert_equal(ended, everything(tmp_path / "broken"))
    assert {name.split(".")[0] for name in ended["weights"]} >= {"process_model", "policy"}
