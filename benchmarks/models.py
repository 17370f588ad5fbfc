"""The models that are measured: the shipped base, and known architectures with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from benchmarks.work import Training, weights_dtype
from experiments.architectures import MINI, model_config


def model_directory(name: str, folder: Path, dtype: str = "float32") -> str:
    """Return the directory of model ``name``; one with random weights is made in ``folder``."""
    if name == "mini":
        return str(MINI)
    path = folder / f"{name}-{dtype}"
    if not (path / "config.json").exists():
        _make(name, path, dtype)
    return str(path)


def load_plain(work: Training) -> PreTrainedModel:
    """Return the work's model as a peer loads it."""
    model = AutoModelForCausalLM.from_pretrained(
        work.model, dtype=weights_dtype(work.precision), trust_remote_code=False
    )
    return model.to(work.device)  # type: ignore[arg-type]


def autocast(work: Training) -> torch.autocast:
    """Return the context in which the work's forward pass runs."""
    return torch.autocast(work.device, torch.bfloat16, enabled=work.precision == "bf16-mixed")


def vocabulary_of(work: Training) -> int:
    """Return the number of logits of the work's model."""
    return int(AutoConfig.from_pretrained(work.model, trust_remote_code=False).vocab_size)


def _make(name: str, path: Path, dtype: str) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(model_config(name), dtype=getattr(torch, dtype))
    model.save_pretrained(path)
    _make_tokenizer(path, model.config.vocab_size)


def _make_tokenizer(path: Path, size: int) -> None:
    """Write the shipped base's tokenizer, filled up with made-up words to ``size`` tokens.

    The last is left out: transformers adds an end-of-text token of its own for Qwen2.
    """
    tokenizer = json.loads((MINI / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for index in range(len(vocabulary), size - 1):
        vocabulary[f"Ġw{index}"] = index
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "tokenizer_config.json").write_text((MINI / "tokenizer_config.json").read_text())
