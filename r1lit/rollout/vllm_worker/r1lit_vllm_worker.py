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
from r1lit_vllm_receipts import AdapterReceipts, Place, Receipts
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
)


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

    def r1lit_receipt(self, shapes: dict[str, list[int]]) -> dict[str, list[Place]]:
        """Return this worker's receipt of tensors of these shapes; see ``Receipts.read``."""
        runner = self.model_runner  # type: ignore[attr-defined]
        return Receipts(runner.model).read(shapes)

    def r1lit_adapter_receipt(
        self, shapes: dict[str, list[int]], rank: int
    ) -> dict[str, list[Place]]:
        """Return this worker's receipt of its newest adapter; see ``AdapterReceipts.read``."""
        runner = self.model_runner  # type: ignore[attr-defined]
        if not hasattr(self, "_r1lit_adapters"):
            self._r1lit_adapters = AdapterReceipts(runner.lora_manager._adapter_manager)
        return self._r1lit_adapters.read(shapes, rank)
