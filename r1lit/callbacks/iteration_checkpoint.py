"""Checkpoints between iterations, never between an iteration and its evaluation."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from weakref import proxy

import lightning.pytorch as pl
from filelock import FileLock, Timeout
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn

from r1lit.callbacks.checkpoint_io import stream_checkpoints
from r1lit.callbacks.stage import run_folder
from r1lit.files import beside, put_back, remove, replace_path


class IterationCheckpoint(ModelCheckpoint):
    """Keeps ``last.ckpt``, saved every n iterations and after the last one.

    Lightning's own ``ModelCheckpoint`` saves before the validation due at the same batch; a run
    killed between the two never makes that evaluation, because a resumed loop fast-forwards past
    it. It also counts optimiser updates. This one counts iterations, and when an evaluation is due
    it saves at the end of it. An evaluation before the first iteration is not saved. A run that
    begins anew renames an old ``last.ckpt`` to ``previous.ckpt``.

    A checkpoint is written beside its place and renamed (Lightning writes to the system's temporary
    folder and may copy from there, so a kill can tear the file it replaces). Neither then nor on
    resume is all of it in memory at once (``StreamedCheckpointIO``).

    Args:
        dirpath: Where; ``checkpoints`` in the run folder if left out.
        every_n_iterations: How often to replace ``last.ckpt``.
        keep_every_n_iterations: Also keep ``iteration-<finished>.ckpt`` at these multiples, which
            must be multiples of ``every_n_iterations``.

    Raises:
        ValueError: If another run is training in the folder, the intervals do not fit, or the
            module's ``iteration`` counter is not the number of iterations the trainer has made when
            a checkpoint is due.
    """

    def __init__(
        self,
        dirpath: str | None = None,
        every_n_iterations: int = 1,
        keep_every_n_iterations: int | None = None,
    ) -> None:
        if every_n_iterations < 1:
            raise ValueError(f"every_n_iterations={every_n_iterations} must be at least 1")
        if keep_every_n_iterations is not None and (
            keep_every_n_iterations < 1 or keep_every_n_iterations % every_n_iterations
        ):
            raise ValueError(
                f"keep_every_n_iterations={keep_every_n_iterations} must be a multiple of "
                f"every_n_iterations={every_n_iterations}"
            )
        super().__init__(dirpath=dirpath, save_top_k=0, enable_version_counter=False)
        self.every_n_iterations = every_n_iterations
        self.keep_every_n_iterations = keep_every_n_iterations
        self._due_after_validation = False
        self._lock: FileLock | None = None

    state_key = pl.Callback.state_key  # ModelCheckpoint's would change with the settings

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Have checkpoints streamed, and the folder to this run alone while it trains."""
        self._find_folder(trainer)
        super().setup(trainer, pl_module, stage)
        stream_checkpoints(trainer)
        if stage == "fit" and trainer.is_global_zero and not _is_trial(trainer):
            self._take_folder()

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Let other runs have the folder."""
        super().teardown(trainer, pl_module, stage)
        self._release_folder()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Let other runs have the folder."""
        super().on_exception(trainer, pl_module, exception)
        self._release_folder()

    def _release_folder(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_folder(self) -> None:
        assert self.dirpath is not None
        folder = Path(self.dirpath)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / ".lock", timeout=0, is_singleton=True)
            self._lock.acquire()
        except Timeout:
            self._lock = None
            raise ValueError(
                f"dirpath: another run is training in {folder}; wait for it to end, or name another"
                " folder"
            ) from None
        except OSError as error:
            raise ValueError(f"dirpath: {folder} cannot be written ({error.strerror})") from error
        for left_by_a_kill in folder.glob(".*.tmp"):
            remove(left_by_a_kill)

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Let a finished run go on if it has been given more iterations."""
        loops = checkpoint.get("loops", {}).get("fit_loop", {})
        progress = loops.get("epoch_loop.batch_progress")
        data: Any = getattr(trainer, "datamodule", None)
        if trainer.state.fn == TrainerFn.FITTING and progress is not None and data is not None:
            num_batches = len(data.train_dataloader())
            progress["is_last_batch"] = progress["current"]["ready"] >= num_batches

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set an old run's ``last.ckpt`` aside: killed now, this run must not resume from it."""
        super().on_train_start(trainer, pl_module)
        if trainer.ckpt_path is None and trainer.is_global_zero and not _is_trial(trainer):
            old = self._last_path()
            if old.exists():
                replace_path(old, old.with_stem("previous"))

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save if a checkpoint is due and no evaluation comes first."""
        loop = trainer.fit_loop.epoch_loop
        num_finished = loop.total_batch_idx + 1
        last = loop.batch_progress.is_last_batch or trainer.should_stop
        if _is_trial(trainer) or not (last or num_finished % self.every_n_iterations == 0):
            return
        counted = int(getattr(pl_module, "iteration", num_finished))
        if counted != num_finished:
            raise ValueError(
                f"pl_module.iteration={counted}, but {num_finished} iterations are finished: the "
                "module must count each iteration within training_step"
            )
        fetcher = trainer.fit_loop._data_fetcher
        assert fetcher is not None
        if loop._should_check_val_fx(fetcher) and sum(trainer.num_val_batches) > 0:
            self._due_after_validation = True
        else:
            self._save(trainer, num_finished)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save if the iteration before this evaluation was due."""
        if trainer.state.fn == TrainerFn.FITTING and self._due_after_validation:
            self._due_after_validation = False
            self._save(trainer, trainer.fit_loop.epoch_loop.total_batch_idx + 1)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save nothing more: the last iteration did."""

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save nothing more: the last iteration did."""

    def _save(self, trainer: pl.Trainer, num_finished: int) -> None:
        last = self._last_path()
        temporary = trainer.strategy.broadcast(beside(last))
        self.last_model_path = str(last)
        if trainer.is_global_zero:
            remove(temporary)
        trainer.strategy.barrier("IterationCheckpoint: cleaned")
        trainer.save_checkpoint(temporary)
        if trainer.is_global_zero:
            n = self.keep_every_n_iterations
            if n is not None and num_finished % n == 0:
                _keep(temporary, last.with_name(f"iteration-{num_finished}{self.FILE_EXTENSION}"))
            replace_path(temporary, last)
            for logger in trainer.loggers:
                logger.after_save_checkpoint(proxy(self))
        trainer.strategy.barrier("IterationCheckpoint: renamed")
        self._last_global_step_saved = trainer.global_step
        self._last_checkpoint_saved = str(last)

    def last_path(self, trainer: pl.Trainer) -> Path | None:
        """Return where ``last.ckpt`` lies or will lie; None if there is no folder for it."""
        self._find_folder(trainer)
        return None if self.dirpath is None else self._last_path()

    def _find_folder(self, trainer: pl.Trainer) -> None:
        run = run_folder(trainer)
        if self.dirpath is None and run is not None:
            self.dirpath = str(run.absolute() / "checkpoints")

    def _find_last_checkpoints(self, trainer: pl.Trainer) -> set[str]:
        self._find_folder(trainer)  # ckpt_path: last is looked for before ``setup``
        if self.dirpath is not None:
            put_back(self._last_path())
        return super()._find_last_checkpoints(trainer)

    def _last_path(self) -> Path:
        assert self.dirpath is not None
        return Path(self.dirpath) / f"{self.CHECKPOINT_NAME_LAST}{self.FILE_EXTENSION}"


def _is_trial(trainer: pl.Trainer) -> bool:
    return bool(getattr(trainer, "fast_dev_run", False))


def _keep(saved: Path, path: Path) -> None:
    """Give ``saved`` a second name that outlives its first; a link costs no space."""
    remove(path)
    if saved.is_dir():
        shutil.copytree(saved, path)
        return
    try:
        os.link(saved, path)
    except OSError:  # a file system without hard links
        temporary = beside(path)
        shutil.copyfile(saved, temporary)
        replace_path(temporary, path)
