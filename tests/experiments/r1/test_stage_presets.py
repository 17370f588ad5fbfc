"""Every stage at full scale holds the paper's numbers, and runs with a tiny policy swapped in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tally import CALLS, FAIL, GOLD, write_tally
from tiny import ROOT, merge, save_policy
from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

from r1lit.cli import main
from r1lit.data import ReasoningGym
from r1lit.files import read_records, write_records
from r1lit.text.patches import reverse_diff

FULL = ROOT / "configs/r1/full"
RL = ("zero", "rl_1", "rl_2")
SFT = ("cold_start", "sft_800k")
REWARD = ("reward_helpful", "reward_safety")
CHAT = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((FULL / f"{name}.yaml").read_text())


def init_args(name: str, part: str) -> dict[str, Any]:
    return read(name)[part]["init_args"]


@pytest.mark.parametrize("name", RL)
def test_reinforcement_learning_holds_the_papers_numbers(name):
    model, data = init_args(name, "model"), init_args(name, "data")
    assert data["rollout"] == {"prompts_per_iteration": 8192 // 16, "group_size": 16}
    assert model["train_batch_size"] == 512 and model["num_inner_epochs"] == 1
    assert model["objective"]["init_args"]["beta"] == 0.001
    assert model["objective"]["init_args"]["epsilon"] == 10.0
    assert model["optimizer"]["init_args"]["lr"] == 3e-6
    assert model["sampling"] == {
        "temperature": 0.7 if name == "rl_2" else 1.0,
        "max_tokens": 32768,
    }
    callbacks = {
        c["class_path"].split(".")[-1]: c.get("init_args")
        for c in read(name)["trainer"]["callbacks"]
    }
    assert callbacks["ReferenceRefresh"]["every_n_iterations"] * 16 == 400
    longest = data["prompts"]["max_tokens"] + model["sampling"]["max_tokens"]
    assert model["micro_batch_tokens"] >= longest
    if name == "zero":
        assert data["num_iterations"] * 16 == 10_400
        [(first, most)] = model["max_tokens_from"].items()
        assert most == 65536 and (first - 1) * 16 < 8200 <= first * 16
    if name == "rl_2":
        assert data["num_iterations"] == -(-1700 // 16)
        # two reward models and the general prompts
        assert found_all([model, data], "from_iteration") == [82, 82, 82]
        assert (data["num_iterations"] - 82) * 16 == 400
        *early, late = data["train"]
        assert late["class_path"].endswith("LateProblems") and len(early) == 5
    [bugs] = [s for s in data["train"] if s["class_path"].endswith("RepositoryTasks")]
    assert bugs["init_args"]["meta"] == {"kind": "reasoning", "language": "en"}


@pytest.mark.parametrize("name", SFT)
def test_supervised_training_holds_the_papers_numbers(name):
    model, data = init_args(name, "model"), init_args(name, "data")
    epochs = read(name)["trainer"]["max_epochs"]
    assert epochs == {"cold_start": 3, "sft_800k": 2}[name]
    assert model["optimizer"]["init_args"]["lr"] == 5e-5
    schedule = model["lr_scheduler"]
    assert schedule["class_path"].endswith("CosineOverRun")
    assert schedule["init_args"] == {"final_share": 0.1} and data["num_iterations"] is None
    packing = data["packing"]
    assert packing["max_seq_len"] == 32768 and packing["documents_per_update"] == 128
    assert "train_batch_size" not in packing


@pytest.mark.parametrize("name", REWARD)
def test_reward_models_hold_the_papers_numbers(name):
    model, data = init_args(name, "model"), init_args(name, "data")
    assert model["optimizer"]["init_args"]["lr"] == 6e-6 and "lr_scheduler" not in model
    assert data["train_batch_size"] == 256 and data["max_tokens"] == 8192
    assert data["num_iterations"] is None and read(name)["trainer"]["max_epochs"] == 1
    wanted = {
        "reward_helpful": ("BradleyTerry", "summary"),
        "reward_safety": ("SafeUnsafe", "response"),
    }
    objective = model["objective"]["class_path"].split(".")[-1]
    assert (objective, data["score_on"]) == wanted[name]


def found_all(value: Any, *keys: str) -> list[Any]:
    """Return what stands under any of these keys, wherever they are."""
    if isinstance(value, list):
        return [text for item in value for text in found_all(item, *keys)]
    if not isinstance(value, dict):
        return []
    here = [v for k, v in value.items() if k in keys]
    return here + [text for item in value.values() for text in found_all(item, *keys)]


def found(value: Any, *keys: str) -> list[str]:
    """Return the texts under any of these keys, wherever they are."""
    return [text for text in found_all(value, *keys) if isinstance(text, str)]


def save_reward_model(folder: Path, score_on: str) -> Path:
    """Save a small random reward model as `RewardModule` exports one."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models/mini")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    config.reward_mean, config.reward_std = 0.0, 1.0
    config.reward_template, config.reward_score_on = "plain", score_on
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def here(value: Any, folder: Path) -> Any:
    """Move run folders and tables into ``folder``."""
    if isinstance(value, dict):
        return {key: here(v, folder) for key, v in value.items()}
    if isinstance(value, list):
        return [here(v, folder) for v in value]
    if isinstance(value, str) and value.startswith(("runs/", "data/r1/")):
        return str(folder / value)
    return value


