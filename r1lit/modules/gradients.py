"""The norm of a model's gradients, and clipping them to one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def each_gradient(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield the gradients of an optimiser's parameters."""
    for group in optimizer.param_groups:
        yield from (p.grad for p in group["params"] if p.grad is not None)


def gradient_norm(optimizer: torch.optim.Optimizer) -> Tensor:
    """Return the 2-norm of all gradients together; of sharded ones (DTensor), over all ranks."""
    norms = [_whole(torch.linalg.vector_norm(g)) for g in each_gradient(optimizer)]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.tensor(0.0)


@torch.no_grad()
def clip_gradients(optimizer: torch.optim.Optimizer, max_norm: float, norm: Tensor) -> None:
    """Scale all gradients, of this norm together, to ``max_norm`` at most, as PyTorch does."""
    scale = max_norm / (norm + 1e-6)
    if scale < 1.0:
        for gradient in each_gradient(optimizer):
            gradient.mul_(scale.to(gradient.device))


def _whole(norm: Tensor) -> Tensor:
    """Return the norm of a sharded gradient over all of its shards."""
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
