"""States of optimisers that move between host and device."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def move_states(optimizers: Iterable[torch.optim.Optimizer], device: torch.device) -> None:
    """Move the tensors that optimisers keep for parameters; counts of steps stay."""
    for state in (state for optimizer in optimizers for state in optimizer.state.values()):
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim:
                state[name] = value.to(device)
