"""GSM8K and MATH-500 as they are, through the command line, on small policies of two families."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny import ROOT, callbacks
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from r1lit.cli import main
from r1lit.text.prompts import R1_ZERO

REAL = ROOT / ".." / "shared" / "data"
GSM8K = str(ROOT / "configs" / "data" / "gsm8k.yaml")
FAMILIES = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What AutoTokenizer puts in place of any other pre-tokenizer of a qwen2 model."""

pytestmark = pytest.mark.skipif(
    not (REAL / "gsm8k_train.jsonl").is_file(), reason="the shared data is not here"
)


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (REAL / name).read_text().splitlines()]


def gsm8k_gold(row: dict[str, Any]) -> str:
    return row["answer"].rpartition("####")[2].strip().replace(",", "")


@pytest.fixture(scope="module")
def trained() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on the questions of GSM8K."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=800,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([row["question"] for row in rows("gsm8k_train.jsonl")], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def policy(request, trained, tmp_path_factory) -> Path:
    """A Hugging Face directory with a small random policy."""
    directory = tmp_path_factory.mktemp(request.param)
    make_config, make_model = FAMILIES[request.param]
    torch.manual_seed(0)
    config = make_config(
        vocab_size=len(trained),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=640,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=trained.eos_token_id,
    )
    make_model(config).save_pretrained(directory)
    trained.save_pretrained(directory)
    return directory


def small(tmp_path: Path, policy: Path) -> list[str]:
    """Return the arguments of a small run: the shipped fragment, local files, few problems."""
    train, validation = str(REAL / "gsm8k_train.jsonl"), str(REAL / "gsm8k_test.jsonl")
    table = "r1lit.data.TableProblems"
    gsm8k = {"answer_pattern": r"####\s*(.+)", "answer_remove": ",", "source": "gsm8k"}
    config = {
        "model": {
            "class_path": "r1lit.modules.GRPOModule",
            "init_args": {
                "policy": str(policy),
                "objective": {"class_path": "r1lit.objectives.GRPO", "init_args": {"beta": 0.001}},
                "rewards": [
                    {"class_path": "r1lit.rewards.Accuracy"},
                    {"class_path": "r1lit.rewards.Format"},
                    # random policies earn neither: lengths give groups something to differ in
                    {
                        "class_path": "r1lit.rewards.Overlong",
                        "init_args": {"max_tokens": 12, "buffer_tokens": 11},
                    },
                ],
                "sampling": {"max_tokens": 12},
                "train_batch_size": 4,
                "micro_batch_tokens": 1024,
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.001}},
            },
        },
        "data": {
            "class_path": "r1lit.data.R1DataModule",
            "init_args": {
                "train": [
                    {"class_path": table, "init_args": {"path": train, "limit": 40, **gsm8k}}
                ],
                "validation": [
                    {"class_path": table, "init_args": {"path": validation, "limit": 3, **gsm8k}}
                ],
                "test": [
                    {
                        "class_path": table,
                        "init_args": {
                            "path": str(REAL / "math500.jsonl"),
                            "question": "problem",
                            "uid": "unique_id",
                            "source": "math500",
                            "limit": 3,
                        },
                    }
                ],
                "rollout": {"prompts_per_iteration": 2, "group_size": 4},
                "num_iterations": 2,
                "evaluation": {"num_samples": 4, "prompts_per_batch": 2},
            },
        },
        "trainer": {
            "accelerator": "cpu",
            "max_epochs": 1,
            "num_sanity_val_steps": 0,
            "val_check_interval": 1,
            "log_every_n_steps": 1,
            "enable_model_summary": False,
            "default_root_dir": str(tmp_path),
            "logger": False,
            "callbacks": callbacks(tmp_path),
        },
    }
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(config))
    return ["-c", GSM8K, "-c", str(path)]


