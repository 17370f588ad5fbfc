"""Tiny random models of architectures that differ in what they do with positions and caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmarks.architectures import Case, make_model


def save_tiny(folder: Path, model_type: str, attention: str = "sdpa", **changes: Any) -> str:
    """Save a tiny model of an architecture; return where."""
    case = Case(name=model_type, model_type=model_type, attention=attention, changes=changes)
    make_model(case).save_pretrained(folder)
    return str(folder)


def plain(folder: str, attention: str = "sdpa") -> PreTrainedModel:
    """The same model as Hugging Face loads it, in evaluation mode."""
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention).eval()


def alone(model: PreTrainedModel, prompt: list[int], response: list[int]) -> torch.Tensor:
    """Log-probs of a response from one forward pass over its row, without padding or cache."""
    ids = torch.tensor([[*prompt, *response]])
    logits_TV = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    target_T1 = ids[0, len(prompt) :, None]
    return logits_TV.log_softmax(-1).gather(-1, target_T1).squeeze(-1)
