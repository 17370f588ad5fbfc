"""The peers' best settings, found by ``tune_peers.py`` (its record is ``results/peers.json``)."""

from __future__ import annotations

from typing import Any

from benchmarks.work import Precision

TRL_GRPO_MINI: dict[str, Any] = {"micro_rows": 32, "cache_implementation": "static"}
TRL_GRPO_MINI_PRECISION: Precision = "fp32"
TRL_GRPO_135M: dict[str, Any] = {"micro_rows": 4}
TRL_GRPO_REAL: dict[str, Any] = {"micro_rows": 32}  # other numbers were not tried
TRL_SFT: dict[str, Any] = {"micro_rows": 1, "packing": False}
TRL_MEMORY: dict[str, Any] = {"micro_rows": 1, "gradient_checkpointing": True}
GENERATE_MINI: dict[str, Any] = {"cache": "static"}
GENERATE_MINI_PRECISION: Precision = "fp32"
GENERATE_135M: dict[str, Any] = {}
VLLM_MINI_PRECISION: Precision = "bf16"
VLLM_MINI: dict[str, Any] = {"preload": ["tcmalloc", "iomp5"]}
VLLM_135M: dict[str, Any] = {"threads": "nobind"}
