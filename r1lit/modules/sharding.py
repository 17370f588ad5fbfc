"""Weights, gradients and optimiser state sharded over ranks: PyTorch's ``fully_shard`` (FSDP2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from r1lit.policy import PolicyOutput, Responses, evaluating
from r1lit.policy.loading import read_shares
from r1lit.policy.policy import ModelWrapper
from r1lit.policy.reference import AdapterReference
from r1lit.protocols import TrainsPolicy


def is_sharding(strategy: Strategy) -> bool:
    """Return whether a strategy shards weights over ranks."""
    return isinstance(strategy, ModelParallelStrategy)


def check_strategy(strategy: Strategy) -> None:
    """Raise a ValueError for a strategy that shards otherwise than over data-parallel ranks."""
    if isinstance(strategy, FSDPStrategy):
        raise ValueError(
            "strategy: FSDPStrategy (FSDP1) cannot clip gradients; shard with"
            " ModelParallelStrategy (configs/hardware/fsdp2.yaml)"
        )
    if not isinstance(strategy, ModelParallelStrategy):
        return
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
    when it is computed and freed after it. Weights that were left unread are read then.

    Raises:
        ValueError: if weights of several dtypes are trained together, or see ``read_shares``.
    """
    if not is_sharding(module.trainer.strategy):
        return
    assert module.device_mesh is not None
    mesh = module.device_mesh["data_parallel"]
    for model in module.children():
        if not isinstance(model, ModelWrapper):
            continue
        dtypes = {weight.dtype for weight in model.parameters() if weight.requires_grad}
        if len(dtypes) > 1:
            raise ValueError(
                f"adapter: weights in {' and '.join(sorted(map(str, dtypes)))} are trained, which"
                " cannot be sharded together; dtype: float32 makes all of them float32"
            )
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        root = fully_shard(model, mesh=mesh, reshard_after_forward=_frees_all(model))
        read_shares(model, module.trainer.strategy.root_device)
        if model.adapter is not None:
            with torch.no_grad(), evaluating(model):
                idle_forward(model)  # in the first pass PyTorch looks which weights are trained
        root.reshard()  # optimisers are given shares
    for model in module.children():
        if isinstance(model, AdapterReference):
            model.refresh()  # shares, which a checkpoint of shares has room for


def check_optimizers(module: LightningModule) -> None:
    """Check that the strategy averages the gradients of every update over ranks.

    Raises:
        ValueError: if there are several optimisers, whose updates have gradients of their own,
            under DDP that waits for those of all weights; or if weights are trained that are not
            sharded, though the strategy shards.
    """
    model = module.trainer.strategy.model
    waits = isinstance(model, DistributedDataParallel) and not model.find_unused_parameters
    if waits and len(module.trainer.optimizers) > 1:
        raise ValueError(
            "strategy: ddp expects gradients of all weights in each update, and this model has"
            " several optimisers; use ddp_find_unused_parameters_true"
        )
    if not is_sharding(module.trainer.strategy):
        return
    for optimizer in module.trainer.optimizers:
        weights = (weight for group in optimizer.param_groups for weight in group["params"])
        if not all(isinstance(weight, DTensor) for weight in weights):
            raise ValueError(
                f"strategy: {type(module).__name__} trains weights that are not sharded; it must"
                " make its models in _copy_policy, each a ModelWrapper of its own"
            )


def _frees_all(model: ModelWrapper) -> bool | None:
    """Return whether what is outside of the layers is freed after a forward pass too.

    An adapter's weights are changed between passes, and are gathered again for each. None leaves it
    to PyTorch, which keeps what a backward pass begins with.
    """
    return None if model.adapter is None else True


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
            frees = module is not model or bool(_frees_all(root))
            module.set_reshard_after_forward(frees, recurse=False)


def reducing_gradients(module: LightningModule, last: bool) -> AbstractContextManager[None]:
    """Reduce gradients over ranks in the last backward pass of an update, and add them up until.

    Those of sharded weights in every one, if ``module.reduce_every_pass``.
    """
    if is_sharding(module.trainer.strategy):
        for model in module.children():
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(last or bool(module.reduce_every_pass))
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


def with_missing_passes(
    module: TrainsPolicy, losses: Sequence[Callable[[], Tensor]], optimizer: torch.optim.Optimizer
) -> list[Callable[[], Tensor]]:
    """Return an update's losses, with an ``idle_loss`` for each pass that this rank misses."""
    missing = missing_passes(len(losses), module.trainer.strategy)
    return [*losses, *[partial(idle_loss, module, optimizer)] * missing]


def idle_forwards(model: Any, num_passes: int, strategy: Strategy) -> None:
    """Make the forward passes that this rank misses."""
    for _ in range(missing_passes(num_passes, strategy)):
        idle_forward(model)


def idle_loss(module: TrainsPolicy, optimizer: torch.optim.Optimizer) -> Tensor:
    """Return 0 after the forward passes of a loss, in its order, over next to nothing.

    The policy's loss computes with the reference first. That of another model, a critic's, with no
    model but the one whose weights ``optimizer`` has.
    """
    own = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    sharded: list[Any] = [model for model in module.children() if isinstance(model, FSDPModule)]
    model = next(m for m in sharded if any(id(weight) in own for weight in m.parameters()))
    if model is module.policy and module.reference_in_loss:
        with torch.no_grad():
            idle_forward(module.reference)
    return 0.0 * idle_forward(model).sum()
