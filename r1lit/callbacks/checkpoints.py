"""Checkpoints between iterations, and the policy as a Hugging Face directory."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from weakref import proxy

import lightning.pytorch as pl
import torch
from filelock import FileLock, Timeout
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_info
from safetensors import SafetensorError

from r1lit.callbacks.base import counted_iterations, finished_iterations, folder_of, run_folder
from r1lit.callbacks.interruption import Interruption
from r1lit.errors import check_at_least
from r1lit.files import beside, naming, put_back, remove, replace_json, replace_path
from r1lit.policy.loading import torch_dtype
from r1lit.protocols import Exports, HasPolicyConfig, MayGenerateAhead

EXTRA_SHARE = 0.02
SLOW_DISK = 2.5e8
"""Bytes a second: what a checkpoint is thought to be written with before one was."""


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

    Ctrl-C lets the iteration finish and saves it. SIGTERM does so too if the iteration ends within
    ``grace_s`` seconds; if it does not, ``last.ckpt`` stands. So an iteration that takes more than
    half of ``grace_s`` is saved though it is not due, as long as such saving takes at most
    ``EXTRA_SHARE`` of the run's time and waits for no rollouts that are generated ahead.

    Args:
        dirpath: Where; ``checkpoints`` in the run folder if left out.
        every_n_iterations: How often to replace ``last.ckpt``.
        keep_every_n_iterations: Also keep ``iteration-<finished>.ckpt`` at these multiples, which
            must be multiples of ``every_n_iterations``.
        grace_s: Seconds that an iteration may take after SIGTERM. The run then ends within ten
            seconds; set more where the scheduler sends SIGKILL later.

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
        grace_s: float = 5.0,
    ) -> None:
        check_at_least("every_n_iterations", every_n_iterations, 1)
        check_at_least("grace_s", grace_s, 0)
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
        self._may_be_old = False  # last.ckpt, on rank 0
        self._lock: FileLock | None = None
        self._saved_at = self._cost = self._began_at = 0.0
        self._interruption = Interruption(grace_s)

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
        self._interruption.stop()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Let other runs have the folder."""
        super().on_exception(trainer, pl_module, exception)
        self._release_folder()
        self._interruption.stop()

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
        """Let a finished run go on with more iterations, or with more patience than before.

        Lightning's EarlyStopping would take the patience of the checkpoint.
        """
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for callback in callbacks:
            state = checkpoint.get("callbacks", {}).get(callback.state_key)
            if isinstance(callback, EarlyStopping) and state is not None:
                state["patience"] = callback.patience
        loops = checkpoint.get("loops", {}).get("fit_loop", {})
        progress = loops.get("epoch_loop.batch_progress")
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if trainer.state.fn == TrainerFn.FITTING and progress is not None and data is not None:
            num_batches = len(data.train_dataloader())
            progress["is_last_batch"] = progress["current"]["ready"] >= num_batches

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Look for room on the disk and set an old run's ``last.ckpt`` aside.

        Both before the evaluation that comes first: a run that is killed in it must not resume from
        an older one.

        Raises:
            ValueError: if there is no room for a checkpoint.
        """
        super().on_fit_start(trainer, pl_module)
        if not trainer.is_global_zero or _is_trial(trainer):
            return
        refuse_full_disk(trainer, self._last_path().parent)
        self._may_be_old = True
        if not trainer.strategy.restore_checkpoint_after_setup:  # else nobody knows what is resumed
            self._set_old_aside(trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set an old run's ``last.ckpt`` aside, if that could not be done before."""
        if trainer.state.fn == TrainerFn.FITTING:
            self._set_old_aside(trainer)

    def _set_old_aside(self, trainer: pl.Trainer) -> None:
        if not self._may_be_old:
            return
        self._may_be_old = False
        old = self._last_path()
        if trainer.ckpt_path is None and old.exists():
            replace_path(old, old.with_stem("previous"))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Listen to signals from now on."""
        super().on_train_start(trainer, pl_module)
        if not _is_trial(trainer):
            self._set_old_aside(trainer)
            self._saved_at, self._cost = time.monotonic(), checkpoint_size(trainer) / SLOW_DISK
            self._interruption.listen(trainer)

    def on_train_batch_start(self, *_: Any) -> None:
        """Let a signal wait for the end of the iteration from now on."""
        self._began_at = time.monotonic()
        self._interruption.is_begun = True

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
        if _is_trial(trainer):
            return
        last = loop.batch_progress.is_last_batch or trainer.should_stop
        due = last or num_finished % self.every_n_iterations == 0
        counted = counted_iterations(pl_module)
        if counted is not None and counted != num_finished:
            raise ValueError(
                f"pl_module.iteration={counted}, but {num_finished} iterations are finished: the "
                "module must count each iteration within training_step"
            )
        fetcher = trainer.fit_loop._data_fetcher
        assert fetcher is not None
        due = self._interruption.heard() or due
        if loop._should_check_val_fx(fetcher) and sum(trainer.num_val_batches) > 0:
            self._due_after_validation = due
        elif due:
            self._save(trainer, num_finished)
        else:
            self._save_between(trainer, num_finished)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save if the iteration before this evaluation was due, or a signal came meanwhile."""
        num_finished = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        if trainer.state.fn != TrainerFn.FITTING or num_finished == 0 or _is_trial(trainer):
            return
        due = self._interruption.heard() or self._due_after_validation
        self._due_after_validation = False
        if due:
            self._save(trainer, num_finished)
        else:
            self._save_between(trainer, num_finished)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save nothing more: the last iteration did."""

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save nothing more: the last iteration did."""

    def _save(self, trainer: pl.Trainer, num_finished: int) -> None:
        started = time.monotonic()
        with self._interruption.saving():
            self._write(trainer, num_finished)
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - started
        if self._interruption.heard():
            raise self._interruption.error

    def _write(self, trainer: pl.Trainer, num_finished: int) -> None:
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
                keep_copy(
                    temporary, last.with_name(f"iteration-{num_finished}{self.FILE_EXTENSION}")
                )
            replace_path(temporary, last)
            for logger in trainer.loggers:
                logger.after_save_checkpoint(proxy(self))
        trainer.strategy.barrier("IterationCheckpoint: renamed")
        self._last_global_step_saved = trainer.global_step
        self._last_checkpoint_saved = str(last)

    def _save_between(self, trainer: pl.Trainer, num_finished: int) -> None:
        """Save a long iteration that is not due, if that costs little of the run's time."""
        now = time.monotonic()
        is_long = now - self._began_at > self._interruption.grace_s / 2
        is_cheap = now - self._saved_at >= self._cost / EXTRA_SHARE
        # a checkpoint holds what is generated ahead, and waits for it
        module = trainer.lightning_module
        is_ahead = isinstance(module, MayGenerateAhead) and not module.is_fresh
        if trainer.strategy.broadcast(is_long and is_cheap and not is_ahead):
            self._save(trainer, num_finished)

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


