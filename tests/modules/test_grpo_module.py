"""GRPOModule through the command line, on a small random policy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from lightning.pytorch import Callback
from metrics_page import MEASURED
from safetensors.torch import load_file
from tiny import CORRECTION, callbacks, data, grpo_config, metrics, model

from r1lit.batches import Rollout
from r1lit.cli import main
from r1lit.objectives import Objective
from r1lit.policy import Policy

NOVAL = {
    "trainer": {"limit_val_batches": 0, "val_check_interval": 1},
    "data": {"init_args": {"num_iterations": 1}},
}
RARE = {
    "class_path": "r1lit.rewards.Overlong",
    "init_args": {"max_tokens": 8, "buffer_tokens": 7},
}
GOLDEN = Path(__file__).parents[1] / "golden" / "grpo_iterations.json"


def untimed(run: Path) -> list[dict[str, float]]:
    return [
        {k: v for k, v in line.items() if k != "seconds" and not k.startswith(MEASURED)}
        for line in metrics(run)
    ]


def watch_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of rows of every forward pass of an update."""
    rows: list[int] = []

    forward = Policy.forward

    def watched(self, inputs, *args):
        if torch.is_grad_enabled():
            rows.append(len(inputs.prompts))
        return forward(self, inputs, *args)

    monkeypatch.setattr(Policy, "forward", watched)
    return rows


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "policy" / "model.safetensors")


class Kept(Callback):
    """Keeps the rollouts of a prediction."""

    rollouts: ClassVar[list[Rollout]] = []

    def on_predict_batch_end(self, trainer: Any, module: Any, outputs: Rollout, *_: Any) -> None:
        self.rollouts.append(outputs)


@pytest.mark.long
def test_predict_gives_rollouts_to_callbacks(policy: Path, tmp_path: Path) -> None:
    kept = {"trainer": {"callbacks": [{"class_path": f"{__name__}.Kept"}]}}
    config = grpo_config(tmp_path / "run", policy, kept)
    main(["predict", "-c", str(config), "--trainer.logger", "false"])
    assert all(isinstance(rollout, Rollout) for rollout in Kept.rollouts) and Kept.rollouts


@pytest.mark.long
def test_a_run_leaves_everything_it_promises(fit, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cli = fit("run", {"trainer": {"callbacks": callbacks(run, draw=10)}})
    for name in ("config.yaml", "metrics.jsonl", "responses.jsonl", "summary.json", "curves.png"):
        assert (run / name).stat().st_size > 0, name
    assert list(run.glob("events.out.tfevents.*"))
    assert (run / "policy" / "tokenizer.json").is_file()
    evaluations = json.loads((run / "summary.json").read_text())
    assert [e["iteration"] for e in evaluations] == [0, 2, 4, 6]
    assert int(cli.model.iteration) == 6 and cli.trainer.global_step == 12
    assert [line["iteration"] for line in metrics(run)] == list(range(6))


@pytest.mark.slow
def test_learns_what_is_rewarded(fit, tmp_path: Path) -> None:
    fit("run", data(num_iterations=16, train=[
        {"class_path": "r1lit.worlds.WorldCountdown", "init_args": {"num_problems": 64}}
    ]))  # fmt: skip
    paid = [line["train/reward/digits"] for line in metrics(tmp_path / "run")]
    assert sum(paid[-4:]) / 4 > 1.5 * sum(paid[:4]) / 4, paid


@pytest.mark.slow
def test_sampled_log_probs_are_those_of_the_training_forward(fit, tmp_path: Path) -> None:
    fit("run", model(sampling={"temperature": 0.7, "max_tokens": 12}))
    for line in metrics(tmp_path / "run"):
        assert line["train/mismatch/max_abs"] < 1e-4
        # the first of two updates is on-policy, the second is not: some distance, none of it wild
        assert 0 < line["train/approx_kl_old"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["sdpa", "eager"])  # packed tokens, padded rows
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_micro_batches_do_not_change_the_update(fit, tmp_path, monkeypatch, attention, beta):
    trained = watch_rows(monkeypatch)
    sgd = model(optimizer={"class_path": "torch.optim.SGD", "init_args": {"lr": 1.0}})
    objective = {"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": beta}}
    passes = []
    for name, budget in (("all", 100_000), ("some", 250), ("one", 1)):
        source = {"attention": attention}
        split = model(micro_batch_tokens=budget, policy=source, objective=objective)
        fit(name, sgd, split, NOVAL)
        passes.append(len(trained))
        trained.clear()
    assert passes[0] < passes[1] < passes[2], passes
    whole = untimed(tmp_path / "all")[0]
    for name in ("some", "one"):
        for key, value in untimed(tmp_path / name)[0].items():
            assert value == pytest.approx(whole[key], rel=1e-4, abs=1e-5), key
        for key, value in weights(tmp_path / "all").items():
            torch.testing.assert_close(value, weights(tmp_path / name)[key], rtol=1e-4, atol=1e-6)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("GRPOSequence", "DrGRPO", "DAPO")]


