"""Printed output of a run: a progress bar, and last lines with the paths of its results."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping, Timer, TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm, convert_inf
from lightning.pytorch.utilities.exceptions import SIGTERMException

from r1lit.callbacks import keys
from r1lit.callbacks.base import finished_iterations, order_callbacks, run_folder
from r1lit.callbacks.checkpoints import IterationCheckpoint
from r1lit.protocols import CountsIterations, CountsUpdates
from r1lit.rollout.progress import watch

_SHOWN = (
    ("acc", f"train/{keys.REWARD_ACCURACY}", "{:.2f}"),
    ("loss", "train/loss", "{:.4f}"),
    ("len", f"train/{keys.LENGTH_MEAN}", "{:.0f}"),
    ("words", f"train/{keys.REFLECTION_PER_RESPONSE}", "{:.2f}"),
    ("val", f"val/{keys.PASS_AT_1}", "{:.3f}"),
    ("val loss", "val/loss", "{:.4f}"),
)


COLUMNS = 79
SECONDS_BETWEEN = 10.0
SECONDS_BETWEEN_REDRAWS = 0.2


class R1ProgressBar(TQDMProgressBar):
    """Shows iteration, train accuracy, mean length, reflection words, last val pass@1, time left.

    On a terminal it is a tqdm bar that also moves within an iteration: "rollout 40 %" is the share
    of responses that have ended, "update 3 of 16" counts the updates made. Elsewhere (a log file, a
    pipe) it is one plain line at a time:

        iteration 12/30  acc 0.61  len 182  words 0.34  val 0.580  3:10 left

    Iterations are counted over all epochs. ``loss`` stands in for the accuracy where none is logged
    (SFT), and ``val loss`` is that of held-out documents. The time left is judged by the iterations
    made since the first one of this process, which may compile; evaluations included. An evaluation
    says where it is from its beginning. Lines fit into 80 columns.

    Args:
        refresh_rate: Show every this many iterations, after each evaluation and at the end.
    """

    position = 1

    def __init__(self, refresh_rate: int = 1) -> None:
        super().__init__(refresh_rate=refresh_rate)
        self._printed_at = 0.0
        self._plain = not sys.stdout.isatty()
        self._started: float | None = None
        self._first = 0
        self._iteration = 0
        self._drawn_at = 0.0
        self._num_updates = 0
        self._unwatch: list[Callable[[], None]] = []

    @property
    def is_enabled(self) -> bool:
        """True where tqdm's bars are shown."""
        return super().is_enabled and not self._plain

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Come after the callbacks whose numbers are shown."""
        super().setup(trainer, pl_module, stage)
        order_callbacks(trainer)
        self._stop_watching()
        if self.is_enabled:
            self._unwatch.append(watch(partial(self._show_rollout, trainer)))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Watch no longer."""
        self._stop_watching()

    def on_exception(self, *arguments: Any) -> None:
        """Watch no longer."""
        self._stop_watching()

    def _stop_watching(self) -> None:
        while self._unwatch:
            self._unwatch.pop()()

    def _show_rollout(self, trainer: pl.Trainer, num_ended: int, num_responses: int) -> None:
        """Show a rollout's share of responses that have ended."""
        if not self._is_due(num_ended == num_responses):
            return
        if trainer.training:
            self._show(trainer, f"rollout {100 * num_ended // num_responses} %")
        for bar in (self._val_progress_bar, self._test_progress_bar):
            if trainer.evaluating and bar is not None and not bar.disable:
                bar.set_postfix_str(f"{num_ended} of {num_responses} responses")

    def _show_update(self, trainer: pl.Trainer, num_updates: int, *arguments: Any) -> None:
        """Count an update of the policy, and show it if an iteration has several."""
        self._num_updates += 1
        if trainer.training and self._is_due(self._num_updates == num_updates):
            self._show(trainer, f"update {self._num_updates} of {num_updates}")

    def _is_due(self, is_last: bool) -> bool:
        """Return whether to draw now: five times a second at most, and what is complete."""
        now = time.monotonic()
        if not is_last and now - self._drawn_at < SECONDS_BETWEEN_REDRAWS:
            return False
        self._drawn_at = now
        return True

    def init_train_tqdm(self) -> Tqdm:
        """Return the training bar: the shared status line behind a bar."""
        bar = super().init_train_tqdm()
        bar.bar_format = "{desc}"
        return bar

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop the clock until the end of this process's first iteration, and count updates."""
        super().on_train_start(trainer, pl_module)
        self._started = None
        self._iteration = trainer.fit_loop.total_batch_idx + 1
        if not self.is_enabled or not isinstance(pl_module, CountsUpdates):
            return
        num_updates = pl_module.updates_per_iteration
        if num_updates > 1:
            policys = trainer.optimizers[0]
            hook = policys.register_step_post_hook(partial(self._show_update, trainer, num_updates))
            self._unwatch.append(hook.remove)

    def on_train_batch_start(self, *arguments: Any) -> None:
        """Begin to count the iteration's updates."""
        self._num_updates = 0

    def on_train_epoch_start(self, trainer: pl.Trainer, *arguments: Any) -> None:
        """Let the bar go on where the epoch before ended."""
        super().on_train_epoch_start(trainer, *arguments)
        self.train_progress_bar.total = convert_inf(_num_iterations(trainer))

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Show the iteration just finished."""
        self._iteration = trainer.fit_loop.total_batch_idx + 1
        if self._started is None:
            self._started, self._first = time.monotonic(), self._iteration
        due = self.refresh_rate > 0 and self._iteration % self.refresh_rate == 0
        if due or self._iteration == _num_iterations(trainer):
            if not self._plain and self._train_progress_bar is not None:
                self._train_progress_bar.n = self._iteration
            self._show(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the last line as it is."""

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say that an evaluation begins."""
        super().on_validation_start(trainer, pl_module)
        self._print_evaluated(trainer, 0)

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Say how far the evaluation is, every ten seconds."""
        super().on_validation_batch_end(
            trainer, pl_module, outputs, batch, batch_idx, dataloader_idx
        )
        if time.monotonic() - self._printed_at > SECONDS_BETWEEN:
            self._print_evaluated(trainer, batch_idx + 1)

    def _print_evaluated(self, trainer: pl.Trainer, num_batches: int) -> None:
        self._printed_at = time.monotonic()
        if (
            self._prints_lines(trainer)
            and trainer.state.fn == "fit"
            and not trainer.sanity_checking
        ):
            batches = sum(b for b in trainer.num_val_batches if not math.isinf(b))
            print(f"evaluation {num_batches}/{int(batches)}", flush=True)

    def _prints_lines(self, trainer: pl.Trainer) -> bool:
        shown = trainer.is_global_zero and self._enabled and self.refresh_rate > 0
        return self._plain and shown

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the new val pass@1."""
        if not self._plain:
            self.val_progress_bar.close()
        self.reset_dataloader_idx_tracker()
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._show(trainer)

    def status(self, trainer: pl.Trainer, part: str = "") -> str:
        """Return the line shown: of the last iteration finished, or of a part of the next."""
        total = _num_iterations(trainer)
        iteration = self._iteration + bool(part)
        parts = [f"iteration {iteration}/{'?' if math.isinf(total) else int(total)}"]
        parts += [part] if part else []
        num_fixed = len(parts)
        metrics = trainer.callback_metrics
        for label, key, form in _SHOWN:
            if label == "loss" and f"train/{keys.REWARD_ACCURACY}" in metrics:
                continue
            if key in metrics and math.isfinite(float(metrics[key])):
                parts.append(f"{label} {form.format(float(metrics[key]))}")
        num_made = self._iteration - self._first
        if self._started is not None and num_made > 0 and not math.isinf(total):
            each = (time.monotonic() - self._started) / num_made
            parts.append(f"{as_clock(each * (total - self._iteration))} left")
        while len("  ".join(parts)) > COLUMNS and len(parts) > num_fixed + 2:
            del parts[-2]  # the last number, before the time that is left
        return "  ".join(parts)

    def _show(self, trainer: pl.Trainer, part: str = "") -> None:
        status = self.status(trainer, part)
        if self._prints_lines(trainer):
            print(status, flush=True)
        elif not self._plain and self._train_progress_bar is not None:
            width = min(20, COLUMNS - len(status) - 1)
            form = f"{{bar:{width}}} {{desc}}" if width >= 4 else "{desc}"
            self._train_progress_bar.bar_format = form
            self._train_progress_bar.set_description_str(status)


def _num_iterations(trainer: pl.Trainer) -> float:
    """Return the iterations of all epochs; infinity where there is no end."""
    epochs = trainer.max_epochs
    return trainer.num_training_batches * (math.inf if epochs in (None, -1) else epochs)


def iterations(count: int) -> str:
    """Return a number of iterations in words."""
    return f"{count} iteration{'s' * (count != 1)}"


def as_clock(seconds: float) -> str:
    """Return ``3:10`` or ``2:03:10``.

    >>> as_clock(190), as_clock(7390)
    ('3:10', '2:03:10')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