def refuse_full_disk(trainer: pl.Trainer, folder: Path) -> None:
    """Raise a ValueError if the disk has no room for a checkpoint, before anything is trained."""
    size, free = checkpoint_size(trainer), shutil.disk_usage(folder).free
    if size > free:
        raise ValueError(
            f"dirpath: {folder} has {free / 1e6:,.0f} MB free and a checkpoint takes some"
            f" {size / 1e6:,.0f} MB; make room, or name another folder by --run"
        )


def checkpoint_size(trainer: pl.Trainer) -> int:
    """Return the bytes of the module's weights, and of Adam's two moments where it is used."""
    state = trainer.lightning_module.state_dict().values()
    size = sum(w.numel() * w.element_size() for w in state if isinstance(w, torch.Tensor))
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            if "betas" in group:
                size += 2 * sum(w.numel() * w.element_size() for w in group["params"])
    return size


def _is_trial(trainer: pl.Trainer) -> bool:
    return bool(trainer.fast_dev_run)  # type: ignore[attr-defined]


def keep_copy(saved: Path, path: Path) -> None:
    """Give a checkpoint a second name that outlives its first.

    A link costs no space, and checkpoints are replaced, never written into.
    """
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


class StreamedCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint into its file as it goes, and maps one that it reads.

    Lightning's own makes all bytes in memory before it writes them, and reads all of them before it
    hands out the first: weights and optimiser once more. For files, not for object storage. A kill
    leaves half a file where one was being written, so write beside the place and rename.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write a checkpoint; there are no ``storage_options``.

        Raises:
            ValueError: if it cannot be written, to a full disk for example.
        """
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:  # by its name, torch would hide why it failed
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:
            # torch's writer of archives raises its own error over the system's
            cause = error if isinstance(error, OSError) else error.__context__
            path.unlink(missing_ok=True)  # half a checkpoint would fill the disk for good
            if not isinstance(cause, OSError):
                raise
            kept = any(other != path for other in path.parent.glob("[!.]*.ckpt*"))
            raise ValueError(
                f"dirpath: the checkpoint cannot be written to {path.parent} ({cause.strerror});"
                f" {'the one before it is intact' if kept else 'there is none before it'}"
            ) from error

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint, whose tensors come from the file when they are looked at.

        Its bytes are compared with the checksums in it first.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it is cut, empty or damaged.
        """
        refuse_damaged(Path(path))
        try:
            return torch.load(path, map_location=map_location, weights_only=weights_only, mmap=True)
        except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            # torch's reader of archives heeds more than Python's
            if "Unsupported global" in str(error) or "Unsupported class" in str(error):
                raise
            raise _damaged(path, " ".join(str(error).split(". ")[0].split())) from error


