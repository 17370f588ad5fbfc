"""The presets of cold start and rejection sampling run, with a tiny policy swapped in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import ROOT, save_policy
from transformers import AutoTokenizer

from r1lit.cli import main

FULL = ROOT / "configs" / "r1" / "full"
PRESETS = sorted(path for path in FULL.rglob("*.yaml") if "RejectionSampling" in path.read_text())
CHAT = (
    "{% for m in messages %}User: {{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %} Assistant:{% endif %}"
)
IN_PROCESS = {"class_path": "r1lit.rollout.InProcessEngine", "init_args": {"max_rows": 8}}


@pytest.fixture(scope="module")
def long_policy(tmp_path_factory) -> Path:
    """A tiny policy with a chat template, whose context holds the few-shot example."""
    folder = save_policy(tmp_path_factory.mktemp("policy"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


def small(value: Any, folder: Path, policy: Path) -> Any:
    """Swap in the tiny policy, local problems and short responses, and leave the rest."""
    if isinstance(value, list):
        return [small(item, folder, policy) for item in value]
    if not isinstance(value, dict):
        return value
    if "predict" in value:  # problems of several kinds, which the tiny policy cannot solve anyway
        value = value | {"predict": [{"class_path": "r1lit.data.TableProblems"}]}
    made = {key: small(item, folder, policy) for key, item in value.items()}
    if str(value.get("class_path", "")).endswith(("TableProblems", "SuiteQuestions")):
        table = "evaluation" if "SuiteQuestions" in str(value) else "train"
        return {
            "class_path": "r1lit.data.TableProblems",
            "init_args": {"path": str(folder / f"{table}.jsonl")},
        }
    if str(value.get("class_path", "")).endswith(("ServerEngine", "VLLMEngine")):
        return IN_PROCESS
    if str(value.get("class_path", "")).endswith("ServedModel"):
        nowhere = {"url": "http://127.0.0.1:9/v1", "max_retries": 0, "timeout_s": 5}
        return {**made, "init_args": {**made["init_args"], "endpoint": nowhere}}
    if "max_tokens" in value and "temperature" in value:
        made["max_tokens"] = 6
    if "policy" in value:
        made["policy"] = str(policy)
    if "cache" in value:
        made["cache"] = str(folder / "cache")
    if "dirpath" in value:
        made["dirpath"] = str(folder / "run")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("path", PRESETS, ids=lambda p: str(p.relative_to(FULL)))
def test_a_preset_draws_and_curates(path, tmp_path, long_policy):
    for name, count in (("train", 3), ("evaluation", 2)):
        rows = [{"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    config = small(yaml.safe_load(path.read_text()), tmp_path, long_policy)
    config["data"]["init_args"]["evaluation"]["num_samples"] = 2
    config["model"]["init_args"]["policy"] = {"path": str(long_policy), "dtype": "float32"}
    config["trainer"]["accelerator"] = "cpu"
    (tmp_path / "preset.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
    main(["predict", "-c", str(tmp_path / "preset.yaml")])
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["num_drawn"] == 6 == card["num_kept"] + card["num_dropped"]
    given = yaml.safe_load(path.read_text())["trainer"]["callbacks"][0]["init_args"]
    for stage in ("filters", "refiners", "final_filters"):
        names = [part["class_path"].split(".")[-1] for part in given.get(stage, [])]
        assert [part["class"] for part in card["settings"][stage]] == names


@pytest.mark.slow
def test_the_second_command_of_the_page_reads_what_the_first_one_writes(
    tmp_path, long_policy, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "DATA_CURATION.md").read_text()
    lines = [line.split("#")[0].split() for line in page.splitlines() if line.startswith("r1lit ")]
    predict, fit = ([word for word in line if word.endswith(".yaml")] for line in lines)
    rows = [{"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(4)]
    for name in ("train", "evaluation"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [written] = predict
    given = yaml.safe_load((ROOT / written).read_text())
    config = small(given, tmp_path, long_policy)
    source = {"path": str(long_policy), "dtype": "float32"}
    config["model"]["init_args"] |= {
        "dirpath": given["model"]["init_args"]["dirpath"], "policy": source
    }  # fmt: skip
    config["trainer"]["accelerator"] = "cpu"
    filters = [{"class_path": "r1lit.curation.CodeBlocks"}]  # a random policy is never right
    config["trainer"]["callbacks"][0]["init_args"]["filters"] = filters
    (tmp_path / "predict.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
    main(["predict", "-c", "predict.yaml"])
    assert fit[-1].startswith("configs/hardware/")
    less = {
        "model": {"init_args": {"policy": source}},
        "data": {"init_args": {"packing": {"max_seq_len": 256, "documents_per_update": 8}}},
        "trainer": {"accelerator": "cpu", "max_epochs": 1},
    }
    (tmp_path / "less.yaml").write_text(yaml.safe_dump(less))
    files = [*(str(ROOT / name) for name in fit[:-1]), "less.yaml"]
    main(["fit", *(word for name in files for word in ("-c", name))])
    assert (tmp_path / "runs/sft/policy/model.safetensors").exists()


def test_the_three_ways_and_the_rejection_sampling_are_there():
    names = {str(path.relative_to(FULL)) for path in PRESETS}
    assert {
        "cold_start/few_shot.yaml",
        "cold_start/direct.yaml",
        "cold_start/from_zero.yaml",
        "cold_start/simple_math.yaml",
        "rejection_sampling.yaml",
        "sft_800k/other.yaml",
    } <= names


def test_the_few_shot_example_is_cut_at_the_next_question():
    config = yaml.safe_load((FULL / "cold_start" / "few_shot.yaml").read_text())
    stop = config["model"]["init_args"]["sampling"]["stop"]
    template = config["data"]["init_args"]["prompts"]["template"]
    assert template.count("\nQuestion:") == 2 and template.endswith("Question: {question}\nAnswer:")
    callback = config["trainer"]["callbacks"][0]["init_args"]
    assert stop == callback["cut"] == ["\nQuestion:"]
