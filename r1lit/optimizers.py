"""AdamW with its moments, and on a CPU the gradients too, in a file and not in memory.

N numbers of a parameter   n numbers of a slice of it
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from r1lit.on_disk import AT_ONCE, Mapped, MappedGradient, map_like

MOMENTS = ("exp_avg", "exp_avg_sq")


class OffloadedAdamW(torch.optim.AdamW):
    """``torch.optim.AdamW`` with its two moments in a file, and the gradients if asked.

    AdamW's weights, gradients and moments in float32 are 16 bytes a parameter. Here 8 of them, or
    12, are on a disk as in ZeRO-Infinity (Rajbhandari et al. 2021); moments pass through memory a
    slice at a time, gradients a parameter at a time. What the operating system keeps of a file in
    memory it gives to whoever asks for some. Updates and checkpoints are those of AdamW with
    ``fused``: a run may resume from one with the other.

    Args:
        params: as for AdamW, like all that is not below.
        folder: where the file is: on a disk, not in a file system in memory, as ``/tmp`` may be.
            The file has no name and goes with the process; each rank has its own.
        gradients: the gradients too, of parameters on a CPU, from the first ``zero_grad`` on.

    Raises:
        ValueError: if there is no such folder, or no room in it, or a parameter cannot be updated
            so: one that is not contiguous, or for ``gradients`` not on a CPU.
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
        self._step_supports_amp_scaling = False  # a GradScaler is to unscale before it steps
        self._folder = folder
        self._moments: dict[Tensor, list[Mapped]] = {}
        self._gradients: dict[Tensor, MappedGradient] = {}
        self._moments_in_file()
        if gradients:
            self._gradients_in_file()

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
        """Take AdamW's state or one's own; the moments are copied into the file.

        Raises:
            ValueError: if it is that of another model, or of a variant of AdamW.
        """
        for group in state_dict["param_groups"]:
            for variant in ("amsgrad", "maximize"):
                if group.get(variant):
                    raise ValueError(f"{variant}: true in the saved optimiser; this one has none")
        states = {index: state for index, state in state_dict["state"].items() if state}
        steps = {index: {"step": state["step"]} for index, state in states.items()}
        super().load_state_dict({**state_dict, "state": steps})
        for index, parameter in enumerate(self._parameters()):
            if index in states:
                for name, moment in zip(MOMENTS, self._of(parameter), strict=True):
                    moment.take(states[index][name], parameter.shape)
            else:
                for moment in self._moments.get(parameter, []):
                    moment.zero_()

    def _parameters(self) -> Iterator[Tensor]:
        return (parameter for group in self.param_groups for parameter in group["params"])

    def _trained(self) -> list[Tensor]:
        """Return the parameters that are or were trained."""
        return [
            p
            for p in self._parameters()
            if p.numel() and (p.requires_grad or p.grad is not None or p in self.state)
        ]

    def _has_gradient(self, parameter: Tensor) -> bool:
        if parameter.grad is None or not parameter.numel():
            return False
        offloaded = self._gradients.get(parameter)
        return offloaded is None or offloaded.has_come(parameter.grad)

    def _of(self, parameter: Tensor) -> list[Mapped]:
        """Return a parameter's moments."""
        if parameter not in self._moments:  # of a group that came later, or frozen before
            self._moments_in_file()
        return self._moments[parameter]

    def _moments_in_file(self) -> None:
        """Give moments, zeros, to all parameters that are trained and have none."""
        new = [parameter for parameter in self._trained() if parameter not in self._moments]
        for parameter in new:
            if not parameter.is_contiguous():
                raise ValueError(
                    f"params: one of shape {tuple(parameter.shape)} is not contiguous;"
                    " torch.optim.AdamW takes it"
                )
        mapped = iter(map_like([parameter for parameter in new for _ in MOMENTS], self._folder))
        for parameter in new:
            self._moments[parameter] = [next(mapped) for _ in MOMENTS]

    def _gradients_in_file(self) -> None:
        trained = self._trained()
        for parameter in trained:
            if parameter.device.type != "cpu":
                raise ValueError(
                    f"gradients: true, but a parameter is on {parameter.device}, where its gradient"
                    " must be too; only those of a CPU can be in a file"
                )
        for parameter, mapped in zip(trained, map_like(trained, self._folder), strict=True):
            gradient = self._gradients[parameter] = MappedGradient(mapped)
            # a parameter may outlive this optimiser
            release = weakref.WeakMethod(gradient.release)
            parameter.register_post_accumulate_grad_hook(
                lambda _, release=release: (here := release()) and here()
            )

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
    """Scale all gradients, of this norm together, to ``max_norm`` at most, as PyTorch does."""
    scale = max_norm / (norm + 1e-6)
    if scale < 1.0:
        for gradient in each_gradient(optimizer):
            gradient.mul_(scale.to(gradient.device))
