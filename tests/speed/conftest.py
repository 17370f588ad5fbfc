from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.models import model_directory
from benchmarks.work import Work
from benchmarks.worker import Finished, Gate


class Steps(Gate):
    """A gate that lets a number of steps through, in this process."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.reports: list[dict] = []

    def wait(self) -> None:
        if self.left == 0:
            raise Finished
        self.left -= 1

    def report(self, **result) -> None:
        self.reports.append(result)


@pytest.fixture
def steps():
    """Runs a target for some steps and returns what it reported."""

    def run(target, count: int, **settings) -> list[dict]:
        gate = Steps(count)
        with suppress(Finished):
            target(gate, **settings)
        return gate.reports

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
