"""The progress bar's line, in a log file and on a terminal."""

from __future__ import annotations

import re
import sys

import lightning.pytorch as pl
import torch
from tiny_run import TinyModule, trainer_of

from r1lit.callbacks import (
    IterationCheckpoint,
    MajorityVoteEvaluation,
    R1ProgressBar,
    ResponseLength,
)
from r1lit.callbacks.progress import as_clock


def run(folder, refresh_rate: int = 1):
    bar = R1ProgressBar(refresh_rate)
    callbacks = [bar, MajorityVoteEvaluation(), ResponseLength()]
    trainer = trainer_of(folder, callbacks, enable_progress_bar=True)
    trainer.fit(TinyModule(num_train=5))
    return trainer


def test_a_plain_line_an_iteration_where_there_is_no_terminal(tmp_path, capsys):
    trainer = run(tmp_path)
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("iteration ")]
    assert "\r" not in out and "\x1b" not in out
    done = [line.split()[1] for line in lines]
    assert done == ["1/5", "2/5", "2/5", "3/5", "4/5", "4/5", "5/5"]  # twice: after an evaluation
    values = trainer.logger.by_step()
    for line, step in ((lines[0], 0), (lines[-1], 4)):  # this iteration's numbers, not the last's
        assert f"acc {values[step, 'train/reward/accuracy']:.2f}" in line
        assert f"len {values[step, 'train/length/mean']:.0f}" in line
        assert len(line) < 80
    assert "left" not in lines[0]  # nothing is known of an iteration that may have compiled
    assert all(re.search(r"\d+:\d\d left$", line) for line in lines[3:])
    assert [line for line in out.splitlines() if line.startswith("eval")] == ["evaluation 0/2"] * 2
    assert "val" not in lines[0]
    assert f"val {values[1, 'val/pass_at_1']:.3f}" in lines[2]


def test_the_loss_of_held_out_documents_is_shown(tmp_path, capsys):
    class Losing(TinyModule):
        def validation_step(self, batch, batch_idx):
            self.log("val/loss", 2.5, batch_size=1)
            return super().validation_step(batch, batch_idx)

    trainer_of(tmp_path, [R1ProgressBar()], enable_progress_bar=True).fit(Losing(num_train=3))
    lines = capsys.readouterr().out.splitlines()
    assert [("val loss 2.5000" in x) for x in lines if x.startswith("iteration 2")] == [False, True]


class ThreeBatches(pl.LightningModule):
    """A module of Lightning's own kind, with three batches an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.weight * batch.float().mean()

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(range(3))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([self.weight], lr=0.1)


def lines_of(folder, capsys, **named):
    trainer_of(folder, [R1ProgressBar()], enable_progress_bar=True, **named).fit(ThreeBatches())
    return capsys.readouterr().out.splitlines()


def test_iterations_are_counted_over_all_epochs(tmp_path, capsys):
    lines = lines_of(tmp_path, capsys, max_epochs=2)
    assert [line.split("  ")[0] for line in lines] == [f"iteration {i}/6" for i in range(1, 7)]
    assert "left" not in lines[0] and all(line.endswith(" left") for line in lines[1:])


def test_a_run_without_a_last_epoch_has_no_time_left(tmp_path, capsys):
    lines = lines_of(tmp_path, capsys, max_epochs=-1, max_steps=4)
    assert lines == [f"iteration {i}/?" for i in range(1, 5)]


def test_refresh_rate_thins_the_lines(tmp_path, capsys):
    run(tmp_path, refresh_rate=3)
    out = capsys.readouterr().out
    done = [line.split()[1] for line in out.splitlines() if line.startswith("iteration ")]
    assert done == ["2/5", "3/5", "4/5", "5/5"]  # 2 and 4 after evaluations, 5 is the last


def test_the_time_left_after_a_resume_counts_from_the_resume(tmp_path, capsys):
    trainer = trainer_of(tmp_path, [IterationCheckpoint()], max_steps=3)
    trainer.fit(TinyModule(num_train=5))
    capsys.readouterr()
    [checkpoint] = tmp_path.rglob("last.ckpt")
    trainer = trainer_of(tmp_path, [R1ProgressBar(), ResponseLength()], enable_progress_bar=True)
    trainer.fit(TinyModule(num_train=5), ckpt_path=checkpoint)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("iteration")]
    assert [line.split()[1] for line in lines] == ["3/5", "4/5", "4/5", "5/5"]
    assert "left" not in lines[0]
    assert all(re.search(r"  0:0\d left$", line) for line in lines[1:]), lines


def test_a_bar_on_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    run(tmp_path)
    out = capsys.readouterr().out
    assert "\r" in out and "iteration 5/5  acc " in out and "left" in out
    assert "Epoch" not in out.split("\r")[-1]
    assert max(len(part) for line in out.splitlines() for part in line.split("\r")) < 80


def test_clock():
    assert as_clock(0) == "0:00" and as_clock(59.6) == "1:00" and as_clock(7390) == "2:03:10"
