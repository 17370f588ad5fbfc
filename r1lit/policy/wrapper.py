"""What policies and reward models share: the Hugging Face model that they wrap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import PretrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer

from r1lit.policy.adapter import Adapter
from r1lit.policy.shards import StoredWeight, whole


class ModelWrapper(nn.Module):
    """Wraps a Hugging Face model, ``model``.

    All that is computed with its weights is computed in ``forward``, so that DDP, FSDP2, LoRA and
    hooks may wrap this module and see every use of them.

    ``dropout``: whether training mode has any; without, all that differs between training and
    evaluation mode stays as in evaluation. ``adapter``: what is trained, where not the whole is.
    ``unread``: what its weights are to be read from once it is sharded.
    """

    adapter: Adapter | None = None
    unread: Mapping[str, StoredWeight] | None = None

    def __init__(self, model: Any, dropout: bool = True) -> None:
        super().__init__()
        self.model = model
        self.dropout = dropout

    def train(self, mode: bool = True) -> Self:
        """Switch between training and evaluation mode; see ``dropout``."""
        super().train(mode)
        if mode and not self.dropout:
            self.model.eval()
            for module in self.model.modules():
                if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing:
                    _only_checkpoint(module)
        return self

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
            yield name, whole(weight)

    def save_pretrained(
        self, directory: str | Path, state_dict: dict[str, Tensor] | None = None
    ) -> None:
        """Write a Hugging Face directory, or the adapter alone as a PEFT folder.

        ``state_dict``: what ``gather`` returned, where the model is sharded.
        """
        if self.adapter is not None:
            self.adapter.save_pretrained(directory, state_dict)
        else:
            self.model.save_pretrained(directory, state_dict=state_dict)

    def gather(self) -> dict[str, Tensor]:
        """Return what is written of a sharded model, in the memory of rank 0's CPU.

        All ranks call it; the others get nothing, or an adapter alone.
        """
        if self.adapter is not None:
            return self.adapter.gather()
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        gathered: Any = get_model_state_dict(self.model, options=options)
        return gathered

    def _body(self) -> nn.Module:
        return self.model.base_model


def _only_checkpoint(layer: Any) -> None:
    """Let a layer be in training mode, which makes it checkpoint, but not while it computes."""
    layer.training = True
    checkpoint = layer._gradient_checkpointing_func
    if getattr(checkpoint, "only_checkpoints", False):
        return

    def checkpoint_in_evaluation(compute: Callable[..., Any], *args: Any) -> Any:
        def in_evaluation(*args: Any) -> Any:
            training, layer.training = layer.training, False
            try:
                return compute(*args)
            finally:
                layer.training = training

        return checkpoint(in_evaluation, *args)

    checkpoint_in_evaluation.only_checkpoints = True  # type: ignore[attr-defined]
    layer._gradient_checkpointing_func = checkpoint_in_evaluation