def refuse_damaged(path: Path) -> None:
    """Raise a ValueError if a checkpoint's bytes are not those that were written.

    A checkpoint is a zip archive, which holds a checksum of each tensor.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        damaged = str(error)  # also a flag: an encrypted part, a compression, a name's encoding
    except OSError as error:
        if error.errno != errno.EINVAL:  # an offset before the file's beginning
            raise
        damaged = str(error)
    if damaged is not None:
        raise _damaged(path, damaged)


def _damaged(path: str | Path, how: str) -> ValueError:
    return ValueError(
        f"ckpt_path: {path} is damaged ({how}); resume from an older checkpoint, or begin again"
        " in another folder by --run"
    )


def stream_checkpoints(trainer: pl.Trainer) -> None:
    """Put a ``StreamedCheckpointIO`` in the place of Lightning's own, but of no other."""
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = StreamedCheckpointIO()


class ExportHuggingFace(Callback):
    """Writes policy and tokenizer with ``save_pretrained`` to ``dirpath``, from rank 0.

    A module's critic goes to ``critic`` beside it.

    A sharded policy (FSDP2) is gathered into the memory of rank 0's CPU.

    At the end of the fit, and after every n-th iteration if set; ``dirpath`` always holds the
    newest export, complete: it is written to another folder and renamed.

    Args:
        dirpath: Where; ``policy`` in the run folder if left out.
        every_n_iterations: How often to export; null: at the end only.
        dtype: Of what is written, as ``bfloat16``; that of the training weights if left out. A
            line says so where that is wider than the file the policy was read from.
    """

    dirpath: Path

    def __init__(
        self,
        dirpath: str | None = None,
        every_n_iterations: int | None = None,
        dtype: str | None = None,
    ) -> None:
        check_at_least("every_n_iterations", every_n_iterations, 1)
        self._given = None if dirpath is None else Path(dirpath)
        self.every_n_iterations = every_n_iterations
        self.dtype = None if dtype is None else torch_dtype(dtype)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder.

        Raises:
            ValueError: if the module has nothing to export.
        """
        if stage == "fit" and not isinstance(pl_module, Exports):
            raise ValueError(
                f"ExportHuggingFace needs a module with exported(); {type(pl_module).__name__} has"
                " none: remove the callback"
            )
        self.dirpath = folder_of(self._given, trainer, self, "policy")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say where the export will be larger than the file that the policy was read from."""
        module: Any = pl_module
        stored = module.policy_config.dtype if isinstance(module, HasPolicyConfig) else None
        if self.dtype is not None or stored is None or module.policy.adapter is not None:
            return
        stored = torch_dtype(str(stored).removeprefix("torch."))
        weights = list(module.policy.parameters())
        if weights[0].dtype.itemsize > stored.itemsize:
            size = sum(weight.numel() for weight in weights) * weights[0].dtype.itemsize / 1e9
            was, now = (str(dtype).removeprefix("torch.") for dtype in (stored, weights[0].dtype))
            rank_zero_info(
                f"The policy was read from {was} and is trained and exported in {now}, {size:.2f}"
                f" GB; ExportHuggingFace's dtype: {was} exports it as it came"
            )

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

    def export(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, folder: Path | None = None
    ) -> None:
        """Write the policy and ``pl_module.tokenizer`` to a folder, further models beside it.

        Args:
            trainer: of the run.
            pl_module: has ``exported()``.
            folder: of the policy; ``dirpath`` if left out.
        """
        of_policy = self.dirpath if folder is None else folder
        for name, model in cast(Exports, pl_module).exported().items():
            place = of_policy if name == "policy" else of_policy.with_name(name)
            self._write(trainer, pl_module, name, model, place)
        trainer.strategy.barrier("ExportHuggingFace")

    def _write(self, trainer: pl.Trainer, module: Any, name: str, model: Any, folder: Path) -> None:
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
            if self.dtype is None or model.adapter is not None:
                model.save_pretrained(temporary, weights)
            else:
                save_in(self.dtype, model, temporary, weights)
            module.tokenizer.save_pretrained(temporary)
        except (OSError, SafetensorError) as error:
            remove(temporary)
            raise ValueError(
                f"dirpath: the {name} cannot be written to {folder} ({error}); what was there is"
                " intact. Make room, then continue with --ckpt_path last"
            ) from error
        replace_path(temporary, folder)


def save_in(
    dtype: torch.dtype, model: Any, folder: Path, weights: dict[str, torch.Tensor] | None
) -> None:
    """Write a model's directory in another dtype; ``weights`` if they had to be gathered."""
    cast: dict[int, torch.Tensor] = {}  # tied weights stay one
    state = weights or model.model.state_dict()
    for weight in state.values():
        if weight.is_floating_point() and weight.data_ptr() not in cast:
            cast[weight.data_ptr()] = weight.to(dtype)
    model.save_pretrained(folder, {n: cast.get(w.data_ptr(), w) for n, w in state.items()})
    config = json.loads((folder / "config.json").read_text())
    replace_json(folder / "config.json", {**config, "dtype": str(dtype).removeprefix("torch.")})
