"""PPO: a critic beside the policy, with its own optimiser."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from test_ddp import SGD, fit_in_a_process
from test_resume import assert_equal, everything, run_and_kill
from tiny import ahead, data, grpo_config, merge, metrics, model, save_policy, step

from r1lit.batches import Rollout
from r1lit.cli import main
from r1lit.modules import GRPOModule, base
from r1lit.modules.base import PolicyModule
from r1lit.modules.token_values import token_values
from r1lit.objectives import GAE, PPO, AdvantageEstimator
from r1lit.policy import Responses, load_policy, load_reward_model
from r1lit.steps import Critic
from r1lit.steps.critic import explained_variance
from r1lit.steps.value_truth import ValueTruth, compare

ADAM = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}}
NO_VALIDATION = data(validation=None) | {
    "trainer": {"limit_val_batches": 0, "val_check_interval": 1}
}


def decay(updates: int) -> dict[str, object]:
    return {
        "class_path": "torch.optim.lr_scheduler.LinearLR",
        "init_args": {"total_iters": updates},
    }


def test_schedules_over_the_run_end_with_the_updates_of_their_optimiser(
    tmp_path, policy, monkeypatch, capsys
):
    """In warm-up the policy makes no updates, and a critic makes as many as its epochs say."""
    made: dict[str, list[float]] = {}
    makes = PolicyModule.make_update

    def noted(self, optimizer, *rest, **options):
        name = "policy" if optimizer is self.policy_optimizer else "critic"
        made.setdefault(name, []).append(float(optimizer.param_groups[0]["lr"]))
        return makes(self, optimizer, *rest, **options)

    monkeypatch.setattr(PolicyModule, "make_update", noted)
    cosine = {"class_path": "r1lit.modules.CosineOverRun", "init_args": {"final_share": 0.0}}
    change = ppo(critic={"lr_scheduler": cosine, "warmup": 1, "epochs": 2}, lr_scheduler=cosine)
    change = merge(change, data(num_iterations=3, validation=None))
    main(["fit", "-c", str(grpo_config(tmp_path / "run", policy, merge(NO_VALIDATION, change)))])
    for rates in made.values():
        share = [(1 + math.cos(math.pi * i / len(rates))) / 2 for i in range(len(rates))]
        assert [rate / rates[0] for rate in rates] == pytest.approx(share)
    assert len(made["critic"]) == 3 * len(made["policy"])  # 3 iterations x 2 epochs, and 2 x 1
    assert f"Learning rate over {len(made['policy'])} updates: " in capsys.readouterr().out


class Reward(AdvantageEstimator):
    """A_t = r at every token."""

    def estimate(self, rollout: Rollout) -> torch.Tensor:
        return torch.where(rollout.mask_BT, rollout.reward_PG.reshape(-1, 1), 0.0)


PENALTY = step("KLInReward", beta=0.1)
WHITENED = {
    "class_path": "r1lit.objectives.PPO",
    "init_args": {
        "advantage": {
            "class_path": "r1lit.objectives.Whitened",
            "init_args": {"estimator": "r1lit.objectives.GAE"},
        }
    },
}


class Reads(Reward):
    """Reads values, and has no returns that a critic could learn."""

    reads = ("reward_PG", "value_BT")


class ReadsValues(PPO):
    """PPO with it."""

    def __init__(self) -> None:
        super().__init__(advantage=Reads())


def ppo(
    *before: dict[str, object], critic: dict[str, object] | None = None, **init_args: object
) -> dict[str, object]:
    """A change of the GRPO run into one of PPO, with steps before the critic's."""
    steps = [*before, step("Critic", **{"optimizer": ADAM} | (critic or {}))]
    own = {"objective": {"class_path": "r1lit.objectives.PPO"}, "steps": steps}
    return merge(NO_VALIDATION, model(**{**own, **init_args}))


def weights(run: Path) -> dict[str, torch.Tensor]:
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=False)
    return saved["state_dict"]


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
    truth = {"every_n_iterations": 2, "num_prefixes": 4}
    critic = {"lr_scheduler": decay(20), "warmup": 1, "epochs": 2, "truth": truth}
    change = ppo(PENALTY, critic=critic, lr_scheduler=decay(12))
    whole = grpo_config(tmp_path / "whole", policy, change)
    broken = grpo_config(tmp_path / "broken", policy, change)
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, 3, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    ended = everything(tmp_path / "whole")
    assert_equal(ended, everything(tmp_path / "broken"))
    assert [len(state) > 0 for state in ended["optimizers"]] == [True, True]
    assert {name.split(".")[0] for name in ended["weights"]} >= {"policy", "critic", "reference"}
    # two minibatches, the critic's twice: one iteration of it alone, and five with the policy's
    assert ended["global_step"] == 4 + 5 * (2 + 4)
    assert [s["last_epoch"] for s in ended["scheduler"]] == [10, 24]


