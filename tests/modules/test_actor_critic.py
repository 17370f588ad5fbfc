"""A critic beside the policy, with its own optimiser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from actor_critic import GAE
from safetensors.torch import load_file
from test_batches import rollout
from test_ddp import SGD, fit_in_a_process
from test_resume import assert_equal, everything, run_and_kill
from tiny import data, grpo_config, merge, model

from r1lit.cli import main
from r1lit.modules import gradients
from r1lit.modules.base import PolicyModule
from r1lit.policy import Responses, load_reward_model

CRITIC = {"model": {"class_path": "actor_critic.ActorCritic"}}
WITH_GAE = {"class_path": "r1lit.objectives.GRPO", "init_args": {
    "advantage": {"class_path": "actor_critic.GAE"}}}  # fmt: skip
NO_VALIDATION = data(validation=None) | {
    "trainer": {"limit_val_batches": 0, "val_check_interval": 1}
}
SCHEDULE = {
    "class_path": "torch.optim.lr_scheduler.LinearLR",
    "init_args": {"total_iters": 12},
}


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_gae_by_hand():
    """gamma = 1/2, lambda = 1/2: deltas (1/2 * 3 - 2, 1 - 3) = (-1/2, -2), A = (-1, -2)."""
    value_BT = torch.zeros(6, 4)
    value_BT[:2, :2] = torch.tensor([[2.0, 3.0], [5.0, 7.0]])
    length_B = torch.tensor([2, 1, 4, 4, 4, 4])
    estimator = GAE(gamma=0.5, lam=0.5)
    advantage_BT = estimator.estimate(rollout(value_BT=value_BT, length_B=length_B))
    assert advantage_BT[:2].tolist() == [[-1.0, -2.0, 0.0, 0.0], [-4.0, 0.0, 0.0, 0.0]]
    # without values, rewards of 1 at the last of four tokens: (gamma lambda)^3, ..., 1
    assert advantage_BT[2].tolist() == [1 / 64, 1 / 16, 1 / 4, 1.0]


def test_values_are_read_before_each_token_and_do_not_know_it(policy: Path):
    critic = load_reward_model(str(policy), pad_id=0)
    torch.nn.init.normal_(critic.model.score.weight, generator=torch.Generator().manual_seed(0))
    prompts, response_BT = [[5, 6, 7], [8]], torch.tensor([[11, 12, 13], [14, 15, 0]])
    mask_BT = torch.tensor([[True] * 3, [True, True, False]])
    value_K = critic(Responses(prompts=prompts, response_BT=response_BT, mask_BT=mask_BT))
    read = [[5, 6, 7], [5, 6, 7, 11], [5, 6, 7, 11, 12], [8], [8, 14]]
    torch.testing.assert_close(value_K, torch.cat([critic([row]) for row in read]))
    assert len({round(float(v), 4) for v in value_K}) == 5


@pytest.mark.slow
def test_killed_and_resumed_is_bit_equal(tmp_path: Path, policy: Path) -> None:
    change = merge(CRITIC | NO_VALIDATION, model(objective=WITH_GAE, lr_scheduler=SCHEDULE))
    whole = grpo_config(tmp_path / "whole", policy, change)
    broken = grpo_config(tmp_path / "broken", policy, change)
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, 3, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    ended = everything(tmp_path / "whole")
    assert_equal(ended, everything(tmp_path / "broken"))
    assert [len(state) > 0 for state in ended["optimizers"]] == [True, True]
    assert any(name.startswith("critic.") for name in ended["weights"])
    # six iterations of two minibatches, each an update of either
    assert ended["global_step"] == 24
    assert [s["last_epoch"] for s in ended["scheduler"]] == [12, 12]


def test_the_value_model_learns_the_returns(fit, tmp_path: Path) -> None:
    """Every other row is paid 1: a value of 0 costs 1/2, one of 1/2 costs 1/4."""
    paid = model(rewards=[{"class_path": "tiny.Exploding", "init_args": {"after": 1000}}])
    fit("run", CRITIC, NO_VALIDATION, model(objective=WITH_GAE), paid, data(num_iterations=8))
    losses = [line["train/value_loss"] for line in metrics(tmp_path / "run")]
    assert losses[0] > 0.3 and max(losses[-3:]) < 0.22, losses


def test_the_critic_leaves_the_policy_alone(fit, tmp_path: Path) -> None:
    """With an advantage that does not read values, the policy is that of GRPO to the bit."""
    fit("alone", NO_VALIDATION)
    fit("beside", NO_VALIDATION, CRITIC)
    alone, beside = (tmp_path / name / "policy/model.safetensors" for name in ("alone", "beside"))
    assert_equal(load_file(alone), load_file(beside))
    for one, other in zip(metrics(alone.parents[1]), metrics(beside.parents[1]), strict=True):
        assert one["train/loss"] == other["train/loss"]
        assert one["train/grad_norm"] == other["train/grad_norm"]


def test_each_optimiser_is_clipped_to_its_own_norm(fit, monkeypatch, tmp_path: Path) -> None:
    """And an update changes the weights of one of them alone."""
    clipped: list[tuple[float, float, float]] = []
    clip = gradients.clip_gradients

    def watched(optimizer, max_norm, norm):
        exact = gradients.gradient_norm(optimizer)
        assert torch.equal(exact, norm)
        clip(optimizer, max_norm, norm)
        clipped.append((max_norm, float(norm), float(gradients.gradient_norm(optimizer))))

    monkeypatch.setattr("r1lit.modules.base.clip_gradients", watched)
    moved: list[set[str]] = []
    update = PolicyModule.make_update

    def make_update(self, *args, **options):
        before = {n: p.detach().clone() for n, p in self.named_parameters()}
        result = update(self, *args, **options)
        now = dict(self.named_parameters())
        moved.append({n.split(".")[0] for n in now if not torch.equal(now[n], before[n])})
        return result

    monkeypatch.setattr(PolicyModule, "make_update", make_update)
    fit(
        "run",
        CRITIC,
        NO_VALIDATION,
        model(objective=WITH_GAE, max_grad_norm=0.01, critic_max_grad_norm=0.02),
    )
    assert moved == [{"policy"}, {"critic"}] * 12
    assert [max_norm for max_norm, _, _ in clipped] == [0.01, 0.02] * 12
    for max_norm, before, after in clipped:
        assert before > max_norm
        assert abs(after - max_norm) < 1e-4 * max_norm + 1e-6


@pytest.mark.slow
def test_two_ranks_make_the_updates_of_one(tmp_path: Path, policy: Path) -> None:
    change = merge(
        merge(CRITIC | NO_VALIDATION, data(num_iterations=2)),
        model(objective=WITH_GAE, train_batch_size=16, optimizer=SGD),
    )
    weights = []
    for name, ranks in (
        ("one", {"devices": 1}),
        ("two", {"devices": 2, "strategy": "ddp_find_unused_parameters_true"}),
    ):
        config = grpo_config(tmp_path / name, policy, merge(change, {"trainer": ranks}))
        done = fit_in_a_process(config, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        checkpoint = tmp_path / name / "checkpoints" / "last.ckpt"
        weights.append(torch.load(checkpoint, weights_only=False)["state_dict"])
    one, two = weights
    assert any(name.startswith("critic.") for name in one)
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-3, atol=1e-4)
    plain = grpo_config(
        tmp_path / "ddp", policy, merge(change, {"trainer": {"devices": 2, "strategy": "ddp"}})
    )
    refused = fit_in_a_process(plain, tmp_path)
    assert refused.returncode and "ddp_find_unused_parameters_true" in refused.stderr
