"""Handing an adapter alone to vLLM servers, which add it to the policy's weights they have."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from r1lit.endpoint.client import RequestError
from r1lit.files import beside, remove, replace_path
from r1lit.policy.adapter import Adapter, names_in_4_bits
from r1lit.policy.support import outside_linear_layers
from r1lit.rollout.transfers import Send, from_first, rank
from r1lit.rollout.vllm_check import LOAD_ADAPTER, ServerInfo
from r1lit.rollout.vllm_server import VLLMServer

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What ``--max-lora-rank`` may be."""
NOT_LOADED = (
    *("use_dora", "lora_bias", "modules_to_save", "trainable_token_indices", "target_parameters"),
    *("alora_invocation_tokens", "layer_replication", "use_bdlora", "use_qalora"),
)
"""Settings of ``peft.LoraConfig`` that vLLM 0.32 does not compute."""


def max_lora_rank(adapter: Adapter) -> int:
    """Return the least ``--max-lora-rank`` that a server needs; 0 if none is enough."""
    settings = adapter.settings
    largest = max([settings.r, *(settings.rank_pattern or {}).values()])
    return next((allowed for allowed in RANKS if allowed >= largest), 0)


def why_not(adapter: Adapter, in_flight_updates: bool = False) -> str | None:
    """Return why vLLM cannot load an adapter as it is; None if it can."""
    if in_flight_updates:
        return "in_flight_updates change responses under way, which keep an adapter"
    if names_in_4_bits(adapter.model):
        return "servers have the weights that the policy holds in 4 bits"
    settings = adapter.settings
    kind = type(settings).__name__
    if kind != "LoraConfig":
        return f"{kind} is not LoRA"
    if settings.bias != "none":
        return f"vLLM loads no bias ({settings.bias!r})"
    for key in NOT_LOADED:
        if getattr(settings, key, None):
            return f"vLLM does not load {key}"
    if not max_lora_rank(adapter):
        return f"its rank is above {RANKS[-1]}"
    others = outside_linear_layers(adapter.model)
    return f"it changes {others[0]}, which is no linear layer within the model" if others else None


def why_not_on(info: ServerInfo, url: str, lora_rank: int) -> str | None:
    """Return why a server cannot load adapters of a rank; None if it can."""
    if info.max_lora_rank >= lora_rank:
        return None
    return (
        f"{url} was not started with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and"
        f" --max-lora-rank {lora_rank}"
    )


def take_adapter(adapter: Adapter, folder: Path) -> Send:
    """Write the adapter to a folder, and return what has servers load it; all ranks call it."""
    weights = adapter.gather()
    if rank() == 0:
        temporary = beside(folder)
        remove(temporary)
        adapter.save_weights(temporary, weights)
        replace_path(temporary, folder)
    from_first(None)  # it is there
    return partial(_send, folder)


def _send(folder: Path, server: VLLMServer, label: str) -> None:
    previous = server.label()
    # a name for each version: vLLM 0.32 reads an adapter that it loads in place again at each step
    with suppress(RequestError):  # of a try that failed half-way
        server.post("v1/unload_lora_adapter", {"lora_name": label})
    server.post(LOAD_ADAPTER, {"lora_name": label, "lora_path": str(folder)})
    server.post("update_weight_version", {"new_version": label})
    if previous != label:
        with suppress(RequestError):  # there was none
            server.post("v1/unload_lora_adapter", {"lora_name": previous})
