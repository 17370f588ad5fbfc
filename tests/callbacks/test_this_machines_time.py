"""After two iterations a run says what the others will take here."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tiny_run import TinyModule, trainer_of

from r1lit.callbacks import EvaluateFirst, LastLines, progress


class Slow(TinyModule):
    def training_step(self, batch, batch_idx):
        time.sleep(0.2 if batch_idx else 0.6)  # the first one compiles
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        time.sleep(0.15)
        return super().validation_step(batch, batch_idx)


def said_by(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    callbacks = [EvaluateFirst(), LastLines()]
    trainer_of(folder, callbacks, val_check_interval=3).fit(Slow(num_train=7))
    return [x for x in capsys.readouterr().err.splitlines() if x.startswith("This machine")]


@pytest.mark.long
def test_the_time_left_is_that_of_the_second_iteration_and_of_evaluations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert not said_by(tmp_path, capsys), "seconds are not worth a line"
    monkeypatch.setattr(progress, "WORTH_SAYING_S", 0.5)
    [line] = said_by(tmp_path, capsys)
    assert "5 iterations of 0.2 s, as the second, and 2 evaluations of 0." in line
