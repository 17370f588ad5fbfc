"""QLoRA (2305.14314): an adapter is trained beside weights that bitsandbytes holds in 4 bits."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BitsAndBytesConfig

Quantization = dict[str, Any]
"""Arguments of ``transformers.BitsAndBytesConfig``, ``load_in_4bit: true`` among them."""


def check_quantization(quantization: Quantization | None, adapter: Any) -> None:
    """Check the requested quantization before anything is loaded.

    Raises:
        ValueError: if bitsandbytes is missing, it is not 4 bits, or there is no LoRA to be trained.
    """
    if quantization is None:
        return
    if type(adapter).__name__ != "LoraConfig" or adapter.use_dora:
        given = "no adapter" if adapter is None else type(adapter).__name__
        raise ValueError(
            f"quantization: weights in 4 bits are not trained, and {given} is; give"
            " adapter: peft.LoraConfig, without use_dora"
        )
    _to_config(quantization)


def _to_config(quantization: Mapping[str, Any]) -> BitsAndBytesConfig:
    _need_packages()
    known = {*inspect.signature(BitsAndBytesConfig).parameters} - {"load_in_8bit", "kwargs"}
    unknown = sorted({*quantization} - known)
    if unknown or quantization.get("load_in_4bit") is not True:
        what = f"{unknown[0]} is not one of" if unknown else "load_in_4bit is not true among"
        raise ValueError(f"quantization: {what} {', '.join(sorted(known))}")
    try:
        return BitsAndBytesConfig(**quantization)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"quantization: {error}") from error


def find_quantization(
    given: Quantization | None, folder_config: Any, shards_adapter: bool
) -> BitsAndBytesConfig | None:
    """Return how the weights beside an adapter are held, if in 4 bits.

    Args:
        given: what was asked for.
        folder_config: the configuration in a PEFT folder, which says how they were held.
        shards_adapter: whether FSDP2 is to shard them.

    Raises:
        ValueError: as ``check_quantization``, or if they are to be sharded.
    """
    stored = getattr(folder_config, "quantization_config", None)
    if given is None and stored is None:
        return None
    if shards_adapter:
        raise ValueError(
            "quantization: FSDP2 does not shard weights in 4 bits; use strategy: ddp, where each"
            " rank holds all, or leave it out"
        )
    if given is not None:
        return _to_config(given)
    _need_packages()
    return BitsAndBytesConfig.from_dict(stored)


def _need_packages() -> None:
    for package in ("bitsandbytes", "accelerate"):
        if find_spec(package) is None:
            raise ValueError(
                f"quantization: {package} is not installed; pip install 'r1lit[qlora]'"
            )


def names_in_4_bits(model: nn.Module) -> frozenset[str]:
    """Return the names of the weights that are held in 4 bits."""
    return frozenset(n for n, p in model.named_parameters() if type(p).__name__ == "Params4bit")


def whole_weight(model: nn.Module, name: str, adapter: str) -> tuple[str, Tensor]:
    """Return one of ``names_in_4_bits`` without its layer's adapter, and what the two amount to."""
    owner, inner, _ = name.partition(".base_layer.")
    layer: Any = model.get_submodule(owner if inner else name.removesuffix(".weight"))
    weight = _dequantized(layer.get_base_layer() if inner else layer)
    if not inner:
        return name, weight
    return f"{owner}.weight", weight + layer.get_delta_weight(adapter).to(weight.dtype)


def _dequantized(layer: Any) -> Tensor:
    from peft.utils.integrations import dequantize_bnb_weight  # peft is an extra

    return dequantize_bnb_weight(layer.weight)


def compute_alike(model: Any) -> Any:
    """Return a model whose layers in 4 bits compute alike with and without gradients.

    On some CPUs bitsandbytes would put weights into another layout where none is wanted, and
    multiply in bfloat16: rollouts would not be those of the policy that is updated.
    """
    for layer in _layers(model):
        layer.support_avx512bf16_for_cpu = False
    return model


def _layers(model: nn.Module) -> list[Any]:
    kind = "Params4bit"
    return [m for m in model.modules() if type(m._parameters.get("weight")).__name__ == kind]


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Compute with weights in 4 bits in float32, whatever the configured dtype."""
    layers = _layers(model)
    before = [layer.compute_dtype for layer in layers]
    try:
        for layer in layers:
            layer.compute_dtype = torch.float32
        yield
    finally:
        for layer, dtype in zip(layers, before, strict=True):
            layer.compute_dtype = dtype