@pytest.mark.long
@pytest.mark.parametrize("objective", ["GRPO", *SLOW, "GSPO", "CISPO"])
def test_rows_without_advantage_are_left_out_and_the_update_is_the_same(
    fit, tmp_path, monkeypatch, objective
):
    """A reward that is earned seldom leaves most groups without an advantage."""
    init_args = {"max_tokens": 8} if objective == "DrGRPO" else {}
    change = model(
        objective={"class_path": f"r1lit.objectives.{objective}", "init_args": init_args},
        optimizer={"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
        rewards=[{"class_path": "tiny.ManyDigits"}],
    )
    trained = watch_rows(monkeypatch)
    fit("some", change, NOVAL)
    num_some = sum(trained)
    trained.clear()
    monkeypatch.setattr(Objective, "skips_zero_advantage", lambda self: False)
    fit("all", change, NOVAL)
    assert num_some < sum(trained) == 16
    some, every = (untimed(tmp_path / name)[0] for name in ("some", "all"))
    for key in ("train/loss", "train/grad_norm", "train/reward", "train/num_tokens"):
        assert some[key] == pytest.approx(every[key], rel=1e-5, abs=1e-6), key
    assert some["train/grad_norm"] > 0.01
    assert some["train/entropy"] != pytest.approx(every["train/entropy"], rel=1e-5)
    for key, value in weights(tmp_path / "all").items():
        torch.testing.assert_close(weights(tmp_path / "some")[key], value, rtol=1e-5, atol=1e-7)


@pytest.mark.long
def test_an_iteration_that_teaches_nothing_makes_its_updates_all_the_same(
    fit, tmp_path, policy, monkeypatch
):
    trained = watch_rows(monkeypatch)
    never = model(
        rewards=[{"class_path": "r1lit.rewards.Format"}],
        optimizer={"class_path": "torch.optim.SGD", "init_args": {"lr": 1.0, "weight_decay": 0.0}},
    )
    cli = fit("run", never, NOVAL)
    assert trained == [1, 1], "a row an update: ranks synchronise in a backward pass"
    assert cli.trainer.global_step == 2
    (line,) = untimed(tmp_path / "run")
    assert line["train/loss"] == line["train/grad_norm"] == line["train/reward_std"] == 0
    assert line["train/entropy"] > 0
    before = load_file(policy / "model.safetensors")
    assert all(torch.equal(v, before[k]) for k, v in weights(tmp_path / "run").items())


@pytest.mark.slow
def test_seed_makes_the_run(fit, tmp_path: Path) -> None:
    fit("a")
    fit("b")
    assert fit("c", {"seed_everything": 1}).model.seed == 1
    a, b, c = (untimed(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c
    assert all(
        torch.equal(v, weights(tmp_path / "b")[k]) for k, v in weights(tmp_path / "a").items()
    )
    texts = [(tmp_path / name / "responses.jsonl").read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    "objective",
    ["GRPO", "GRPOSequence", "DrGRPO", "DAPO", "GSPO", "CISPO"],
)
def test_golden_iterations(fit, tmp_path: Path, objective: str) -> None:
    """Exact floats of three iterations; regenerate by deleting the file's entry and rerunning."""
    init_args = {"max_tokens": 8} if objective == "DrGRPO" else {}
    change = {
        "class_path": f"r1lit.objectives.{objective}",
        "init_args": {"beta": 0.01, **init_args},
    }
    fit("run", NOVAL, model(objective=change, seed=0), data(num_iterations=3))
    keys = ("train/loss", "train/grad_norm", "train/reward", "train/kl_reference")
    got = [[line[key] for key in keys] for line in metrics(tmp_path / "run")]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if objective not in golden:
        GOLDEN.write_text(json.dumps({**golden, objective: got}, indent=1) + "\n")
        pytest.fail(f"{GOLDEN.name} had no entry for {objective}: written, look at it and rerun")
    torch.testing.assert_close(
        torch.tensor(got), torch.tensor(golden[objective]), rtol=1e-3, atol=1e-5
    )


@pytest.mark.slow
def test_reference_is_kept_and_refreshed(fit, tmp_path: Path) -> None:
    refresh = {
        "class_path": "r1lit.callbacks.ReferenceRefresh",
        "init_args": {"every_n_iterations": 3},
    }
    beta = model(objective={"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.1}})
    cli = fit("run", beta, args=("--trainer.callbacks+", json.dumps([refresh])))
    distances = [line["train/kl_reference"] for line in metrics(tmp_path / "run")]
    # right after a refresh only the iteration's own second update is away from the reference
    assert distances[3] < distances[2]
    for name, value in cli.model.policy.state_dict().items():
        assert torch.equal(value, cli.model.reference.state_dict()[name])  # iteration 6 refreshed


@pytest.mark.slow
def test_dynamic_sampling_replaces_unmixed_groups(fit, tmp_path: Path) -> None:
    """A policy that pays only for a rare token leaves most groups unmixed."""
    rare = model(
        collector={"class_path": "r1lit.collect.DynamicSampling"},
        rewards=[RARE],
    )
    fit("with", rare, data(rollout={"num_reserve_prompts": 8, "group_size": 4}))
    fit(
        "without",
        rare,
        model(collector=None),
        data(rollout={"num_reserve_prompts": 8, "group_size": 4}),
    )
    with_, without = metrics(tmp_path / "with"), metrics(tmp_path / "without")
    assert sum(line["train/num_groups_dropped"] for line in with_) > 0
    assert all(line["train/num_groups_dropped"] == 0 for line in without)
    spread = [sum(line["train/reward_std"] for line in lines) for lines in (with_, without)]
    assert spread[0] > spread[1]


def test_old_log_probs_are_computed_without_the_dropout_of_updates(
    fit, policy: Path, tmp_path: Path
) -> None:
    shutil.copytree(policy, tmp_path / "dropping")
    config = json.loads((policy / "config.json").read_text()) | {"attention_dropout": 0.5}
    (tmp_path / "dropping" / "config.json").write_text(json.dumps(config))
    own = model(policy=str(tmp_path / "dropping"), dropout=True, steps=[CORRECTION])
    fit("run", NOVAL, own, data(validation=None))
    (line,) = metrics(tmp_path / "run")
    assert line["train/mismatch/max_abs"] < 1e-3, "the sampler has none either"