@pytest.mark.slow
def test_the_critic_learns_the_returns(fit, tmp_path: Path) -> None:
    """Every other row is paid 1: a value of 0 costs 1/4, one of 1/2 costs 1/8."""
    paid = model(rewards=[{"class_path": "tiny.Exploding", "init_args": {"after": 1000}}])
    fit("run", ppo(), paid, data(num_iterations=8))
    lines = metrics(tmp_path / "run")
    losses = [line["train/value_loss"] for line in lines]
    assert losses[0] > 0.15 and max(losses[-3:]) < 0.14, losses
    assert abs(lines[0]["train/value_mean"]) < 1e-6  # the head begins with zeros
    assert abs(lines[-1]["train/value_mean"] - 0.5) < 0.2
    assert abs(lines[0]["train/explained_variance"]) < 1e-6


def test_warm_up_trains_the_critic_alone_on_every_row(
    fit, policy: Path, tmp_path: Path, monkeypatch
) -> None:
    rows: dict[int, list[int]] = {}
    num_rows: dict[int, int] = {}
    value_loss = Critic._loss

    def noted(self, rollout: Rollout, *args: object):
        rows.setdefault(rollout.iteration, []).extend(args[-1].tolist())
        num_rows[rollout.iteration] = len(rollout.response_BT)
        return value_loss(self, rollout, *args)

    monkeypatch.setattr(Critic, "_loss", noted)
    bonus = {"class_path": "r1lit.objectives.EntropyBonus", "init_args": {"target": 100.0}}
    objective = {"class_path": "r1lit.objectives.PPO", "init_args": {"terms": [bonus]}}
    fit("run", ppo(critic={"warmup": 2}, objective=objective), data(num_iterations=2))
    ended, begun = weights(tmp_path / "run"), load_policy(str(policy)).state_dict()
    for name, value in begun.items():
        assert torch.equal(value, ended[f"policy.{name}"]), name
    head = next(v for n, v in ended.items() if n.startswith("critic.") and "score" in n)
    assert bool(head.any())
    # advantages are all 0 here, and rows of advantage 0 are left out for the policy only
    assert {n: sorted(own) for n, own in rows.items()} == {
        n: list(range(num_rows[n])) for n in range(2)
    }
    lines = metrics(tmp_path / "run")
    assert all("train/loss" not in line and "train/value_loss" in line for line in lines)
    assert all(math.isfinite(v) for line in lines for v in line.values())


@pytest.mark.long
def test_with_values_of_zero_and_lambda_one_it_is_a_policy_gradient(fit, tmp_path: Path) -> None:
    """A critic that never moves from 0 leaves the reward itself as every token's advantage."""
    still = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.0}}
    gae = {"class_path": "r1lit.objectives.GAE", "init_args": {"lambda_policy": 1.0}}
    fit("ppo", ppo(critic={"optimizer": still}), model(
        objective={"class_path": "r1lit.objectives.PPO", "init_args": {"advantage": gae}},
    ), data(num_iterations=2))  # fmt: skip
    plain = {"class_path": "test_ppo.Reward"}
    dapo = {"epsilon_low": 0.2, "epsilon_high": 0.2, "advantage": plain}
    fit("dapo", NO_VALIDATION, model(
        objective={"class_path": "r1lit.objectives.DAPO", "init_args": dapo},
    ), data(num_iterations=2))  # fmt: skip
    one, other = weights(tmp_path / "ppo"), weights(tmp_path / "dapo")
    for name, value in other.items():
        assert torch.equal(value, one[name]), name


