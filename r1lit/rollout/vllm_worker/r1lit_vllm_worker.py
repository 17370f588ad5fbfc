"""Loads new weights into a running vLLM; imported by vLLM's worker processes alone.

vLLM has a Python of its own, without r1lit: this folder goes on its PYTHONPATH, and

    --worker-extension-cls r1lit_vllm_worker.Extension
    --weight-transfer-config '{"backend": "safetensors"}'       or "gloo"

has the module imported before the transfer engine is made by its name. Besides vLLM it needs only
torch and safetensors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from r1lit_vllm_digest import digest, keys
from safetensors import safe_open
from torch import distributed as dist
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
    layerwise,
)
from vllm.model_executor.model_loader.reload.meta import to_meta_tensor
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs


@dataclass
class NoInfo(WeightTransferInitInfo):
    """Nothing is agreed on before an update."""


@dataclass
class Folder(WeightTransferUpdateInfo):
    """``path``: a folder of ``*.safetensors``; ``names``: the tensors in them, all of the model."""

    path: str
    names: list[str]


@dataclass
class Meeting(WeightTransferUpdateInfo):
    """Address of the trainer, rank 0 of ``size``, and what it broadcasts.

    Tensors come in buckets: joined in order until they exceed ``bucket_bytes``.
    """

    host: str
    port: int
    size: int
    timeout_s: float
    bucket_bytes: int
    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]


class ReloadingEngine(WeightTransferEngine[NoInfo, Any]):
    """Loads all weights of the model anew, a tensor at a time."""

    init_info_cls = NoInfo

    def init_transfer_engine(self, init_info: NoInfo) -> None:
        """Nothing to prepare."""

    def start_weight_update(self) -> None:
        """Have the layers wait for new weights."""
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Let layers take the weights that they have got."""
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing is held."""


class SafetensorsEngine(ReloadingEngine):
    """Reads a folder of safetensors that trainer and server both see."""

    update_info_cls = Folder

    def receive_weights(self, update_info: Folder) -> None:
        """Load all tensors of the folder.

        Raises:
            ValueError: if the folder holds others than the trainer has named.
        """
        read: set[str] = set()
        for name, tensor in tensors(Path(update_info.path)):
            self.model.load_weights([(name, tensor)])
            read.add(name)
        differ = sorted(read ^ set(update_info.names))
        if differ:
            raise ValueError(f"{update_info.path}: {len(differ)} weights differ, as {differ[0]}")


class GlooEngine(ReloadingEngine):
    """Receives broadcasts of the trainer, in a process group of one update."""

    update_info_cls = Meeting

    def receive_weights(self, update_info: Meeting) -> None:
        """Meet the trainer, and load what it broadcasts.

        Raises:
            RuntimeError: if it does not come, or goes before the end.
        """
        parallel, timeout = self.parallel_config, timedelta(seconds=update_info.timeout_s)
        worker = parallel.data_parallel_index * parallel.world_size + parallel.rank
        address = update_info.host, update_info.port
        store = dist.TCPStore(*address, update_info.size, False, timeout)
        prefixed = dist.PrefixStore("r1lit", store)
        group: Any = dist.ProcessGroupGloo(prefixed, 1 + worker, update_info.size, timeout)
        for bucket in buckets(update_info):
            sizes = [tensor.nbytes for _, tensor in bucket]
            sent = torch.empty(sum(sizes), dtype=torch.uint8)  # as which every dtype can be sent
            group.broadcast([sent], dist.BroadcastOptions()).wait()
            for (name, tensor), own in zip(bucket, sent.split(sizes), strict=True):
                tensor.reshape(-1).view(torch.uint8).copy_(own)
                self.model.load_weights([(name, tensor)])


def buckets(update_info: Meeting) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Yield the names and places of the tensors of each broadcast."""
    held: list[tuple[str, torch.Tensor]] = []
    weights = zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True)
    for name, dtype, shape in weights:
        held.append((name, torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")))
        if sum(tensor.nbytes for _, tensor in held) > update_info.bucket_bytes:
            yield held
            held = []
    if held:
        yield held


def tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of all files of a folder, by name."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} holds no safetensors on this machine")
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118
                yield name, opened.get_tensor(name)


WeightTransferEngineFactory.register_engine("safetensors", SafetensorsEngine)
WeightTransferEngineFactory.register_engine("gloo", GlooEngine)


class Receipts:
    """Reads back a model's tensors, by the names and places that they are sent under.

    vLLM keeps them joined, split or packed for its kernels. So the places' keys are loaded as if
    they were weights: each layer's own loader puts them where it has put the weights. Parameters
    that stand in for the model's take them, which stay as they are.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._read: list[dict[str, Any]] = []

    @torch.no_grad()
    def read(self, shapes: dict[str, list[int]]) -> dict[str, list[dict[str, Any]]]:
        """Return, by name, each place that holds the tensor.

        ``digest`` is of what is held there, ``keys`` of ones in its place, ``count`` its elements.
        """
        layers, found = list(self._model.modules()), {}
        held = [layer._parameters for layer in layers]
        device = next(self._model.parameters()).device
        try:
            for layer in layers:
                layer._parameters = self._stand_ins(layer)
            for name, shape in shapes.items():
                self._read = []
                own = keys(0, torch.Size(shape).numel(), device).reshape(shape)
                self._model.load_weights([(name, own)])
                found[name] = self._read
        finally:
            for layer, parameters in zip(layers, held, strict=True):
                layer._parameters = parameters
        return found

    def _stand_ins(self, layer: Any) -> dict[str, Any]:
        """Return parameters without memory, as they were before vLLM prepared them."""
        before = layerwise.get_layerwise_info(layer).restore_metadata[0]
        stand_ins: dict[str, Any] = {}
        for name, held in layer._parameters.items():
            if held is None:
                stand_ins[name] = None
                continue
            known = restore_layer_refs(to_meta_tensor(before.get(name, held)), layer)
            stand_in = torch.empty(known.shape, dtype=torch.int32, device="meta")
            stand_in.__class__, stand_in.__dict__ = known.__class__, known.__dict__
            reader = self._reader(layer, name, stand_in, held, known.dtype)
            stand_ins[name] = stand_in
            stand_in.weight_loader = reader  # type: ignore[attr-defined]
        return stand_ins

    def _reader(
        self, layer: Any, name: str, meta: torch.Tensor, held: torch.Tensor, dtype: torch.dtype
    ) -> Any:
        """Return a loader that reads where the parameter's own would write."""
        own = layerwise._get_original_loader(meta)  # a reload leaves its own there
        kind = str(dtype).removeprefix("torch.")

        def read(_: torch.Tensor, given: torch.Tensor, *args: Any, **options: Any) -> Any:
            placed = torch.zeros(meta.shape, dtype=given.dtype, device=given.device)
            placed.__class__, placed.__dict__ = meta.__class__, meta.__dict__.copy()
            result = own(placed, given, *args, **options)
            placed = placed.as_subclass(torch.Tensor)
            for values in self._held(layer, name, held, meta.shape):
                one = torch.ones(1, dtype=torch.uint8, device=values.device).expand(values.shape)
                self._read.append(
                    {
                        "digest": str(digest(values, placed)),
                        "keys": str(digest(one, placed)),
                        "count": int((placed != 0).sum()),
                        "dtype": "another" if values.dtype != dtype else kind,
                    }
                )
            return result

        return read

    def _held(
        self, layer: Any, name: str, held: torch.Tensor, shape: torch.Size
    ) -> Iterator[torch.Tensor]:
        """Yield a parameter's stored forms: itself, and the source of a CPU's packed product."""
        if held.shape == shape:
            yield held
        if name == "weight" and hasattr(layer, "cpu_linear"):
            one = torch.eye(shape[1], dtype=held.dtype)  # products with 1 and 0 are exact
            yield layer.cpu_linear(one, held, None).t()


DESCRIBED = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")


class Extension:
    """Has this module imported in vLLM's workers, and describes the model they hold."""

    def r1lit_describe(self) -> dict[str, object]:
        """Return the settings of the model's configuration that must equal the trainer's.

        And ``batch_invariant``: whether vLLM computes a response alike in every batch.
        """
        config = self.model_runner.model_config.hf_text_config  # type: ignore[attr-defined]
        invariant = bool(int(os.environ.get("VLLM_BATCH_INVARIANT", "0")))
        return {key: getattr(config, key, None) for key in DESCRIBED} | {
            "batch_invariant": invariant
        }

    def r1lit_receipt(self, shapes: dict[str, list[int]]) -> dict[str, list[dict[str, Any]]]:
        """Return this worker's receipt of tensors of these shapes; see ``Receipts.read``."""
        runner = self.model_runner  # type: ignore[attr-defined]
        return Receipts(runner.model).read(shapes)
