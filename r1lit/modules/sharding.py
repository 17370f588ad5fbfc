"""Weights, gradients and optimiser state sharded over ranks: PyTorch's ``fully_shard`` (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from r1lit.policy import PolicyOutput, Responses, evaluating
from r1lit.policy.wrapper import ModelWrapper


def is_sharding(strategy: Strategy) -> bool:
    """Return whether a strategy shards weights over ranks."""
    return isinstance(strategy, ModelParallelStrategy)


def check_strategy(strategy: Strategy, has_adapter: bool) -> None:
    """Raise a ValueError for a strategy that shards otherwise than over data-parallel ranks."""
    if isinstance(strategy, FSDPStrategy):
        raise ValueError(
            "strategy: FSDPStrategy (FSDP1) cannot clip gradients; shard with"
            " ModelParallelStrategy (configs/hardware/fsdp2.yaml)"
        )
    if not isinstance(strategy, ModelParallelStrategy):
        return
    if has_adapter:
        raise ValueError("adapter: weights beside it are not sharded yet; use strategy: ddp")
    mesh = strategy.device_mesh
    if mesh["tensor_parallel"].size() != 1:
        raise ValueError(
            f"trainer.strategy: data_parallel_size {mesh['data_parallel'].size()} and"
            f" tensor_parallel_size {mesh['tensor_parallel'].size()} over {mesh.size()} processes;"
            f" weights are sharded over data-parallel ranks alone: {mesh.size()} and 1"
        )


def shard_models(module: LightningModule) -> None:
    """Shard each policy and reward model that a module holds, where its strategy shards.

    Layer by layer, and what is outside of the layers together: in ``forward`` a layer is gathered
    when it is computed and freed after it.
    """
    if not is_sharding(module.trainer.strategy):
        return
    assert module.device_mesh is not None
    mesh = module.device_mesh["data_parallel"]
    for model in module.children():
        if isinstance(model, ModelWrapper):
            for layer in model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)


def idle_forward(model: Any) -> Tensor:
    """Make the smallest forward pass: how a rank takes part in one that others make.

    Returns:
        A number a token, with a gradient to the weights.
    """
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    inputs = Responses(prompts=[[0]], response_BT=token, mask_BT=token == 0)
    output = model(inputs)
    log_probs = output.logp_K if isinstance(output, PolicyOutput) else output
    assert log_probs is not None
    return log_probs


@contextmanager
def whole_weights(model: Any) -> Iterator[None]:
    """Hold all weights of a sharded model on every rank for the while, each where it belongs.

    What is computed with them communicates with no other rank, so ranks may do unlike work. All of
    them enter together. A model that is not sharded is left as it is.
    """
    if not isinstance(model, FSDPModule):
        yield
        return
    root: Any = model
    shards = [module for module in root.modules() if isinstance(module, FSDPModule)]
    model.set_reshard_after_forward(False)
    with torch.no_grad(), evaluating(root):
        idle_forward(root)  # which gathers every layer
    try:
        yield
    finally:
        for module in shards:
            module.reshard()
            module.set_reshard_after_forward(module is not model, recurse=False)


def reducing_gradients(module: LightningModule, last: bool) -> AbstractContextManager[None]:
    """Reduce gradients over ranks in the last backward pass of an update, and add them up until.

    Those of sharded weights are reduced in every one: added up whole they would take as much on
    each rank as the model does on one.
    """
    wrapped = module.trainer.strategy.model
    if isinstance(wrapped, DistributedDataParallel) and not last:
        return wrapped.no_sync()
    return nullcontext()


def missing_passes(num_passes: int, strategy: Strategy) -> int:
    """Return how many forward passes this rank makes less than another, where all go together."""
    if not is_sharding(strategy):
        return 0
    count = torch.tensor(num_passes, device=strategy.root_device)
    return int(strategy.reduce(count, reduce_op="max")) - num_passes


def idle_forwards(model: Any, num_passes: int, strategy: Strategy) -> None:
    """Make the forward passes that this rank misses."""
    for _ in range(missing_passes(num_passes, strategy)):
        idle_forward(model)


def idle_loss(module: Any) -> Tensor:
    """Return 0 after the forward passes of a loss, in its order, over next to nothing."""
    if hasattr(module, "reference"):
        with torch.no_grad():
            idle_forward(module.reference)
    return 0.0 * idle_forward(module.policy).sum()