def test_kl_in_the_reward_is_beta_times_the_log_ratio_at_each_token(fit, monkeypatch) -> None:
    seen: list[tuple[Rollout, torch.Tensor]] = []
    update = GRPOModule.update

    def watched(self: GRPOModule, rollout: Rollout, *args: object, **options: object) -> object:
        seen.append((rollout, token_values(self.reference, rollout, 16, 1.0, 4096).logp_BT))
        return update(self, rollout, *args, **options)

    monkeypatch.setattr(GRPOModule, "update", watched)
    fit("run", ppo(PENALTY), data(num_iterations=3))
    for rollout, logp_ref_BT in seen:
        wanted_BT = -0.1 * (rollout.logp_old_BT - logp_ref_BT).where(rollout.mask_BT, 0.0)
        torch.testing.assert_close(rollout.reward_BT, wanted_BT, atol=1e-5, rtol=0)
        paid_B = rollout.reward_PG.flatten() + wanted_BT.sum(-1)
        gae_B = (GAE().returns(rollout)[:, 0] - paid_B).abs()  # lambda of the critic is 1
        assert float(gae_B.max()) < 1e-4
    (first, _), *_, (last, _) = seen
    assert float(first.reward_BT.abs().max()) < 1e-5 < float(last.reward_BT.abs().max())


