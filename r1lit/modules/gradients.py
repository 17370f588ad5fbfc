"""The norm of a model's gradients, clipping them to one, and refusing what is no number."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate


def each_gradient(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield the gradients of an optimiser's parameters."""
    for group in optimizer.param_groups:
        yield from (p.grad for p in group["params"] if p.grad is not None)


def gradient_norm(optimizer: torch.optim.Optimizer) -> Tensor:
    """Return the 2-norm of all gradients together; of sharded ones (DTensor), over all ranks.

    Sharded ones take one collective, however many there are (one for each of their meshes).
    """
    norms: list[Tensor] = []
    of_shards: dict[tuple[DeviceMesh, tuple[bool, ...]], list[Tensor]] = defaultdict(list)
    for gradient in each_gradient(optimizer):
        if isinstance(gradient, DTensor):
            assert not any(p.is_partial() for p in gradient.placements), gradient.placements
            is_whole = tuple(p.is_replicate() for p in gradient.placements)
            local = torch.linalg.vector_norm(gradient.to_local())
            of_shards[gradient.device_mesh, is_whole].append(local)
        else:
            norms.append(torch.linalg.vector_norm(gradient))
    for (mesh, is_whole), local_norms in of_shards.items():
        square = torch.linalg.vector_norm(torch.stack(local_norms)).square()
        placements = [Replicate() if whole else Partial() for whole in is_whole]
        norms.append(DTensor.from_local(square, mesh, placements).full_tensor().sqrt())
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.tensor(0.0)


@torch.no_grad()
def clip_gradients(optimizer: torch.optim.Optimizer, max_norm: float, norm: Tensor) -> None:
    """Scale all gradients, of this norm together, to ``max_norm`` at most, as PyTorch does."""
    scale = max_norm / (norm + 1e-6)
    if scale < 1.0:
        for gradient in each_gradient(optimizer):
            gradient.mul_(scale.to(gradient.device))


def refuse_non_finite(module: Any, what: str, value: float) -> None:
    """Raise a ValueError that says where to resume from, if a number of an update is not finite."""
    if math.isfinite(value):
        return
    saved = getattr(module.trainer.checkpoint_callback, "last_model_path", "")
    resume = f"resume from {saved}, which is intact" if saved else "no checkpoint was written"
    raise ValueError(
        f"the {what} is {value} at iteration {int(module.iteration)}, update"
        f" {module.trainer.global_step}, which was not made; {resume}. A lower learning rate or"
        " a look at the rewards may help"
    )