SHOWN = ("curves.png", "summary.json", "metrics.jsonl", "responses.jsonl", "policy", "reward_model")
MORE = "more iterations: raise {} and add --ckpt_path last"


MATTER = re.compile(
    r"loss|perplexity|accuracy|auroc|reward|(cons|pass)_at_\d+|length/(mean|truncated)"
    r"|reward_model/(accuracy|auroc)"
)
NUM_LINES = 6


def as_lines(metrics: Mapping[str, Any]) -> str:
    """Return the six numbers of an evaluation that matter most, with the standard errors there are.

    Of pass@k and cons@k only the largest k is shown. Where no number is known to matter, the first
    six are taken.
    """
    values = {name.removeprefix("val/"): float(value) for name, value in metrics.items()}
    fewer = []
    for pattern in (r"cons_at_(\d+)", r"pass_at_(?!1$)(\d+)"):
        at_k = [name for name in values if re.fullmatch(pattern, name)]
        fewer += sorted(at_k, key=lambda name: int(name.rsplit("_", 1)[1]))[:-1]
    own = [n for n in values if MATTER.fullmatch(n.split("/dataloader")[0]) and n not in fewer]
    own.sort(key=lambda name: name != "pass_at_1")
    names = (own or [name for name in values if not name.endswith("_stderr")])[:NUM_LINES]
    width = max(map(len, names), default=0)
    errors = {name: values.get(f"{name}_stderr") for name in names}
    lines = [
        f"{name:<{width}}  {values[name]:.4g}"
        + ("" if errors[name] is None else f" ± {errors[name]:.2g}")
        for name in names
    ]
    more = len(values) - len(names) - sum(error is not None for error in errors.values())
    return "\n".join([*lines, *([f"{more} more with --verbose true"] if more else [])])


