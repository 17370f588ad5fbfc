"""Widths and depths of known models, and configurations of these: for plans and measurements."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PretrainedConfig

MINI = Path(__file__).parents[1] / "models" / "mini"


def _decoder(
    kind: str, vocab: int, hidden: int, intermediate: int, layers: int, heads: int, kv: int
) -> dict[str, Any]:
    return {
        "model_type": kind,
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "max_position_embeddings": 8192,
    }


_qwen = partial(_decoder, "qwen2", 151_936)
_llama = partial(_decoder, "llama")
UNTIED = {"tie_word_embeddings": False}
WIDE = UNTIED | {"vocab_size": 152_064}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    # SmolLM2-135M, Qwen2.5-0.5B, Qwen3-0.6B, Qwen2.5-1.5B
    "135M": _llama(49_152, 576, 1536, 30, 9, 3),
    "0.5B": _qwen(896, 4864, 24, 14, 2),
    "0.6B": _qwen(1024, 3072, 28, 16, 8) | {"model_type": "qwen3", "head_dim": 128},
    "1.5B": _qwen(1536, 8960, 28, 12, 2),
    # Qwen2.5-7B, -14B, -32B, Llama-3.1-8B, Llama-3.3-70B: for plans; never made here
    "7B": _qwen(3584, 18_944, 28, 28, 4) | WIDE,
    "14B": _qwen(5120, 13_824, 48, 40, 8) | WIDE,
    "32B": _qwen(5120, 27_648, 64, 40, 8) | WIDE,
    "8B": _llama(128_256, 4096, 14_336, 32, 32, 8) | UNTIED,
    "70B": _llama(128_256, 8192, 28_672, 80, 64, 8) | UNTIED,
    # the shipped base's shape, in which lengths and vocabularies can grow
    "mini-long": _llama(1_416, 192, 512, 4, 4, 4),
    "mini-long-8k": _llama(8_192, 192, 512, 4, 4, 4),
    "mini-long-152k": _llama(151_936, 192, 512, 4, 4, 4),
    # for tests
    "tiny": _llama(1_500, 32, 64, 2, 2, 1),
    "tiny-qwen": _qwen(32, 64, 2, 2, 1) | {"vocab_size": 1_500},
}

HUB = {
    "Qwen/Qwen2.5-0.5B": "0.5B",
    "Qwen/Qwen2.5-0.5B-Instruct": "0.5B",
    "Qwen/Qwen3-0.6B-Base": "0.6B",
    "Qwen/Qwen2.5-1.5B": "1.5B",
    "Qwen/Qwen2.5-Math-1.5B": "1.5B",
    "Qwen/Qwen2.5-7B": "7B",
    "Qwen/Qwen2.5-7B-Instruct": "7B",
    "Qwen/Qwen2.5-Math-7B": "7B",
    "Qwen/Qwen2.5-14B": "14B",
    "Qwen/Qwen2.5-32B": "32B",
    "meta-llama/Llama-3.1-8B": "8B",
    "meta-llama/Llama-3.3-70B-Instruct": "70B",
}
"""Names on the hub -> names here: their widths are known where the hub is out of reach."""


def model_config(name: str) -> PretrainedConfig:
    """Return the configuration of model ``name``."""
    if name == "mini":
        return AutoConfig.from_pretrained(MINI)
    settings = dict(ARCHITECTURES[name])
    return AutoConfig.for_model(
        settings.pop("model_type"),
        **{"tie_word_embeddings": True} | settings,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
