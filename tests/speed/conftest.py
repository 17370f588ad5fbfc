from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.models import model_directory
from benchmarks.work import Work
from benchmarks.worker import Finished, Gate


class Steps:
    """The parent's end of a gate in this process, which lets a number of steps through."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.reports: list[dict] = []

    def recv(self) -> str:
        self.left -= 1
        return "step" if self.left >= 0 else "stop"

    def send(self, report: dict) -> None:
        self.reports.append(report)


@pytest.fixture
def steps():
    """Runs a target for some steps and returns what it reported."""

    def run(target, count: int, **settings) -> list[dict]:
        parent = Steps(count)
        with suppress(Finished):
            target(Gate(parent), **settings)
        return parent.reports

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny_work(folder) -> Work:
    return Work(
        model=model_directory("tiny", folder),
        num_prompts=2,
        group_size=4,
        max_tokens=12,
        lengths=(3, 12, 1, 7, 5, 5, 12, 2),
        train_batch_size=4,
        beta=0.05,
    )
