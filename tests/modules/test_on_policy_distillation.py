"""On-policy distillation through the command line, on small random policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import data, merge, save_policy
from tiny_distillation import losses, on_policy, problems

from r1lit.cli import main
from r1lit.modules.distillation import roll_out_share
from r1lit.rollout.worker import Timings
from r1lit.seeding import generator


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = save_policy(tmp_path_factory.mktemp("teacher"), layers=3, seed=11)
    return {"class_path": "r1lit.policy.ModelTeacher", "init_args": {"model": str(path)}}


def run(folder: Path, policy: Path, change: dict[str, Any] | None = None, **model: Any) -> Any:
    return main(["fit", "-c", str(on_policy(folder, policy, change or {}, **model))])


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """Problems with a response each."""
    source = problems(tmp_path, "response", " <answer> {} </answer>")
    return data(
        train=[source],
        rollout={"group_size": 1, "prompts_per_iteration": 8},
        num_iterations=6,
        validation=None,
    ) | {"model": {"init_args": {"sampling": {"max_tokens": 24}}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("divergence", "num_iterations"),  # what is known of one token alone takes longer to learn
    [("ReverseKL", 40), ("GeneralizedJSD", 40), ("SampledReverseKL", 60)],
)
def test_the_student_becomes_like_its_teacher(
    tmp_path: Path, policy: Path, teacher: dict[str, Any], divergence: str, num_iterations: int
) -> None:
    name = {"class_path": f"r1lit.objectives.{divergence}"}
    change = data(num_iterations=num_iterations, validation=None)
    cli = run(tmp_path / "run", policy, change, teacher=teacher, divergence=name)
    seen = losses(tmp_path / "run", "train/divergence")
    assert seen == pytest.approx(losses(tmp_path / "run"), rel=1e-5)
    assert len(seen) == cli.trainer.global_step == num_iterations, "one update an iteration"
    assert sum(seen[-5:]) < 0.7 * sum(seen[:5]), seen
    first = lines(tmp_path / "run")[0]
    assert first["train/on_policy_share"] == 1.0 and "train/cross_entropy" not in first
    assert (tmp_path / "run" / "responses.jsonl").is_file()


@pytest.mark.slow
def test_micro_batches_do_not_change_the_run(
    tmp_path: Path, policy: Path, teacher: dict[str, Any]
) -> None:
    run(
        tmp_path / "one",
        policy,
        data(num_iterations=1, validation=None),
        teacher=teacher,
        micro_batch_tokens=8192,
    )
    run(
        tmp_path / "many",
        policy,
        data(num_iterations=1, validation=None),
        teacher=teacher,
        micro_batch_tokens=64,
    )
    one, many = lines(tmp_path / "one")[0], lines(tmp_path / "many")[0]
    for key in ("train/loss", "train/grad_norm", "train/num_tokens"):
        assert one[key] == pytest.approx(many[key], rel=1e-4), key


def test_a_teacher_that_is_the_student_teaches_nothing(tmp_path: Path, policy: Path) -> None:
    itself = {"class_path": "r1lit.policy.ModelTeacher", "init_args": {"model": str(policy)}}
    run(tmp_path / "run", policy, data(num_iterations=1, validation=None), teacher=itself)
    first = lines(tmp_path / "run")[0]
    assert abs(first["train/divergence"]) < 1e-5 and first["train/grad_norm"] < 1e-3


@pytest.mark.slow
def test_a_share_is_drawn_and_the_rest_is_what_is_stored(
    tmp_path: Path, policy: Path, teacher: dict[str, Any], stored: dict[str, Any]
) -> None:
    change = merge(stored, {"model": {"init_args": {"on_policy": 0.5, "sft_weight": 1.0}}})
    cli = run(tmp_path / "run", policy, change, teacher=teacher)
    shares = losses(tmp_path / "run", "train/on_policy_share")
    assert 0.25 < sum(shares) / len(shares) < 0.75 and len(set(shares)) > 2, shares
    for i, line in enumerate(lines(tmp_path / "run")):
        drawn = [generator(0, "on-policy", i, p).random() < 0.5 for p in range(8)]
        assert line["train/on_policy_share"] == sum(drawn) / 8
        parts = line["train/cross_entropy"] + line["train/divergence"]
        assert line["train/loss"] == pytest.approx(parts, rel=1e-4)
    batch = cli.datamodule.train_dataloader().batch(0)
    worker = cli.model.worker(cli.model.sampling, 0)
    rollout, drawn_B = roll_out_share(worker, batch, Timings(), 0.5, "response")
    for response, drawn in zip(rollout.responses, drawn_B.tolist(), strict=True):
        assert drawn or response.text == response.problem.meta["response"]
        assert drawn or (response.verdict.status == "right" and response.finished)
    eos = cli.model.tokenizer.eos_token_id
    for row, mask, drawn in zip(rollout.response_BT, rollout.mask_BT, drawn_B, strict=True):
        assert drawn or row[mask][-1] == eos


@pytest.mark.slow
def test_nothing_drawn_is_supervised_kd(
    tmp_path: Path, policy: Path, teacher: dict[str, Any], stored: dict[str, Any]
) -> None:
    """A share so small that no prompt of this run is drawn equals learning from documents."""
    change = merge(stored, data(num_iterations=1, validation=None))
    run(tmp_path / "run", policy, change, teacher=teacher, on_policy=1e-9, sft_weight=1.0)
    first = lines(tmp_path / "run")[0]
    assert first["train/on_policy_share"] == 0.0

    def elsewhere(config: Path) -> str:
        """The same configuration for another folder, so that its run stays as it is."""
        path = config.with_name(f"{config.stem}_elsewhere.yaml")
        old = str(config.with_suffix(""))
        path.write_text(config.read_text().replace(old, f"{old}_elsewhere"))
        return str(path)

    no_update = ["--trainer.max_steps", "0"]
    problems = main(["fit", "-c", elsewhere(tmp_path / "run.yaml"), *no_update])
    batch = problems.datamodule.train_dataloader().batch(0)
    rows = [{"prompt": p.question, "response": p.meta["response"]} for p in batch.problems]
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = yaml.safe_load((tmp_path / "run.yaml").read_text())
    config["model"]["init_args"] |= {"on_policy": 0.0}
    config["data"]["init_args"] |= {
        "train": None,
        "validation": None,
        "documents": [
            {
                "class_path": "r1lit.data.TableDocuments",
                "init_args": {"path": str(table), "template": "small_world"},
            }
        ],
        "packing": {"max_seq_len": 256, "train_batch_size": 16},
    }
    config["trainer"]["callbacks"] = config["trainer"]["callbacks"][6:]
    text = yaml.safe_dump(config).replace(str(tmp_path / "run"), str(tmp_path / "documents"))
    path = tmp_path / "documents.yaml"
    path.write_text(text)
    one = ["--data.init_args.packing.train_batch_size", "1"]
    cli = main(["fit", "-c", elsewhere(path), *one, *no_update])
    num_rows = len(cli.datamodule.rows["train"])
    main(["fit", "-c", str(path), "--data.init_args.packing.train_batch_size", str(num_rows)])
    other = lines(tmp_path / "documents")[0]
    for key in ("train/loss", "train/divergence", "train/cross_entropy", "train/grad_norm"):
        assert first[key] == pytest.approx(other[key], rel=1e-3), key
    assert first["train/num_tokens"] == other["train/num_tokens"]