def lines_of(path: str) -> list[dict[str, Any]]:
    """Return problems as a preset's comments describe them, by the name of the table."""
    [puzzle] = ReasoningGym("knights_knaves", 1).problems()
    of_a_kind: dict[str, list[dict[str, Any]]] = {
        "math": [{"question": "1 + 1?", "answer": "2"}],
        "code": [{"prompt": "Print 2.", "tests": {"inputs": [""], "outputs": ["2"]}}],
        "stem": [{"question": "Which is 2?", "choices": ["1", "2"], "answer": "B"}],
        "logic": [{"prompt": puzzle.question, **puzzle.meta}],
        "general": [
            {"question": f"Say {word}.", "answer": "-", "kind": kind}
            for word, kind in (("a", "general"), ("b", "harmful"), ("c", "general"))
        ],
        "tasks": [
            {
                "instance_id": "tally-1", "repo": "tally", "problem_statement": "total is wrong.",
                "patch": GOLD, "bug": reverse_diff(GOLD), "FAIL_TO_PASS": FAIL,
                "calls": CALLS,
            }
        ],
    }  # fmt: skip
    rows = of_a_kind[Path(path).stem]
    return [{"kind": "reasoning", "language": "en", **row} for row in rows]


def begin_at(value: Any, iteration: int) -> Any:
    """Let what comes late come at ``iteration``."""
    if isinstance(value, dict):
        return {
            k: iteration if k == "from_iteration" else begin_at(v, iteration)
            for k, v in value.items()
        }
    return [begin_at(v, iteration) for v in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize("name", RL + SFT + REWARD)
def test_a_stage_runs_with_a_tiny_policy(name, tmp_path):
    policy = save_policy(tmp_path / "tiny")
    config = json.loads((policy / "config.json").read_text())
    (policy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}))
    tokenizer = AutoTokenizer.from_pretrained(policy)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(policy)
    for kind, score_on in (("helpful", "summary"), ("safety", "response")):
        save_reward_model(tmp_path / f"runs/r1_full/reward_{kind}/policy", score_on)
    config = here(read(name), tmp_path)
    config["trainer"] |= {
        "accelerator": "cpu", "devices": 1, "strategy": "auto", "precision": "32-true",
        "val_check_interval": 1, "max_epochs": 1, "enable_model_summary": False,
    }  # fmt: skip
    rows = [{"question": f"{i} + 1?", "answer": str(i + 1)} for i in range(4)]
    held_out = {"question": "9 + 1?", "answer": "10", "kind": "reasoning", "language": "en"}
    write_records(tmp_path / "v.jsonl", [held_out])
    validation = {
        "class_path": "r1lit.data.TableProblems",
        "init_args": {"path": str(tmp_path / "v.jsonl"), "meta": ["kind", "language"]},
    }
    num_iterations = 2 if name in ("zero", "rl_2") else 1
    small: dict[str, Any] = {"policy": str(policy), "micro_batch_tokens": 2048}
    if name in RL:
        sampling = {"max_tokens": 8}
        small |= {"train_batch_size": 8, "sampling": sampling, "validation_sampling": sampling}
        small["engine"] = {"init_args": {"max_rows": 8}}
        if name == "zero":
            small["max_tokens_from"] = {513: 16, 1: 9}
        config = begin_at(config, 1)
        for path in found(config["data"]["init_args"]["train"], "path"):
            write_records(Path(path), lines_of(path))
        write_tally(tmp_path / "data/r1/bugs/repositories/tally")
        data: dict[str, Any] = {
            "validation": [validation],
            "rollout": {"prompts_per_iteration": 8 if name == "rl_2" else 4, "group_size": 2},
            "num_iterations": num_iterations,
            "evaluation": {"num_samples": 2},
            "prompts": {"max_tokens": 512},
        }
    elif name in SFT:
        documents = [{"prompt": row["question"], "response": row["answer"]} for row in rows]
        for path in found(config["data"], "path"):
            write_records(Path(path), documents)
        for source in config["data"]["init_args"]["documents"]:
            source["init_args"].pop("num_documents", None)
            for part in source["init_args"].get("parts", []):
                part["share"] = 1  # of four documents
        data = {"packing": {"max_seq_len": 64, "documents_per_update": 1}, "num_iterations": 1}
    else:
        [table] = found(config["data"], "path")
        if name == "reward_helpful":
            both = {"chosen": "<think> a </think> yes", "rejected": "<think> b </think> no"}
            examples = [{"prompt": row["question"], **both} for row in rows]
        else:
            labels = ("safe", "unsafe", "safe", "unsafe")
            examples = [
                {"prompt": row["question"], "response": f"{label}!", "label": label}
                for row, label in zip(rows, labels, strict=True)
            ]
        write_records(Path(table), examples)
        data = {"max_tokens": 128, "train_batch_size": 2, "num_iterations": 1}
    config = merge(config, {"model": {"init_args": small}, "data": {"init_args": data}})
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(config))
    cli = main(["fit", "-c", str(path)])
    assert int(cli.model.iteration) == num_iterations
    run = tmp_path / "runs/r1_full" / name
    assert (run / "policy/model.safetensors").is_file()
    logged = read_records(run / "metrics.jsonl")
    assert len(logged) == num_iterations
    if name in RL:
        problems = cli.datamodule.problems["train"]
        verifiers = ["math", "stdin_code", "repository", "choice", "reasoning_gym"]
        assert [p.verifier for p in problems[:5]] == verifiers
        assert all(p.verifier == "none" for p in problems[5:])
    if name == "rl_2":
        assert len(problems) == 8
        [first, second] = logged
        assert first["train/reward/helpful"] == first["train/reward/safe"] == 0.0
        assert second["train/reward/helpful"] != 0.0
        assert {"train/reward/format", "train/reward/language_consistency"} <= set(first)
    if name in SFT:
        assert logged[-1]["train/learning_rate"] == pytest.approx(5e-6)