def responses(tmp_path: Path, split: str) -> list[dict[str, Any]]:
    lines = (tmp_path / "responses.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["split"] == split]


def assert_evaluated(lines: list[dict[str, Any]], gold_of: dict[str, str], k: int) -> None:
    """Check that these are k responses to each of these questions, in order, with their golds."""
    assert [line["question"] for line in lines] == [q for q in gold_of for _ in range(k)]
    for line in lines:
        assert line["answer"] == gold_of[line["question"]]
        assert line["rewards"].keys() == {"accuracy", "format", "overlong"}
        assert 1 <= line["num_tokens"] <= 12
        assert line["rewards"]["accuracy"] == (line["status"] == "right")


def test_the_loaded_tokenizer_is_the_trained_one(policy, trained):
    loaded = AutoTokenizer.from_pretrained(policy)
    texts = [row["question"] for row in rows("gsm8k_test.jsonl")[:50]]
    texts += [row["problem"] for row in rows("math500.jsonl")[:50]]
    assert loaded(texts)["input_ids"] == trained(texts)["input_ids"]
    assert loaded.batch_decode(loaded(texts)["input_ids"]) == texts


@pytest.mark.long
def test_fit_on_gsm8k(policy, trained, tmp_path):
    cli = main(["fit", *small(tmp_path, policy)])

    # prompts and golds are the file's
    train = rows("gsm8k_train.jsonl")[:40]
    prompts = trained.batch_decode([list(p) for p in cli.datamodule.prompt_ids["train"]])
    assert prompts == [R1_ZERO.replace("{question}", row["question"]) for row in train]
    assert [p.answer for p in cli.datamodule.problems["train"]] == [gsm8k_gold(r) for r in train]
    assert cli.datamodule.problems["train"][0].answer == "72"

    # two iterations of two updates moved the policy, and every metric is a number
    assert int(cli.model.iteration) == 2 and cli.trainer.global_step == 4
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1]
    for line in lines:
        assert line["train/grad_norm"] > 0
        assert line["train/mismatch/max_abs"] < 1e-3
        assert {"train/loss", "train/reward", "train/kl_reference"} <= line.keys()
        assert all(math.isfinite(v) for v in line.values())

    # three evaluations of 3 problems x 4 samples, whose responses are all written down
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [record["iteration"] for record in summary] == [0, 1, 2]
    assert {(r["num_problems"], r["num_samples"]) for r in summary} == {(3, 4)}
    gold_of = {row["question"]: gsm8k_gold(row) for row in rows("gsm8k_test.jsonl")[:3]}
    written = responses(tmp_path, "val")
    for record in summary:
        evaluated = [line for line in written if line["iteration"] == record["iteration"]]
        assert_evaluated(evaluated, gold_of, k=4)
        right = [line["status"] == "right" for line in evaluated]
        assert record["pass_at_1"] == pytest.approx(sum(right) / len(right))
        mean_length = sum(line["num_tokens"] for line in evaluated) / len(evaluated)
        assert record["response_length_tokens"] == pytest.approx(mean_length)
    exported = AutoTokenizer.from_pretrained(tmp_path / "policy")
    assert exported("12 clips").input_ids == trained("12 clips").input_ids


@pytest.mark.long
@pytest.mark.parametrize("command", ["validate", "test"])
def test_evaluation_by_k_samples(policy, tmp_path, command):
    cli = main([command, *small(tmp_path, policy)])
    if command == "validate":
        gold_of = {row["question"]: gsm8k_gold(row) for row in rows("gsm8k_test.jsonl")[:3]}
        split, source = "val", "gsm8k"
    else:
        gold_of = {row["problem"]: row["answer"] for row in rows("math500.jsonl")[:3]}
        split, source = "test", "math500"
    evaluated = responses(tmp_path, command)
    assert_evaluated(evaluated, gold_of, k=4)
    assert {line["source"] for line in evaluated} == {source}
    metrics = {key: float(value) for key, value in cli.trainer.callback_metrics.items()}
    assert metrics[f"{split}/num_problems"] == 3 and metrics[f"{split}/num_samples"] == 4
    right = [line["status"] == "right" for line in evaluated]
    assert metrics[f"{split}/pass_at_1"] == pytest.approx(sum(right) / len(right))
    assert 0 <= metrics[f"{split}/cons_at_4"] <= 1
    undefined = {f"{split}/length/right"} if not any(right) else set()
    assert {key for key, value in metrics.items() if not math.isfinite(value)} == undefined
