"""Weights sharded over two processes (FSDP2) train as in one, resume exactly and elsewhere."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from test_ddp import fit_in_a_process
from test_distillation import of
from test_lora import LORA, WITH_KL
from test_ppo import PENALTY, WHITENED, ppo
from test_sft_module import sft
from tiny import CORRECTION, data, grpo_config, merge, model, save_policy
from tiny_distillation import off_policy, on_policy
from tiny_reward import reward_config, write_pairs
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

pytestmark = pytest.mark.slow
SGD = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}}
ON_THE_HEAD = {
    "class_path": "peft.LoraConfig",
    "init_args": {"r": 4, "target_modules": ["q_proj", "lm_head"]},
}


def sharded(ranks: int) -> dict[str, Any]:
    strategy = {
        "class_path": "lightning.pytorch.strategies.ModelParallelStrategy",
        "init_args": {"data_parallel_size": ranks, "tensor_parallel_size": 1},
    }
    return {"trainer": {"devices": ranks, "strategy": strategy}}


def exported(run: Path) -> dict[str, torch.Tensor]:
    (weights,) = (run / "policy").glob("*.safetensors")
    return load_file(weights)


def numbers(run: Path, key: str) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line[key] for line in lines if key in line]


def sampled(run: Path) -> set[tuple[Any, ...]]:
    """The responses that rank 0 drew and wrote down, if any."""
    table = run / "responses.jsonl"
    lines = map(json.loads, table.read_text().splitlines() if table.is_file() else [])
    return {(line["split"], line["iteration"], line["uid"], line["response"]) for line in lines}


def checkpointed(run: Path) -> dict[str, torch.Tensor]:
    """The weights in the last checkpoint, gathered where it is a folder of shares."""
    path = run / "checkpoints" / "last.ckpt"
    if path.is_dir():
        dcp_to_torch_save(path, run / "gathered.pt")
        path = run / "gathered.pt"
    return torch.load(path, weights_only=False)["state_dict"]


def fit(config: Path, *args: str) -> str:
    done = fit_in_a_process(config, config.parent, *args)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def changed(config: Path, change: dict[str, Any]) -> Path:
    config.write_text(yaml.safe_dump(merge(yaml.safe_load(config.read_text()), change)))
    return config


def grpo(**init_args: Any) -> Callable[[Path, Path, Path], Path]:
    """GRPO by updates of the whole batch: ranks share out smaller ones differently."""
    settings = {"train_batch_size": 16, "micro_batch_tokens": 48, "optimizer": SGD, **init_args}
    change = merge(model(**settings), data(num_iterations=2))
    return lambda run, policy, other: grpo_config(run, policy, change)


def reference(run: Path, policy: Path, other: Path) -> Path:
    return refreshing(run, policy, other)


def with_adapter(run: Path, policy: Path, other: Path) -> Path:
    return refreshing(run, policy, other, policy={"adapter": LORA})


def refreshing(run: Path, policy: Path, other: Path, /, **init_args: Any) -> Path:
    config = grpo(
        objective={"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.5}},
        steps=[CORRECTION],
        gradient_checkpointing=True,
        **init_args,
    )(run, policy, other)
    refresh = {
        "class_path": "r1lit.callbacks.ReferenceRefresh",
        "init_args": {"every_n_iterations": 1},
    }
    read = yaml.safe_load(config.read_text())
    read["trainer"]["callbacks"].append(refresh)
    config.write_text(yaml.safe_dump(read))
    return config


def documents(run: Path, policy: Path, other: Path) -> Path:
    table = run.with_suffix(".jsonl")
    # nine of these rows are held out: ranks have unlike numbers of them
    table.write_text(f'{{"prompt": "Q: 1\\nA:", "response": "{" one" * 14}."}}\n' * 9)
    source = {"class_path": "r1lit.data.TableDocuments", "init_args": {"path": str(table)}}
    config = sft(run, policy, table, optimizer=SGD, micro_batch_tokens=64)
    return changed(config, data(validation_documents=[source], num_iterations=3))


def reward(**init_args: Any) -> Callable[[Path, Path, Path], Path]:
    settings = {"optimizer": SGD, "micro_batch_tokens": 48, **init_args}
    change = merge(model(**settings), data(num_iterations=4))
    return lambda run, policy, other: reward_config(
        run, policy, write_pairs(run.with_suffix(".jsonl")), change
    )


def critic(run: Path, policy: Path, other: Path) -> Path:
    """With few tokens a micro-batch: ranks have unlike numbers of them, of either model."""
    change = ppo(PENALTY, critic={"optimizer": SGD}, objective=WHITENED)
    return changed(grpo()(run, policy, other), change)


RUNS: dict[str, Callable[[Path, Path, Path], Path]] = {
    "grpo": grpo(),
    "dapo": grpo(objective={"class_path": "r1lit.objectives.DAPO"}),
    "grpo with a reference": reference,
    "sft": documents,
    "distillation": lambda run, policy, other: changed(
        off_policy(run, policy=policy, teacher=of(other), logit_weight=1.0, optimizer=SGD),
        data(num_iterations=2),
    ),
    "distillation on policy": lambda run, policy, other: on_policy(
        run, policy, data(num_iterations=2), teacher=of(other), micro_batch_tokens=48, optimizer=SGD
    ),
    "reward model": reward(),
    "adapter": grpo(policy={"adapter": LORA}, objective=WITH_KL),
    "adapter with a refreshed reference": with_adapter,
    "adapter on the head too": grpo(policy={"adapter": ON_THE_HEAD}, objective=WITH_KL),
    "adapter of a reward model": reward(policy={"adapter": LORA}),
    "critic": critic,
}


@pytest.mark.parametrize("kind", RUNS)
def test_two_ranks_make_the_updates_of_one(tmp_path: Path, policy: Path, kind: str):
    other = save_policy(tmp_path / "other", layers=3, seed=11)
    for ranks in (1, 2):
        config = RUNS[kind](tmp_path / str(ranks), policy, other)
        fit(changed(config, sharded(2)) if ranks == 2 else config)
    one, two, before = (
        exported(tmp_path / "1"),
        exported(tmp_path / "2"),
        load_file(policy / "model.safetensors"),
    )
    assert one.keys() == two.keys()
    moved = [n for n in one if n in before or "lora_B" in n]  # B is 0 before training
    assert max(float((one[n] - before.get(n, 0.0)).abs().max()) for n in moved) > 1e-3
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=0, atol=1e-5)
    for key in ("train/grad_norm", "train/critic_grad_norm"):
        norms = [numbers(tmp_path / ranks, key) for ranks in ("1", "2")]
        assert norms[1] == pytest.approx(norms[0], rel=2e-6 if kind == "critic" else 1e-6)
    assert sampled(tmp_path / "2") <= sampled(tmp_path / "1")
    if kind == "critic":
        one, two = (checkpointed(tmp_path / ranks) for ranks in ("1", "2"))
        assert any(name.startswith("critic.") for name in one)
        for name, weight in one.items():
            torch.testing.assert_close(two[name], weight, rtol=1e-3, atol=1e-4)


def test_killed_it_resumes_to_the_bit_and_on_one_rank(tmp_path: Path, policy: Path):
    change = merge(data(num_iterations=4), sharded(2))
    whole, killed = (grpo_config(tmp_path / n, policy, change) for n in ("whole", "killed"))
    fit(whole)
    kill = [{"class_path": "modules.test_resume.KillAt", "init_args": {"iteration": 2}}]
    done = fit_in_a_process(killed, tmp_path, "--trainer.callbacks+", json.dumps(kill))
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert (tmp_path / "killed" / "checkpoints" / "last.ckpt").is_dir(), "a shard of each rank"
    alone = grpo_config(tmp_path / "alone", policy, merge(change, sharded(1)))
    checkpoint = str(tmp_path / "killed" / "checkpoints" / "last.ckpt")
    fit(alone, "--ckpt_path", checkpoint)
    fit(killed, "--ckpt_path", "last")
    expected = exported(tmp_path / "whole")
    for name, weight in exported(tmp_path / "killed").items():
        assert torch.equal(weight, expected[name]), name
    lines = [(tmp_path / n / "responses.jsonl").read_text() for n in ("whole", "killed")]
    assert lines[0] == lines[1]
    assert exported(tmp_path / "alone").keys() == expected.keys()


def test_another_split_is_refused(tmp_path: Path, policy: Path):
    strategy = merge(sharded(2), {})
    strategy["trainer"]["strategy"]["init_args"] = {
        "data_parallel_size": 1,
        "tensor_parallel_size": 2,
    }
    done = fit_in_a_process(grpo_config(tmp_path / "run", policy, strategy), tmp_path)
    assert done.returncode != 0
    assert "data_parallel_size 1 and tensor_parallel_size 2 over 2 processes" in done.stderr


def test_weights_in_bfloat16_with_kahan_sums_train_and_resume(tmp_path: Path, policy: Path):
    """What configs/hardware/fsdp2_bf16.yaml and configs/r1/larger/ ask for."""
    options = {"lr": 1e-3, "weight_decay": 0.0, "eps": 1e-8, "triton": False, "foreach": False}
    changes = {"policy": {"dtype": "bfloat16"}, "optimizer": {"class_path": "optimi.AdamW"}}
    changes["optimizer"]["init_args"] = options
    configs = {}
    for name in ("one", "whole", "part"):
        configs[name] = changed(documents(tmp_path / name, policy, policy), model(**changes))
        if name != "one":
            changed(configs[name], merge(sharded(2), model(reduce_every_pass=True)))
    fit(configs["one"])
    fit(configs["whole"])
    fit(configs["part"], "--trainer.max_steps", "2")
    fit(configs["part"], "--ckpt_path", "last")
    one, whole, part = (exported(tmp_path / name) for name in configs)
    before = load_file(policy / "model.safetensors")
    for name, weight in whole.items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(part[name], weight), name
        # three updates of 1e-3; gradients are rounded to bfloat16 before they are added up
        torch.testing.assert_close(weight, one[name], rtol=2**-7, atol=1e-3)
    assert max(float((whole[n] - before[n]).abs().max()) for n in before) > 1e-3
