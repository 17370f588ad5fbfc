"""The presets of distillation hold the paper's numbers; each builds and runs on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_configs import CONFIGS, GRPO_CHANGE, STUDENTS, printed, run_small
from tiny import merge, save_policy


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("tiny"))


def files(student: str) -> tuple[str, ...]:
    return ("data/jsonl.yaml", "distill/base.yaml", f"distill/{student}.yaml")


@pytest.mark.parametrize("student", STUDENTS)
def test_a_student_has_the_papers_numbers(capsys, student):
    config = printed(capsys, *[CONFIGS / name for name in files(student)])
    model, data = config["model"]["init_args"], config["data"]["init_args"]
    policy, rate = STUDENTS[student]
    assert model["policy"] == policy
    assert model["optimizer"]["init_args"]["lr"] == rate
    assert model["lr_scheduler"]["class_path"].endswith("CosineOverRun")
    assert model["lr_scheduler"]["init_args"] == {"final_share": 0.1, "warmup": 0}
    assert (model["sft_weight"], model["logit_weight"], model["on_policy"]) == (1.0, 0.0, 0.0)
    assert data["packing"]["max_seq_len"] == 32768
    assert data["packing"]["documents_per_update"] == 64
    assert 2 <= config["trainer"]["max_epochs"] <= 3


@pytest.mark.slow
@pytest.mark.parametrize("student", STUDENTS)
def test_a_student_runs_with_a_tiny_model(tmp_path, tiny, student):
    table = tmp_path / "documents.jsonl"
    rows = [{"prompt": f"{i} + 1?", "response": f" {i + 1}"} for i in range(8)]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"class_path": "r1lit.data.TableDocuments", "init_args": {"path": str(table)}}
    change = {
        "model": {"init_args": {"policy": str(tiny)}},
        "data": {
            "init_args": {
                "documents": [source],
                "validation_documents": [source],
                "packing": {"max_seq_len": 16, "documents_per_update": 2},
            }
        },
    }
    run = run_small((*files(student), "hardware/cpu.yaml"), change, tmp_path, iterations=8)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rate = STUDENTS[student][1]
    rates = [line["train/learning_rate"] for line in lines]  # behind each update
    assert rates[-1] == pytest.approx(rate / 10) and rates == sorted(rates, reverse=True)
    assert rates[len(rates) // 2 - 1] == pytest.approx(0.55 * rate), "half-way behind one pass"


@pytest.mark.long
def test_on_policy_runs_with_tiny_models(tmp_path, tiny):
    teacher = save_policy(tmp_path / "teacher", layers=3, seed=5)
    options: dict[str, Any] = {
        "policy": str(tiny),
        "teacher": {
            "class_path": "r1lit.policy.ModelTeacher",
            "init_args": {"model": {"path": str(teacher), "dtype": "float32"}},
        },
        "validation_sampling": {"temperature": 0.6, "top_p": 0.95, "max_tokens": 16},
    }
    change = merge(GRPO_CHANGE, {"model": {"init_args": options}})
    change["model"]["init_args"].pop("train_batch_size")
    change = merge(
        change,
        {"data": {"init_args": {"prompts": {"template": "r1_zero"}, "rollout": {"group_size": 1}}}},
    )
    names = ("data/countdown.yaml", "distill/on_policy.yaml", "hardware/cpu.yaml")
    run = run_small(names, change, tmp_path)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(line["train/divergence"] > 0 for line in lines)
