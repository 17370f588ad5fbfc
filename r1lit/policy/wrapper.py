"""What policies and reward models share: the Hugging Face model that they wrap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PretrainedConfig

from r1lit.policy.adapter import Adapter


class ModelWrapper(nn.Module):
    """Wraps a Hugging Face model, ``model``.

    All that is computed with its weights is computed in ``forward``, so that DDP, FSDP2, LoRA and
    hooks may wrap this module and see every use of them. ``adapter``: what is trained, where not
    the whole is.
    """

    adapter: Adapter | None = None

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def config(self) -> PretrainedConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.model.dtype

    @property
    def layers(self) -> nn.ModuleList:
        """The layers of the model without its head.

        Raises:
            ValueError: if it has not one list of them.
        """
        body = self._body()
        lists = [child for child in body.children() if isinstance(child, nn.ModuleList)]
        if len(lists) != 1:
            raise ValueError(f"{type(body).__name__} has {len(lists)} lists of layers, not one")
        return lists[0]

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield weights and buffers by name, tied ones under each of their names.

        Of a sharded model one whole weight at a time exists; all ranks read them together. An
        adapter is merged into them, one layer at a time.
        """
        if self.adapter is not None:
            yield from self.adapter.merged_weights()
            return
        for name, weight in self.model.state_dict().items():
            yield name, weight.full_tensor() if isinstance(weight, DTensor) else weight

    def save_pretrained(
        self, directory: str | Path, state_dict: dict[str, Tensor] | None = None
    ) -> None:
        """Write a Hugging Face directory, or the adapter alone as a PEFT folder.

        ``state_dict``: the weights, where this process holds but a share of them.
        """
        if self.adapter is not None:
            self.adapter.save_pretrained(directory)
        else:
            self.model.save_pretrained(directory, state_dict=state_dict)

    def _body(self) -> nn.Module:
        return self.model.base_model
