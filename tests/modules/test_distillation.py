"""DistillationModule on documents, through the command line, on small random policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tiny import merge, save_policy
from tiny_distillation import documents, losses, off_policy, weights

from r1lit.cli import main

SFT = {"model": {"class_path": "r1lit.modules.SFTModule"}}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher of other weights and another depth than the student's."""
    return save_policy(tmp_path_factory.mktemp("teacher"), layers=3, seed=11)


def run(folder: Path, *args: str, **model: Any) -> Path:
    main(["fit", "-c", str(off_policy(folder, **model)), *args])
    return folder


def of(teacher: Path, **init_args: Any) -> dict[str, Any]:
    return {
        "class_path": "r1lit.policy.ModelTeacher",
        "init_args": {"model": str(teacher), **init_args},
    }


@pytest.mark.slow
def test_without_the_logit_term_it_is_sft_bit_for_bit(
    tmp_path: Path, policy: Path, teacher
) -> None:
    """R1's own distillation, whether or not a teacher is named."""
    sft = off_policy(tmp_path / "sft", policy=policy)
    config = yaml.safe_load(sft.read_text())
    sft.write_text(yaml.safe_dump(merge(config, SFT)))
    main(["fit", "-c", str(sft)])
    run(tmp_path / "r1", policy=policy)
    run(tmp_path / "named", policy=policy, teacher=of(teacher), logit_weight=0.0)
    for name in ("r1", "named"):
        assert losses(tmp_path / name) == losses(tmp_path / "sft")
        ours, theirs = weights(tmp_path / name), weights(tmp_path / "sft")
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    before = load_file(policy / "model.safetensors")
    assert not all(torch.equal(ours[key], before[key]) for key in ours)


@pytest.mark.slow
def test_the_sft_weight_scales_the_loss(tmp_path: Path, policy: Path) -> None:
    run(tmp_path / "one", "--trainer.max_steps", "1", policy=policy)
    run(tmp_path / "half", "--trainer.max_steps", "1", policy=policy, sft_weight=0.5)
    [one, half] = [losses(tmp_path / name)[0] for name in ("one", "half")]
    assert half == pytest.approx(0.5 * one, rel=1e-6)  # seven digits are logged


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ["ForwardKL", "ReverseKL", "GeneralizedJSD"])
def test_the_student_becomes_like_its_teacher(
    tmp_path: Path, policy: Path, teacher: Path, divergence: str
) -> None:
    run(
        tmp_path / "run",
        policy=policy,
        teacher=of(teacher),
        divergence={"class_path": f"r1lit.objectives.{divergence}"},
        sft_weight=0.0,
        logit_weight=1.0,
    )
    seen = losses(tmp_path / "run", "train/divergence")
    assert seen == losses(tmp_path / "run")
    assert seen[0] > 0.1 and seen[-1] < 0.6 * seen[0], seen


@pytest.mark.long
def test_loss_is_the_weighted_sum_at_the_temperature(
    tmp_path: Path, policy: Path, teacher: Path
) -> None:
    run(tmp_path / "run", "--trainer.max_steps", "2", policy=policy, teacher=of(teacher),
        sft_weight=0.5, logit_weight=0.25, temperature=2.0)  # fmt: skip
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    expected = 0.5 * line["train/cross_entropy"] + 0.25 * 4 * line["train/divergence"]
    assert line["train/loss"] == pytest.approx(expected, rel=1e-5)
    run(tmp_path / "sft", "--trainer.max_steps", "1", policy=policy)
    assert line["train/cross_entropy"] == pytest.approx(losses(tmp_path / "sft")[0], rel=1e-6)


def test_a_teacher_that_is_the_student_teaches_nothing(tmp_path: Path, policy: Path) -> None:
    run(tmp_path / "run", "--trainer.max_steps", "1", policy=policy, teacher=of(policy),
        sft_weight=0.0, logit_weight=1.0)  # fmt: skip
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert abs(line["train/divergence"]) < 1e-6
    assert line["train/grad_norm"] < 1e-4


@pytest.mark.slow
def test_micro_batches_do_not_change_the_run(tmp_path: Path, policy: Path, teacher: Path) -> None:
    options: dict[str, Any] = {"policy": policy, "teacher": of(teacher), "logit_weight": 1.0}
    run(tmp_path / "one", micro_batch_tokens=256, **options)
    run(tmp_path / "four", micro_batch_tokens=64, **options)
    one, four = weights(tmp_path / "one"), weights(tmp_path / "four")
    for name, value in one.items():
        torch.testing.assert_close(value, four[name], rtol=1e-3, atol=1e-3)
    for a, b in zip(losses(tmp_path / "one"), losses(tmp_path / "four"), strict=True):
        assert a == pytest.approx(b, rel=1e-4)


@pytest.mark.long
def test_the_teacher_is_a_constant_outside_of_the_checkpoint(
    tmp_path: Path, policy: Path, teacher: Path
) -> None:
    cli = main(["fit", "-c", str(off_policy(tmp_path / "run", policy=policy, teacher=of(teacher),
                                            logit_weight=1.0))])  # fmt: skip
    model = cli.model.teacher.policy.model
    saved = load_file(teacher / "model.safetensors")
    assert all(torch.equal(v, saved[k]) for k, v in model.state_dict().items() if k in saved)
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    state = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=False)
    student = {name for name in state["state_dict"] if name.startswith("policy.")}
    assert set(state["state_dict"]) - student == {"iteration"}
    num_policy = sum(1 for _ in cli.model.policy.parameters())
    assert len(state["optimizer_states"][0]["state"]) == num_policy
    cli.model.configure_model()
    assert cli.model.teacher.policy.model is model


@pytest.mark.long
def test_held_out_documents_are_measured(tmp_path: Path, policy: Path, teacher: Path) -> None:
    path = off_policy(tmp_path / "run", policy=policy, teacher=of(teacher), logit_weight=1.0)
    config = yaml.safe_load(path.read_text())
    config["data"]["init_args"]["validation_documents"] = documents(tmp_path)
    path.write_text(yaml.safe_dump(config))
    cli = main(["validate", "-c", str(path)])
    found = {k: float(v) for k, v in cli.trainer.callback_metrics.items()}
    assert found.keys() == {"val/loss", "val/cross_entropy", "val/divergence"}
    assert found["val/loss"] == pytest.approx(
        found["val/cross_entropy"] + found["val/divergence"], rel=1e-5
    )
