"""AdamW with its moments, and on a CPU the gradients too, in a file and not in memory.

N numbers of a parameter   n numbers of a slice of it
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

MOMENTS = ("exp_avg", "exp_avg_sq")
AT_ONCE = 1 << 22  # numbers of a slice


class OffloadedAdamW(torch.optim.AdamW):
    """``torch.optim.AdamW`` with its two moments in a file, and the gradients if asked.

    AdamW's weights, gradients and moments in float32 are 16 bytes a parameter. Here 8 of them, or
    12, are on a disk and pass through memory a slice at a time, as in ZeRO-Infinity (Rajbhandari et
    al. 2021); what the operating system keeps of a file in memory it gives to whoever asks for
    some. Updates and checkpoints are those of AdamW with ``fused``: a run may resume from one with
    the other.

    Args:
        params: as for AdamW, like all that is not below.
        folder: where the file is: on a disk, not in a file system in memory, as ``/tmp`` may be.
            The file has no name and goes with the process; each rank has its own.
        gradients: the gradients too, of parameters on a CPU, from the first ``zero_grad`` on.

    Raises:
        ValueError: if there is no such folder, or no room in it, or a gradient cannot be there.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        folder: str = ".",
        gradients: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, fused=True)
        self._folder = folder
        self._moments: dict[Tensor, list[_Mapped]] = {}
        self._gradients: dict[Tensor, _Gradient] = {}
        trained = [parameter for parameter in self._parameters() if parameter.requires_grad]
        self._moments_in_file(trained)
        if gradients:
            self._gradients_in_file(trained)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; return the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if self._has_gradient(parameter):
                    self._update(parameter, group)
                    self._release_gradient(parameter)
        return loss

    def each_gradient(self) -> Iterator[Tensor]:
        """Yield the gradients; one in the file leaves memory when the next is asked for."""
        for parameter in self._parameters():
            if self._has_gradient(parameter):
                assert parameter.grad is not None
                yield parameter.grad
                self._release_gradient(parameter)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; those in the file stay there as zeros."""
        super().zero_grad(set_to_none)
        for parameter, gradient in self._gradients.items():
            parameter.grad = gradient.zeros().view_as(parameter)

    def state_dict(self) -> dict[str, Any]:
        """Return AdamW's; the moments in it are the file's own, not copies."""
        saved = super().state_dict()
        for index, parameter in enumerate(self._parameters()):
            if index in saved["state"]:
                moments = (moment.values_N.view_as(parameter) for moment in self._of(parameter))
                saved["state"][index] = {
                    **saved["state"][index],
                    **dict(zip(MOMENTS, moments, strict=True)),
                }
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take AdamW's state or one's own; the moments are copied into the file."""
        states = state_dict["state"]
        steps = {index: {"step": state["step"]} for index, state in states.items()}
        super().load_state_dict({**state_dict, "state": steps})
        for index, parameter in enumerate(self._parameters()):
            if index in states:
                for name, moment in zip(MOMENTS, self._of(parameter), strict=True):
                    saved_n = states[index][name].reshape(-1).split(AT_ONCE)
                    for moment_n, value_n in zip(moment.slices(), saved_n, strict=True):
                        moment_n.copy_(value_n)

    def _has_gradient(self, parameter: Tensor) -> bool:
        offloaded = self._gradients.get(parameter)
        return parameter.grad is not None and (offloaded is None or offloaded.has_come())

    def _parameters(self) -> Iterator[Tensor]:
        return (parameter for group in self.param_groups for parameter in group["params"])

    def _of(self, parameter: Tensor) -> list[_Mapped]:
        """Return a parameter's moments."""
        if parameter not in self._moments:  # of a group that came later, or frozen until now
            self._moments_in_file([parameter])
        return self._moments[parameter]

    def _moments_in_file(self, parameters: Sequence[Tensor]) -> None:
        mapped = iter(_map_like([p for p in parameters for _ in MOMENTS], self._folder))
        for parameter in parameters:
            self._moments[parameter] = [next(mapped) for _ in MOMENTS]

    def _gradients_in_file(self, parameters: Sequence[Tensor]) -> None:
        for parameter in parameters:
            if parameter.device.type != "cpu":
                raise ValueError(
                    f"gradients: true, but a parameter is on {parameter.device}, where its gradient"
                    " must be too; only those of a CPU can be in a file"
                )
        for parameter, mapped in zip(parameters, _map_like(parameters, self._folder), strict=True):
            self._gradients[parameter] = _Gradient(mapped)
            parameter.register_post_accumulate_grad_hook(self._release_gradient)

    def _release_gradient(self, parameter: Tensor) -> None:
        if parameter in self._gradients:
            self._gradients[parameter].release()

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Update a parameter slice by slice."""
        assert parameter.grad is not None
        step = self.state[parameter].setdefault("step", torch.tensor(0.0))
        beta1, beta2 = group["betas"]
        for value_n, grad_n, *moments_n in zip(
            parameter.view(-1).split(AT_ONCE),
            parameter.grad.reshape(-1).split(AT_ONCE),
            *(moment.slices() for moment in self._of(parameter)),
            strict=True,
        ):
            # on a CPU these are the file's, elsewhere copies
            first_n, second_n = here = [moment_n.to(value_n.device) for moment_n in moments_n]
            adamw(
                [value_n],
                [grad_n],
                [first_n],
                [second_n],
                [],
                [step.to(value_n.device, copy=True)],
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            for moment_n, new_n in zip(moments_n, here, strict=True):
                if new_n is not moment_n:
                    moment_n.copy_(new_n)
        step += 1


class _Mapped:
    """As many numbers as a parameter has, in a file."""

    def __init__(self, memory: mmap.mmap, start: int, like: Tensor) -> None:
        self._memory = memory
        self._start = start
        self.values_N = torch.frombuffer(memory, dtype=like.dtype, count=like.numel(), offset=start)

    def slices(self) -> Iterator[Tensor]:
        """Yield slices, views of the file; each is out of memory when the next is asked for."""
        start = 0
        for values_n in self.values_N.split(AT_ONCE):
            yield values_n
            self.release(start, values_n.nbytes)
            start += values_n.nbytes

    def release(self, start: int = 0, size: int | None = None) -> None:
        """Let bytes leave this process's memory, all of them unless told; they stay in the file."""
        if hasattr(mmap, "MADV_DONTNEED"):  # Windows has none
            size = self.values_N.nbytes if size is None else size
            self._memory.madvise(mmap.MADV_DONTNEED, self._start + start, size)


