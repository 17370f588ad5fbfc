"""PPO against GRPO: the shipped sweep on a tiny policy, and the table of its critics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_sweep import ROOT, TINY

from experiments import page
from experiments.compose import merge
from experiments.points import read_sweep
from experiments.ppo_vs_grpo.values import as_table, critics
from experiments.sweep import run_sweep
from r1lit import cli
from r1lit.files import read_records

SWEEP = Path("experiments/ppo_vs_grpo/sweep.yaml")


def test_variants_differ_in_what_their_names_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(SWEEP)
    assert len(shipped.variants) == 8 and len(shipped.seeds) >= 3
    configs = {name: shipped.point(name, 0).config for name in shipped.variants}
    assert all(config["data"] == configs["grpo"]["data"] for config in configs.values())
    own = {name: config["model"]["init_args"] for name, config in configs.items()}
    for key in ("sampling", "train_batch_size", "max_grad_norm", "optimizer", "lr_scheduler"):
        assert all(value[key] == own["grpo"][key] for value in own.values()), key
    paid = {name: [r["class_path"] for r in value["rewards"]] for name, value in own.items()}
    assert all(names == paid["grpo"] for names in paid.values())
    gae = {
        name: value["objective"]["init_args"]["advantage"]["init_args"]
        for name, value in own.items()
        if name != "grpo"
    }
    lambdas = {name: (a["lambda_policy"], a["lambda_critic"]) for name, a in gae.items()}
    assert lambdas["ppo-1.0"] == (1.0, 1.0) and lambdas["ppo-0.95"] == (0.95, 0.95)
    assert {name for name, a in gae.items() if a.get("alpha")} == {
        "vapo", "vapo-no-warmup", "vapo-one-lambda", "vapo-no-nll"
    }  # fmt: skip
    assert lambdas["vapo-fixed-lambda"] == (0.95, 1.0) and lambdas["vapo-one-lambda"][1] == 0.95
    warm = {name: value["critic_warmup"] for name, value in own.items() if name != "grpo"}
    assert warm.pop("vapo-no-warmup") == 0 and set(warm.values()) == {3}
    nll = {n: own[n]["objective"]["init_args"]["positive_nll"] for n in gae}
    assert {name for name, weight in nll.items() if weight == 0.1} == {
        "vapo", "vapo-no-warmup", "vapo-one-lambda", "vapo-fixed-lambda"
    }  # fmt: skip
    assert "filled" in page.fill_in((ROOT / SWEEP.parent / "README.md").read_text(), "filled")


@pytest.mark.slow
def test_every_variant_runs_and_its_critic_is_reported(tmp_path, policy, monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = read_sweep(SWEEP)
    reward = [{"class_path": "tiny.DigitShare"}]  # the returns of a random policy differ in it
    small = {**TINY["model"]["init_args"], "from_scratch": False, "policy": str(policy)}
    of_all = {"model": {"init_args": {**small, "rewards": reward}}}
    of_ppo = {
        "critic_warmup": 1,
        "value_truth": {"every_n_iterations": 1, "num_prefixes": 4, "num_completions": 2},
    }
    variants = {}
    for name, fragments in shipped.variants.items():
        change = {} if name == "grpo" else {"model": {"init_args": of_ppo}}
        if name == "vapo-no-warmup":
            change = {"model": {"init_args": of_ppo | {"critic_warmup": 0}}}
        variants[name] = [*fragments, of_all, change]
    base = merge(shipped.base, {key: TINY[key] for key in ("data", "trainer")})
    sweep = replace(shipped, base=base, variants=variants, seeds=[0], output=tmp_path / "out")

    def launch(arguments: list[str], log: Path) -> int:
        cli.main(arguments)
        return 0

    assert run_sweep(sweep, launch=launch) == []
    for name in shipped.variants:
        first, last = read_records(sweep.output / name / "seed-0" / "metrics.jsonl")
        assert "train/loss" in last
        assert ("train/loss" in first) == (name in ("grpo", "vapo-no-warmup"))
        assert ("train/value_loss" in last) == (name != "grpo")
    rows = as_table(critics(sweep)).splitlines()[2:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == list(shipped.variants)[1:]
    assert all(row.count("–") == 0 for row in rows), rows
