"""Shared parts of callbacks: reading the trainer and other ranks, and statistics of rollouts."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, Generic, TypeVar

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, Checkpoint
from lightning.pytorch.trainer.states import TrainerFn

from r1lit.batches import Rollout
from r1lit.ranks import of_all_ranks

T = TypeVar("T")


def stage_of(trainer: pl.Trainer) -> str:
    """Return the first part of a metric's key: ``train``, ``val`` or ``test``."""
    if trainer.testing:
        return "test"
    return "val" if trainer.validating or trainer.sanity_checking else "train"


def split_of(trainer: pl.Trainer) -> str:
    """Return ``val`` for an evaluation in a fit, else the command, ``validate`` or ``test``."""
    command = trainer.state.fn
    return "val" if command in (None, TrainerFn.FITTING) else command.value


def rollout_of(outputs: Any) -> Rollout | None:
    """Return the rollout among a step's outputs, or None: supervised modules return none."""
    return outputs.get("rollout") if isinstance(outputs, dict) else None


def finished_iterations(trainer: pl.Trainer, pl_module: pl.LightningModule) -> int:
    """Return the number of finished iterations: the module's counter, or the loop's without one."""
    counted = counted_iterations(pl_module)
    return trainer.fit_loop.epoch_loop.total_batch_idx + 1 if counted is None else counted


def counted_iterations(pl_module: pl.LightningModule) -> int | None:
    """Return the iterations that a module has counted itself; None of one that counts none."""
    iteration = getattr(pl_module, "iteration", None)  # a tensor: no protocol sees it
    return None if iteration is None else int(iteration)


def model_and_seed(pl_module: pl.LightningModule) -> str:
    """Return a run's caption from the attributes that its module has: "models/mini, seed 0"."""
    source, seed = (getattr(pl_module, name, None) for name in ("source", "seed"))
    parts = [] if source is None else [str(source.path)]
    return ", ".join([*parts, f"seed {seed}"] if seed is not None else parts)


def run_folder(trainer: pl.Trainer) -> Path | None:
    """Return the run folder, ``run`` in YAML; None if none is named."""
    folder = Path(trainer.default_root_dir)  # the working directory stands for none
    return None if folder.resolve() == Path.cwd() else folder


def folder_of(given: Path | None, trainer: pl.Trainer, callback: Callback, name: str = "") -> Path:
    """Return where a callback writes: the folder given, or ``name`` in the run folder.

    Raises:
        ValueError: if neither is named.
    """
    if given is not None:
        return given
    folder = run_folder(trainer)
    if folder is None:
        raise ValueError(
            f"run: null, but {type(callback).__name__} writes to the run folder; name one, as"
            " runs/mine"
        )
    return folder / name


def gather(rows: list[T]) -> list[T]:
    """Return the rows of all ranks, so that a mean over them is exact whatever each rank held."""
    return [row for rank in of_all_ranks(rows) for row in rank]


def log_iteration(pl_module: pl.LightningModule, values: dict[str, float], batch_size: int) -> None:
    """Log values of one training iteration, the same on every rank.

    Log a value that is undefined in this iteration as NaN: Lightning repeats the last value of a
    training key that is left out.
    """
    pl_module.log_dict(values, on_step=True, on_epoch=False, batch_size=batch_size)


def log_evaluation(
    pl_module: pl.LightningModule, values: dict[str, float], batch_size: int
) -> None:
    """Log values of one evaluation at its epoch end, the same on every rank."""
    pl_module.log_dict(values, on_step=False, on_epoch=True, batch_size=batch_size, sync_dist=True)


def order_callbacks(trainer: pl.Trainer) -> None:
    """Put callbacks that need the others' numbers behind them, whatever the order in the YAML.

    A callback's ``position`` is 0 by default; 1 reads what others logged, 2 acts on
    a trainer that all others have seen start. Checkpoints stay last. The list is replaced, not
    sorted in place, because it is being iterated over when this is called in ``setup``.
    """
    trainer.callbacks = sorted(  # type: ignore[attr-defined]
        trainer.callbacks,  # type: ignore[attr-defined]
        key=lambda callback: (isinstance(callback, Checkpoint), getattr(callback, "position", 0)),
    )


Row = TypeVar("Row")


class RolloutStatistics(Callback, Generic[Row]):
    """Logs ``summarise(rows)`` of each training iteration and of each whole evaluation.

    Rows are gathered over ranks, so the numbers are those of all responses. Keys are prefixed with
    the stage. Without a rollout in the step's outputs nothing is logged.
    """

    def __init__(self) -> None:
        self._evaluation: list[Row] = []

    @abstractmethod
    def rows(self, rollout: Rollout) -> list[Row]:
        """Return the rows of ``rollout``; they must be picklable and small."""

    @abstractmethod
    def summarise(self, rows: list[Row], stage: str) -> dict[str, float]:
        """Return numbers about ``rows`` (at least one) by key without the stage; NaN: undefined."""

    def on_iteration_summarised(self, rollout: Rollout, values: dict[str, float]) -> None:
        """Hook: a training iteration's numbers are known; extend or keep them."""

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Log the numbers of this iteration's rollout."""
        rollout = rollout_of(outputs)
        if rollout is None:
            return
        rows = gather(self.rows(rollout))
        values = self.summarise(rows, "train")
        self.on_iteration_summarised(rollout, values)
        named = {f"train/{name}": value for name, value in values.items()}
        log_iteration(pl_module, named, batch_size=len(rows))

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget the numbers of an interrupted evaluation."""
        self._evaluation = []

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the rows of this batch."""
        rollout = rollout_of(outputs)
        if rollout is not None:
            self._evaluation += self.rows(rollout)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the numbers of the whole evaluation."""
        rows, self._evaluation = gather(self._evaluation), []
        if rows:
            stage = stage_of(trainer)
            values = self.summarise(rows, stage)
            named = {f"{stage}/{name}": value for name, value in values.items()}
            log_evaluation(pl_module, named, batch_size=len(rows))

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end