class _Gradient:
    """A gradient in a file, which knows whether one has come since it was zero."""

    def __init__(self, mapped: _Mapped) -> None:
        self._mapped = mapped
        self._version = 0

    def zeros(self) -> Tensor:
        """Return it (N), set to zero."""
        for values_n in self._mapped.slices():
            values_n.zero_()
        self._version = self._mapped.values_N._version
        return self._mapped.values_N

    def has_come(self) -> bool:
        """Return whether anything was written to it since then."""
        return self._mapped.values_N._version != self._version

    def release(self) -> None:
        """Let it leave this process's memory."""
        self._mapped.release()


def each_gradient(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield the gradients of an optimiser's parameters, in turn where they are in a file."""
    if isinstance(optimizer, OffloadedAdamW):
        yield from optimizer.each_gradient()
        return
    for group in optimizer.param_groups:
        yield from (p.grad for p in group["params"] if p.grad is not None)


def gradient_norm(optimizer: torch.optim.Optimizer) -> Tensor:
    """Return the 2-norm of all gradients together."""
    norms = [torch.linalg.vector_norm(gradient) for gradient in each_gradient(optimizer)]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.tensor(0.0)


@torch.no_grad()
def clip_gradients(optimizer: torch.optim.Optimizer, max_norm: float, norm: Tensor) -> None:
    """Scale all gradients, of this norm together, to ``max_norm``, as PyTorch's clipping does."""
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in each_gradient(optimizer):
        gradient.mul_(scale.to(gradient.device))


def _map_like(tensors: Sequence[Tensor], folder: str) -> list[_Mapped]:
    """Return room for each of the tensors, zeros, in one new file without a name.

    Raises:
        ValueError: if there is no such folder, or no room in it.
    """
    page = mmap.ALLOCATIONGRANULARITY
    sizes = [-(-tensor.nbytes // page) * page for tensor in tensors]
    if not Path(folder).is_dir():
        raise ValueError(f"folder: {folder!r} is none; the optimiser needs one, on a disk")
    needed, free = sum(sizes), shutil.disk_usage(folder).free
    if free < needed:
        raise ValueError(
            f"folder: {folder!r} has {free / 1e9:.1f} GB left and the optimiser needs"
            f" {needed / 1e9:.1f}; name another"
        )
    if not needed:
        return []
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, needed)  # a disk may fill up later
        else:
            file.truncate(needed)
        memory = mmap.mmap(file.fileno(), needed)
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [_Mapped(memory, start, like) for start, like in zip(starts, tensors, strict=True)]
