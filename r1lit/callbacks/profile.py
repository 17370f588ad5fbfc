"""A profile of a few iterations: PyTorch's trace, and a table of the ten slowest operations."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_info
from torch.profiler import profile, supported_activities

from r1lit.callbacks.base import run_folder
from r1lit.errors import check_at_least
from r1lit.files import beside, replace_file

TRACE, TABLE = "profile.json.gz", "profile.txt"
NUM_OPERATIONS = 10


class Profile(Callback):
    """Profiles iterations of rank 0 after its first one, in which code is compiled.

    ``profile.json.gz`` in the run folder is a trace for Perfetto or ``chrome://tracing``, and
    ``profile.txt`` has the ten operations that take the most time, that of operations within them
    left out: the device's time where there is one. An evaluation between the iterations is in both.
    ``--profile 3`` adds it.

    Args:
        num_iterations: How many iterations.
    """

    def __init__(self, num_iterations: int) -> None:
        check_at_least("profile", num_iterations, 1)
        self.num_iterations = num_iterations
        self._num_begun = 0
        self._profile: profile | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse a run that has no folder to write to.

        Raises:
            ValueError: naming ``run``.
        """
        if run_folder(trainer) is None:
            raise ValueError("profile: it is written to the run folder; name one by --run")

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Begin with the second iteration, or with the only one."""
        self._num_begun += 1
        first = 1 if trainer.num_training_batches == 1 else 2
        if trainer.is_global_zero and self._num_begun == first:
            self._profile = profile(activities=supported_activities())
            self._profile.start()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """End with the last of them."""
        if self._num_begun > self.num_iterations:
            self._write(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End with a run that has fewer."""
        self._write(trainer)

    def _write(self, trainer: pl.Trainer) -> None:
        if self._profile is None:
            return
        taken, self._profile = self._profile, None
        taken.stop()
        folder = run_folder(trainer)
        assert folder is not None
        averages = taken.key_averages()
        on_device = any(event.self_device_time_total for event in averages)
        key = f"self_{'device' if on_device else 'cpu'}_time_total"
        table = averages.table(sort_by=key, row_limit=NUM_OPERATIONS, max_name_column_width=40)
        replace_file(folder / TABLE, table.encode())
        temporary = beside(folder / TRACE).with_suffix(".json.gz")  # gzip goes by the ending
        taken.export_chrome_trace(str(temporary))
        temporary.replace(folder / TRACE)
        rank_zero_info(f"{table}\n{folder}: {TABLE}, {TRACE}")
