"""The precision and the settings of the process for the device of a run."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from r1lit.device import backend


class DeviceSettings(Callback):
    """Settings of this operating-system process for the run's device: ``Backend.running``.

    Entered at setup, and left when the run ends or fails.

    After a failure it tears the module down too, which Lightning does only after success.
    Modules add it (``configure_callbacks``), so that it is there without the command line too. A
    callback, since a module has no hook for failures.
    """

    def __init__(self) -> None:
        self._entered = ExitStack()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set the process up."""
        self._entered.enter_context(backend(trainer.strategy.root_device).running())

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Restore the process's own settings."""
        self._entered.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Restore the settings after a failure or an interruption too, and tear the module down."""
        self._entered.close()
        pl_module.teardown(trainer.state.fn or "fit")


def check_precision(precision: str, device: torch.device) -> None:
    """Warn of ``bf16-mixed`` on a device that has no instructions for bfloat16.

    These are Intel's laptops, AMD's before Zen 4, and GPUs below compute capability 8.0.

    Raises:
        ValueError: if the precision is none that updates and rollouts have.
    """
    if precision not in ("32-true", "bf16-mixed"):
        instead = "for weights in bfloat16 keep 32-true and set the model's dtype: bfloat16"
        if precision == "16-mixed":
            instead = (
                "float16 needs scaled losses, which updates do not have; a GPU without bfloat16"
                " (compute capability below 8.0) trains in 32-true"
            )
        raise ValueError(f"precision: {precision!r} is not 32-true or bf16-mixed; {instead}")
    if precision == "bf16-mixed" and not backend(device).has_fast_bfloat16:
        which = "CPU" if device.type == "cpu" else "GPU"
        rank_zero_warn(
            f"precision: bf16-mixed is slow on this {which}, which has no instructions for"
            " bfloat16; --trainer.precision 32-true is faster"
        )
