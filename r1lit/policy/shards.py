"""Sharded weights (DTensor): reading each rank's shard, and gathering the whole.

A model that is to be sharded is built without memory for its weights (on the meta device). Once it
is sharded each rank reads its own share from the files, so that none ever holds a whole copy.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.utils import (
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    cached_file,
)


@dataclass(frozen=True, kw_only=True)
class StoredWeight:
    """A weight in a file of a Hugging Face directory, of which rows can be read."""

    file: str
    name: str
    shape: tuple[int, ...]

    def read(self, rows: slice = slice(None)) -> Tensor:
        """Return rows of it in memory of their own; the file is mapped only meanwhile."""
        if not self.file.endswith(".safetensors"):
            return _mapped(self.file)[self.name][rows].clone()
        with safe_open(self.file, "pt") as file:
            if not self.shape:
                return file.get_tensor(self.name).clone()
            return file.get_slice(self.name)[rows].clone()


def stored_weights(name_or_path: str) -> dict[str, StoredWeight]:
    """Return a model's weights by name, none of them read; nothing if they cannot be read so."""
    found: dict[str, StoredWeight] = {}
    for file in _files(name_or_path):
        if file.endswith(".safetensors"):
            with safe_open(file, "pt") as opened:
                shapes = {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
        else:
            try:
                shapes = {name: weight.shape for name, weight in _mapped(file).items()}
            except RuntimeError:  # of before PyTorch 1.6, which cannot be mapped
                return {}
        found |= {
            name: StoredWeight(file=file, name=name, shape=tuple(shape))
            for name, shape in shapes.items()
        }
    return found


def _files(name_or_path: str) -> list[str]:
    for whole, index in (
        (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME),
        (WEIGHTS_NAME, WEIGHTS_INDEX_NAME),
    ):
        if (file := _cached(name_or_path, whole)) is not None:
            return [file]
        if (file := _cached(name_or_path, index)) is not None:
            parts = sorted({*json.loads(Path(file).read_text())["weight_map"].values()})
            files = [_cached(name_or_path, part) for part in parts]
            return [file for file in files if file is not None]
    return []


def _cached(name_or_path: str, filename: str) -> str | None:
    try:
        return cached_file(name_or_path, filename)
    except OSError:  # it has none of that name
        return None


def _mapped(file: str) -> Mapping[str, Tensor]:
    return torch.load(file, map_location="cpu", mmap=True, weights_only=True)


@contextmanager
def without_weights() -> Iterator[None]:
    """Have models built inside hold parameters on the meta device, and buffers as they are.

    The CPU's random state is restored after it.
    """

    def to_meta(module: nn.Module, name: str, weight: nn.Parameter) -> nn.Parameter | None:
        if weight is None or weight.is_meta:  # another name of a tied one
            return None
        return nn.Parameter(weight.to("meta"), weight.requires_grad)

    handle = register_module_parameter_registration_hook(to_meta)  # type: ignore[arg-type]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        handle.remove()


def build_without_weights(
    auto_class: Any,
    config: PretrainedConfig,
    name_or_path: str,
    new: str | None = None,
    **options: Any,
) -> tuple[Any, dict[str, StoredWeight]] | None:
    """Build a model whose weights are on the meta device, and find what is to be read for each.

    Args:
        auto_class: of transformers.
        config: the model's configuration, which is not changed.
        name_or_path: a Hugging Face directory, or a model's name on the hub.
        new: how the names of weights begin that are not to be read.
        **options: of ``from_config``.

    Returns:
        None where the files do not hold the very weights that the model has: under other names,
        joined or split, which ``from_pretrained`` puts right, or not at all, which it has a message
        for, as for a model that cannot be built.
    """
    try:
        with without_weights():
            model = auto_class.from_config(copy.deepcopy(config), **options)
        stored = stored_weights(name_or_path)
    except (ImportError, KeyError, OSError, RuntimeError, SafetensorError, ValueError):
        return None
    if getattr(model, "_keep_in_fp32_modules", None):  # in float32 in a model of any dtype
        return None
    weights = _by_name(model, stored, new)
    if weights is None:
        return None
    model.config.name_or_path = name_or_path
    if model.can_generate():
        model.generation_config = _generation_config(name_or_path)
    return model, weights


def _generation_config(name_or_path: str) -> GenerationConfig:
    try:
        return GenerationConfig.from_pretrained(name_or_path)
    except OSError:  # it has none of its own: what from_pretrained does then
        return GenerationConfig.from_pretrained(
            name_or_path, config_file_name="config.json", _from_model_config=True
        )


def _by_name(
    model: PreTrainedModel, stored: Mapping[str, StoredWeight], new: str | None
) -> dict[str, StoredWeight] | None:
    own = {
        name: weight
        for name, weight in model.state_dict(keep_vars=True).items()
        if new is None or not name.startswith(new)
    }
    names: dict[int, list[str]] = {}
    for name, weight in own.items():
        names.setdefault(id(weight), []).append(name)
    found = {}
    for name, weight in own.items():
        there = [alias for alias in names[id(weight)] if alias in stored]
        if there:
            found[name] = stored[there[0]]
        if not there or found[name].shape != tuple(weight.shape):
            return None
    return found


def can_be_put(settings: Any, folder: str | None) -> bool:
    """Return whether an adapter, or that of a PEFT folder, goes into a model without weights."""
    if settings is None:
        return folder is None  # else it is merged into them
    reading = ("use_dora", "modules_to_save", "trainable_token_indices")
    return type(settings).__name__ == "LoraConfig" and not any(
        getattr(settings, key, None) for key in reading
    )


@contextmanager
def stand_ins(model: nn.Module) -> Iterator[None]:
    """Let weights on the meta device look like zeros on the CPU, which take no memory.

    An adapter's weights are put where those are that they are for.
    """
    missing = [weight for weight in model.parameters() if weight.is_meta]
    zeros = [
        nn.Parameter(torch.zeros((), dtype=weight.dtype).expand(weight.shape), weight.requires_grad)
        for weight in missing
    ]
    _put(model, missing, zeros)
    try:
        yield
    finally:
        for weight, zero in zip(missing, zeros, strict=True):
            weight.requires_grad_(zero.requires_grad)
        _put(model, zeros, missing)


def _put(model: nn.Module, old: Sequence[nn.Parameter], new: Sequence[nn.Parameter]) -> None:
    by_old = dict(zip(map(id, old), new, strict=True))
    for module in model.modules():
        for name, weight in module._parameters.items():
            module._parameters[name] = by_old.get(id(weight), weight)


@torch.no_grad()
def fill(model: nn.Module, weights: Mapping[str, StoredWeight], device: torch.device) -> None:
    """Read this rank's share of each weight of a sharded model that has none yet.

    Tied weights stay tied. A weight that is there already stays as it is; a buffer does not.
    """
    made: dict[int, nn.Parameter] = {}
    state: dict[str, Tensor] = {}
    own: dict[str, Any] = model.state_dict(keep_vars=True)
    for in_a_layer, weight in own.items():
        name = without_adapter(in_a_layer)
        if not weight.is_meta:
            if not isinstance(weight, nn.Parameter) and name in weights:
                weight.copy_(weights[name].read())
            continue
        if id(weight) not in made:
            share = _own_rows(weight, weights[name]).to(device, weight.dtype)
            made[id(weight)] = nn.Parameter(
                DTensor.from_local(
                    share,
                    weight.device_mesh,
                    weight.placements,
                    run_check=False,
                    shape=weight.shape,
                    stride=weight.stride(),
                ),
                weight.requires_grad,
            )
        state[in_a_layer] = made[id(weight)]
    model.load_state_dict(state, strict=False, assign=True)


def _own_rows(weight: DTensor, stored: StoredWeight) -> Tensor:
    """Return this rank's rows: as many to each, as ``torch.chunk`` shares them out."""
    num_rows, own = weight.shape[0], weight.to_local().shape[0]
    if not own:
        return torch.empty(0, *weight.shape[1:])
    mesh = weight.device_mesh
    start = mesh.get_local_rank() * -(-num_rows // mesh.size())
    return stored.read(slice(start, start + own))


def whole(weight: Tensor) -> Tensor:
    """Return a weight that all ranks put together, or one that is whole as it is."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def without_adapter(name: str) -> str:
    """Return a weight's name in the model without adapter.

    >>> without_adapter("mlp.experts.base_layer.base_layer.gate_up_proj")
    'mlp.experts.gate_up_proj'
    """
    return re.sub(r"(\.base_layer)+\.", ".", name)


def whole_copy(module: nn.Module) -> nn.Module:
    """Return a copy of a module whose weights are whole, and can be changed; all ranks make it."""
    weights = {id(p): nn.Parameter(whole(p.detach()).clone(), False) for p in module.parameters()}
    return copy.deepcopy(module, weights)


def shared_out(value: Tensor, weight: Tensor) -> Tensor:
    """Return a whole value as ranks hold ``weight``; all of them have the same value."""
    value = value.to(weight.device, weight.dtype)
    if not isinstance(weight, DTensor):
        return value
    return distribute_tensor(value, weight.device_mesh, weight.placements)
