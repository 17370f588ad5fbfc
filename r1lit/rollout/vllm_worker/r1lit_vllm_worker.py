"""Loads new weights into a running vLLM; imported by vLLM's worker processes alone.

vLLM has a Python of its own, without r1lit: this folder goes on its PYTHONPATH, and

    --worker-extension-cls r1lit_vllm_worker.Extension
    --weight-transfer-config '{"backend": "safetensors"}'

has the module imported before the transfer engine is made by its name. Besides vLLM it needs only
torch and safetensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
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
    """A folder needs no meeting of trainer and server."""


@dataclass
class Folder(WeightTransferUpdateInfo):
    """``path``: a folder of ``*.safetensors``; ``names``: the tensors in them, all of the model."""

    path: str
    names: list[str]


class SafetensorsEngine(WeightTransferEngine[NoInfo, Folder]):
    """Reads a folder of safetensors that trainer and server both see, a tensor at a time."""

    init_info_cls = NoInfo
    update_info_cls = Folder

    def init_transfer_engine(self, init_info: NoInfo) -> None:
        """Nothing to prepare."""

    def start_weight_update(self) -> None:
        """Have the layers wait for new weights."""
        initialize_layerwise_reload(self.model)

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

    def finish_weight_update(self) -> None:
        """Let layers take the weights that they have got."""
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing is held."""


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


DESCRIBED = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")


class Extension:
    """Has this module imported in vLLM's workers, and says which model they hold."""

    def r1lit_describe(self) -> dict[str, object]:
        """Return what of the model's configuration must be as the trainer's."""
        config = self.model_runner.model_config.hf_text_config  # type: ignore[attr-defined]
        return {key: getattr(config, key, None) for key in DESCRIBED}