WORTH_SAYING_S = 60.0


class LastLines(Callback):
    """Says after two iterations what all will take, and at the end what the run folder holds.

    It is said at the end of a fit, of Ctrl-C or of an error. The time is this machine's: that of
    the second iteration for each one that is left, since the first may compile, and that of the
    last evaluation for each evaluation. A run of less than a minute more is not worth a line.

    The command line adds it to every run.
    """

    position = 3

    def __init__(self) -> None:
        self._began = self._trained = False
        self._num_made = 0
        self._started = self._evaluation_started = self._evaluation_s = 0.0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Come last, when everything is written."""
        order_callbacks(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """From now on there may be results."""
        self._began = True

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count the evaluation before the first iteration as begun."""
        self._began = True
        self._evaluation_started = time.monotonic()

    def on_train_batch_start(self, *arguments: Any) -> None:
        """Note that there was something to train."""
        self._trained = True
        self._started = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, *arguments: Any) -> None:
        """Print after the second iteration of this process what the rest will take."""
        self._num_made += 1
        total = _num_iterations(trainer)
        if self._num_made != 2 or math.isinf(total) or not trainer.is_global_zero:
            return
        each, finished = time.monotonic() - self._started, trainer.fit_loop.total_batch_idx + 1
        interval = trainer.val_check_batch
        num_evaluations = 0
        if trainer.enable_validation and isinstance(interval, int) and self._evaluation_s:
            num_evaluations = max(1, int(total) // interval - finished // interval)
        seconds = each * (total - finished) + self._evaluation_s * num_evaluations
        if seconds < WORTH_SAYING_S:
            return
        parts = f"{int(total) - finished} iterations of {each:.1f} s, as the second"
        if num_evaluations:
            parts += f", and {num_evaluations} evaluations of {self._evaluation_s:.1f} s"
        print(
            f"This machine has about {as_clock(seconds)} left: {parts}; longer ones take longer",
            file=sys.stderr,
            flush=True,
        )

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print where the results are."""
        finished = finished_iterations(trainer, pl_module)
        summary = f"Finished after {iterations(finished)}"
        if not self._trained:
            were = "was" if finished == 1 else "were"
            summary = f"Nothing to train, {iterations(finished)} {were} made before"
        data = trainer.datamodule  # type: ignore[attr-defined]
        in_epochs = not isinstance(data, CountsIterations) or data.num_iterations is None
        key = "trainer.max_epochs" if in_epochs else "data.num_iterations"
        go_on = MORE.format(key)
        total, stopped = _num_iterations(trainer), stopped_by(trainer)
        if self._trained and stopped is not None and finished < total:
            summary = f"Stopped by {stopped} after {iterations(finished)}"
            if not math.isinf(total):
                summary += f" of {int(total)}"
            go_on = f"to go on: change {stopped} and add --ckpt_path last"
        self._print(trainer, summary, go_on)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the results of ``r1lit validate``."""
        self._evaluation_s = time.monotonic() - self._evaluation_started
        if trainer.state.fn == "validate" and trainer.is_global_zero:
            print(as_lines(trainer.callback_metrics), flush=True)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Print how far the run came and where it is saved, if training had begun."""
        if not self._began or trainer.state.fn != "fit":
            return
        finished = finished_iterations(trainer, pl_module)
        how = "Stopped by an error"
        if isinstance(exception, KeyboardInterrupt):
            how = "Interrupted"
        elif isinstance(exception, SIGTERMException):
            how = "Stopped by SIGTERM"
        last = last_checkpoint(trainer)
        if last is None:
            go_on = "no checkpoint was saved: the same command with --ckpt_path last begins again"
        else:
            go_on = "continue from its last checkpoint: the same command with --ckpt_path last"
        self._print(trainer, f"{how} after {iterations(finished)}", go_on)

    def _print(self, trainer: pl.Trainer, summary: str, go_on: str) -> None:
        folder = run_folder(trainer)
        if not trainer.is_global_zero or folder is None:
            return
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            print(f"{summary} of a trial; it has no run folder", file=sys.stderr, flush=True)
            return
        names = [name for name in SHOWN if (folder / name).exists()]
        print(f"{summary}: {folder}", file=sys.stderr)
        if names:
            print(f"  {', '.join(names)}", file=sys.stderr)
        print(f"  {go_on}", file=sys.stderr, flush=True)


def stopped_by(trainer: pl.Trainer) -> str | None:
    """Return the key of what ended a fit before its last iteration; None if nothing did."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        remaining = callback.time_remaining() if isinstance(callback, Timer) else None
        if remaining is not None and remaining <= 0:
            return "trainer.max_time"
    for callback in callbacks:
        if isinstance(callback, EarlyStopping) and callback.stopping_reason_message:
            return "EarlyStopping"
    return None


def last_checkpoint(trainer: pl.Trainer) -> Path | None:
    """Return the newest checkpoint of a run, None if there is none."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        path = callback.last_path(trainer) if isinstance(callback, IterationCheckpoint) else None
        if path is not None and path.exists():
            return path
    return None