@pytest.mark.long
def test_values_are_compared_with_what_continues_the_prefixes(fit, tmp_path, monkeypatch) -> None:
    """Every other row is paid 1, so that of four continuations of any prefix two are."""
    seen: list[tuple[Rollout, list[tuple[int, int]], Rollout]] = []
    method = ValueTruth.continued

    def watched(self: ValueTruth, worker, rollout, prefixes, context) -> Rollout:
        made = method(self, worker, rollout, prefixes, context)
        assert int(made.length_B.max()) <= worker.sampling.max_tokens
        seen.append((rollout, prefixes, made))
        return made

    monkeypatch.setattr(ValueTruth, "continued", watched)
    paid = model(rewards=[{"class_path": "tiny.Exploding", "init_args": {"after": 1000}}])
    truth = {"every_n_iterations": 2, "num_prefixes": 8, "num_completions": 4}
    fit("truth", ppo(critic={"truth": truth}), paid, data(num_iterations=3))
    fit("plain", ppo(), paid, data(num_iterations=3))
    one, other = weights(tmp_path / "truth"), weights(tmp_path / "plain")
    assert all(torch.equal(value, one[name]) for name, value in other.items())
    lines = metrics(tmp_path / "truth")
    assert lines[0]["train/value_truth/mean_abs_error"] == 0.5  # the critic begins with zeros
    assert lines[0]["train/value_truth/standard_error"] == pytest.approx((1 / 3) ** 0.5 / 2)
    assert ["train/value_truth/mean_abs_error" in line for line in lines] == [True, False, True]
    assert len(seen) == 2 and any(t for _, prefixes, _ in seen for _, t in prefixes)
    for rollout, prefixes, made in seen:
        assert len({row for row, _ in prefixes}) == made.num_prompts == 8
        for group, (row, t) in enumerate(prefixes):
            assert made.prompts[group] == rollout.prompts[row // rollout.group_size]
            assert t < rollout.length_B[row]
            for continued in made.response_BT[4 * group : 4 * group + 4]:
                assert torch.equal(continued[:t], rollout.response_BT[row, :t])


def test_values_against_the_truth_by_hand() -> None:
    found = compare(torch.tensor([0.0, 1.0]), torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    assert found == pytest.approx((0.25, 0.25, 1.0, 0.25))  # error, bias, correlation, and truth's
    assert math.isnan(compare(torch.ones(2), torch.eye(2))[2])


def test_a_warm_up_is_not_clipped_and_a_critic_may_learn_in_more_epochs(fit, tmp_path) -> None:
    """Values move past the clip of 0.01 in the warm-up alone; six updates of the critic in each."""
    paid = model(rewards=[{"class_path": "tiny.Exploding", "init_args": {"after": 1000}}])
    tight = {"class_path": "r1lit.objectives.ValueObjective", "init_args": {"epsilon": 0.01}}
    cli = fit("run", ppo(critic={"warmup": 1, "epochs": 3, "objective": tight}), paid,
              data(num_iterations=2))  # fmt: skip
    first, second = metrics(tmp_path / "run")
    assert first["train/value_clip_fraction"] == 0 < second["train/value_clip_fraction"]
    assert cli.trainer.global_step == 6 + 6 + 2


def test_a_value_model_starts_from_a_reward_model(fit, tmp_path: Path, policy: Path) -> None:
    made = load_reward_model(str(policy), pad_id=0)
    torch.nn.init.constant_(made.model.score.weight, 0.01)
    made.save_pretrained(tmp_path / "rm")
    fit("run", ppo(critic={"model": str(tmp_path / "rm")}), data(num_iterations=1))
    assert abs(metrics(tmp_path / "run")[0]["train/value_mean"]) > 1e-4
    # what was exported starts the next stage's critic
    critic, ended = (
        load_reward_model(str(tmp_path / "run" / "critic"), pad_id=0),
        weights(tmp_path / "run"),
    )
    for name, value in critic.state_dict().items():
        assert torch.equal(value, ended[f"critic.{name}"]), name


def test_each_optimiser_is_clipped_to_its_own_norm(fit, monkeypatch, tmp_path: Path) -> None:
    """And an update changes the weights of one of them alone."""
    clipped: list[tuple[float, float, float]] = []
    clip = base.clip_gradients

    def watched(optimizer, max_norm, norm):
        exact = base.gradient_norm(optimizer)
        assert torch.equal(exact, norm)
        clip(optimizer, max_norm, norm)
        clipped.append((max_norm, float(norm), float(base.gradient_norm(optimizer))))

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
    fit("run", ppo(critic={"max_grad_norm": 0.002}, max_grad_norm=0.001), data(num_iterations=2))
    assert moved == [{"critic"}, {"critic"}, {"policy"}, {"policy"}] * 2
    assert [max_norm for max_norm, _, _ in clipped] == [0.002, 0.002, 0.001, 0.001] * 2
    for max_norm, before, after in clipped:
        assert before > max_norm
        assert abs(after - max_norm) < 1e-4 * max_norm + 1e-6


@pytest.mark.slow
def test_two_ranks_make_the_updates_of_one(tmp_path: Path, policy: Path) -> None:
    change = merge(
        ppo(
            PENALTY,
            critic={"optimizer": SGD},
            train_batch_size=16,
            optimizer=SGD,
            objective=WHITENED,
        ),
        data(num_iterations=2),
    )
    ended = []
    for name, ranks in (
        ("one", {"devices": 1}),
        ("two", {"devices": 2, "strategy": "ddp_find_unused_parameters_true"}),
    ):
        config = grpo_config(tmp_path / name, policy, merge(change, {"trainer": ranks}))
        done = fit_in_a_process(config, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        ended.append(weights(tmp_path / name))
    one, two = ended
    assert any(name.startswith("critic.") for name in one)
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-3, atol=1e-4)
    plain = grpo_config(
        tmp_path / "ddp", policy, merge(change, {"trainer": {"devices": 2, "strategy": "ddp"}})
    )
    refused = fit_in_a_process(plain, tmp_path)
    assert refused.returncode and "ddp_find_unused_parameters_true" in refused.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (ppo(objective={"class_path": "r1lit.objectives.GRPO"}), "Critic writes value_BT, which n"),
        (ppo(steps=[]), "no step writes value_BT, .*; r1lit.steps.Critic does"),
        (ppo(objective={"class_path": "test_ppo.ReadsValues"}), "advantage: Reads does not read"),
        (ppo(step("KLInReward", beta=-1.0)), "beta: -1.0"),
        (ppo(critic={"warmup": -1}), "warmup: -1"),
        (ppo(critic={"epochs": 0}), "Critic.epochs: 0 is not at least 1"),
        (ppo(critic={"truth": {"num_completions": 1}}), "truth.num_completions: 1"),
        (ppo(critic={"truth": {}}, collector=ahead(1)), "Critic.truth cont.* earlier one"),
        (ppo(critic={"model": "no/such/folder"}), "critic: the directory 'no/such/folder'"),
    ],
)
def test_mistakes_are_one_line(fit, change, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit("run", change)


@pytest.mark.parametrize("name", ["PPOModule", "r1lit.modules.PRIMEModule"])
def test_modules_that_became_steps_are_named(fit, name: str) -> None:
    with pytest.raises(ValueError, match=r"^model: there is no .*steps\.(Critic|ProcessModel)"):
        fit("run", {"model": {"class_path": name}})


def test_explained_variance():
    value_N, return_N = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 2.0])
    assert explained_variance(value_N, return_N) == 1.0
    assert explained_variance(-value_N, return_N) == pytest.approx(-3.0)
    assert math.isnan(explained_variance(value_N, torch.ones(3)))


def test_a_critic_has_no_dropout_unless_asked_for(tmp_path: Path) -> None:
    folder = save_policy(tmp_path / "policy")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    rows = [[5, 6, 7, 8]]
    for dropout in (False, True):
        critic = load_reward_model(str(folder), pad_id=0, dropout=dropout)
        torch.nn.init.normal_(critic.model.score.weight)
        critic.train()
        assert torch.equal(critic(rows), critic(rows)) is not dropout
