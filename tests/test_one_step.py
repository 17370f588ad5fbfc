"""Files of r1lit whose code one iteration of ``configs/mini/aha.yaml`` runs."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import yaml
from tiny import ROOT

from r1lit.cli import main
from r1lit.modules import GRPOModule

PACKAGE = ROOT / "r1lit"
DEVICE = "r1lit/device/"
MOST = 24
"""It may only fall."""


@contextmanager
def tracing(files: set[str]) -> Iterator[None]:
    """Add to ``files`` those whose functions are called meanwhile, in threads too."""

    def called(frame: FrameType, event: str, arg: Any) -> None:
        files.add(frame.f_code.co_filename)

    gc.collect()  # or pools that earlier tests left are finalised meanwhile, and counted
    before = sys.gettrace()
    threading.settrace(called)
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)


def files_of_one_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run two iterations of the recipe, shrunk in size alone; trace their steps."""
    small = {
        "run": str(folder / "run"),
        "model": {
            "init_args": {
                "objective": {"init_args": {"max_tokens": 24}},
                "sampling": {"temperature": 1.0, "max_tokens": 24},
                "max_tokens_from": {12: 24, 55: 24},
                "validation_sampling": {"temperature": 1.0, "max_tokens": 24},
                "train_batch_size": 4,
            }
        },
        "data": {
            "init_args": {
                "rollout": {"prompts_per_iteration": 2, "group_size": 4},
                "num_iterations": 2,
                "evaluation": {"num_samples": 1, "prompts_per_batch": 2},
                "validation": [
                    {
                        "class_path": "r1lit.worlds.WorldSearch",
                        "init_args": {"split": "held_out", "num_problems": 2},
                    }
                ],
            }
        },
        "trainer": {"val_check_interval": 2},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(small))
    files: set[str] = set()
    step = GRPOModule.training_step

    def traced(self: GRPOModule, batch: Any, batch_idx: int) -> dict[str, Any]:
        with tracing(files):
            return step(self, batch, batch_idx)

    monkeypatch.setattr(GRPOModule, "training_step", traced)
    aha = ROOT / "configs" / "mini" / "aha.yaml"
    main(["fit", "-c", str(aha), "-c", str(folder / "small.yaml")])
    inside = {Path(file) for file in files if Path(file).is_relative_to(PACKAGE)}
    return sorted(path.relative_to(ROOT).as_posix() for path in inside)


def listed() -> list[str]:
    """The files of the page's list."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    block = page.split("## The files of one iteration")[1].split("```")[1]
    return [f"r1lit/{line.split()[0]}" for line in block.strip().splitlines()]


def test_one_step_runs_code_of_few_files(tmp_path, monkeypatch):
    files = files_of_one_step(tmp_path, monkeypatch)
    outside = [file for file in files if not file.startswith(DEVICE)]
    print(f"\n{len(outside)} files", *outside, sep="\n  ")
    assert outside == sorted(listed()), "docs/ARCHITECTURE.md lists them in reading order"
    assert len(outside) <= MOST
