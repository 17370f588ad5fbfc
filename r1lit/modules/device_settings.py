"""Settings of the process for the device of a run."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

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
