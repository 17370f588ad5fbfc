"""A run leaves the process as it found it, whether it ends, fails or never begins."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from tiny import data, model

from r1lit.device import Backend, backend
from r1lit.device.cpu import backend as in_place
from r1lit.device.cpu import machine

CPU = backend(torch.device("cpu"))
SHORT = data(num_iterations=1, validation=None) | {
    "trainer": {"limit_val_batches": 0, "val_check_interval": 1}
}


def settings() -> dict[str, Any]:
    """What a run might change."""
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    return {
        "frozen": gc.get_freeze_count(),
        "collects": gc.isenabled(),
        "in place": CPU.adds_gradients_in_place(weight),
        "threads": torch.get_num_threads(),
    }


class Watch(Callback):
    """Notes what a run has changed when its first iteration ends, and fails there if asked."""

    within: dict[str, Any]

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def on_train_batch_end(self, *_: Any) -> None:
        Watch.within = settings()
        if self.fails:
            raise RuntimeError("out of luck")


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """As in a process of its own; the tests as a whole are frozen."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture
def mallopt(monkeypatch) -> list[tuple[int, int]]:
    """Every setting that glibc is given, passed on to it."""
    calls: list[tuple[int, int]] = []
    libc = machine._libc()
    if libc is None:
        pytest.skip("another C library")

    class Recorded:
        malloc_trim = staticmethod(libc.malloc_trim)

        @staticmethod
        def mallopt(parameter: int, value: int) -> int:
            calls.append((parameter, value))
            return libc.mallopt(parameter, value)

    monkeypatch.setattr(machine, "_libc", Recorded)
    return calls


def restored(calls: list[tuple[int, int]]) -> bool:
    """Whether every setting was last set to glibc's own."""
    return dict(calls) == {number: default for number, _, _, default in machine.SETTINGS}


def watched(fails: bool) -> tuple[str, str]:
    watch = {"class_path": "test_run.Watch", "init_args": {"fails": fails}}
    return "--trainer.callbacks+", json.dumps([watch])


@pytest.mark.long
@pytest.mark.parametrize("fails", [False, True])
def test_a_run_undoes_what_it_did(fit, mallopt, fails):
    before = settings()
    with pytest.raises(RuntimeError, match="out of luck") if fails else nullcontext():
        fit("run", SHORT, args=watched(fails))
    assert Watch.within["frozen"] > before["frozen"], "there was something to undo"
    assert len(mallopt) == 2 * len(machine.SETTINGS) and restored(mallopt)
    assert settings() == before


def test_what_the_caller_froze_stays_as_it_is():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with CPU.running():
        made = [[] for _ in range(100)]
        assert frozen >= gc.get_freeze_count() > frozen - 100
    assert made and frozen >= gc.get_freeze_count() > frozen - 100


@pytest.mark.long
def test_so_does_a_run_that_is_refused(fit, mallopt):
    before = settings()
    with pytest.raises(ValueError, match="group_size"):
        fit("run", data(rollout={"group_size": 1}), model(train_batch_size=1))
    assert mallopt and restored(mallopt) and settings() == before


@pytest.mark.long
def test_and_one_from_python_without_the_command_line(fit, mallopt):
    cli = fit("run", data(num_iterations=2))
    mallopt.clear()
    before = settings()
    Trainer(accelerator="cpu", limit_val_batches=1, logger=False).validate(
        cli.model, datamodule=cli.datamodule
    )
    assert len(mallopt) == 2 * len(machine.SETTINGS) and restored(mallopt)
    assert settings() == before


@pytest.mark.long
def test_gradients_are_added_in_place_in_a_run_on_one_cpu_and_nowhere_else(fit, monkeypatch):
    added = []
    monkeypatch.setattr(in_place, "may_add_in_place", lambda weight: added.append(weight) or False)
    allowed = []
    enter = in_place.in_place_gradients
    monkeypatch.setattr(
        in_place, "in_place_gradients", lambda yes=True: allowed.append(yes) or enter(yes)
    )
    fit("run", SHORT)
    assert added and allowed and all(allowed)
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    elsewhere = Backend()
    with elsewhere.in_place_gradients(True), enter(True):
        assert not elsewhere.adds_gradients_in_place(weight)
        assert elsewhere.embed(torch.nn.Embedding(2, 2), torch.tensor([[1]])) is None
    assert type(backend(torch.device("meta"))) is Backend
