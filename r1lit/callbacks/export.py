"""The policy as a Hugging Face directory, which is what stages hand over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.strategies import ModelParallelStrategy
from safetensors import SafetensorError

from r1lit.callbacks.stage import finished_iterations, folder_of
from r1lit.files import beside, naming, remove, replace_path


class ExportHuggingFace(Callback):
    """Writes policy and tokenizer with ``save_pretrained`` to ``dirpath``, from rank 0.

    A module's critic goes to ``critic`` beside it.

    A sharded policy (FSDP2) is gathered into the memory of rank 0's CPU.

    At the end of the fit, and after every n-th iteration if set; ``dirpath`` always holds the
    newest export, complete: it is written to another folder and renamed.

    Args:
        dirpath: Where; ``policy`` in the run folder if left out.
        every_n_iterations: How often to export; null: at the end only.
    """

    dirpath: Path

    def __init__(self, dirpath: str | None = None, every_n_iterations: int | None = None) -> None:
        if every_n_iterations is not None and every_n_iterations < 1:
            raise ValueError(f"every_n_iterations={every_n_iterations} must be at least 1, or null")
        self._given = None if dirpath is None else Path(dirpath)
        self.every_n_iterations = every_n_iterations

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder."""
        self.dirpath = folder_of(self._given, trainer, self, "policy")

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Export after every n-th iteration."""
        n = self.every_n_iterations
        if n is not None and finished_iterations(trainer, pl_module) % n == 0:
            self.export(trainer, pl_module)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Export the final policy."""
        self.export(trainer, pl_module)

    def export(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write ``pl_module.policy`` and ``pl_module.tokenizer`` to ``dirpath``.

        A module that has something to settle before does so in ``before_export``.
        """
        settle = getattr(pl_module, "before_export", None)
        if settle is not None:
            settle()
        self._write(trainer, pl_module, "policy", self.dirpath)
        if hasattr(pl_module, "critic"):
            self._write(trainer, pl_module, "critic", self.dirpath.with_name("critic"))
        trainer.strategy.barrier("ExportHuggingFace")

    def _write(self, trainer: pl.Trainer, module: Any, name: str, folder: Path) -> None:
        model = getattr(module, name)
        weights = None
        if isinstance(trainer.strategy, ModelParallelStrategy):
            weights = model.gather()
        if not trainer.is_global_zero:
            return
        temporary = beside(folder)
        remove(temporary)
        with naming(folder):
            temporary.mkdir(parents=True)
        try:
            model.save_pretrained(temporary, weights)
            module.tokenizer.save_pretrained(temporary)
        except (OSError, SafetensorError) as error:
            remove(temporary)
            raise ValueError(
                f"dirpath: the {name} cannot be written to {folder} ({error}); what was there is"
                " intact. Make room, then go on with --ckpt_path last"
            ) from error
        replace_path(temporary, folder)
