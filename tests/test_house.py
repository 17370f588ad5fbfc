"""What one needs to hold of r1lit: what an import loads, and what one iteration runs.

Each measure is printed. A test fails when one gets 5 % worse than ``golden/house.json`` says;
with R1LIT_WRITE_GOLDEN=1 in the environment the file is written.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import house
import pytest
import yaml
from tiny import ROOT

from r1lit.cli import main
from r1lit.modules import GRPOModule
from r1lit.refused import PACKAGES
from r1lit.verifiers.base import DEFAULTS
from r1lit.worlds import WorldSearch

PACKAGE = ROOT / "r1lit"
DEVICE = PACKAGE / "device"
GOLDEN = Path(__file__).parent / "golden" / "house.json"
IMPORTED = ("r1lit.modules.grpo", "r1lit.modules.sft", "r1lit.verifiers.base")
SLACK = 1.05

Lines = set[tuple[str, int]]


@contextmanager
def tracing(lines: Lines) -> Iterator[None]:
    """Add to ``lines`` those of r1lit that are run meanwhile, in threads too: file and number."""
    package = str(PACKAGE)

    def run(frame: FrameType, event: str, arg: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return run

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(package) or frame.f_code.co_name == "<module>":
            return None  # a file that is imported late is not entered by that
        return run(frame, event, arg)

    gc.collect()  # or pools that earlier tests left are finalised meanwhile, and counted
    before = sys.gettrace()
    threading.settrace(called)
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)


def small_run(folder: Path) -> list[str]:
    """Return the command of two iterations of the recipe, shrunk in size alone."""
    small = {
        "run": str(folder / "run"),
        "model": {
            "init_args": {
                "objective": {"init_args": {"max_tokens": 24}},
                "sampling": {"temperature": 1.0, "max_tokens": 24},
                "max_tokens_from": {12: 24, 55: 24},
                "validation_sampling": {"temperature": 1.0, "max_tokens": 24},
                "train_batch_size": 4,
                "engine": {"init_args": {"compile": False}},  # or some functions run no lines
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
    return ["fit", "-c", str(ROOT / "configs/mini/aha.yaml"), "-c", str(folder / "small.yaml")]


@pytest.fixture(scope="module")
def lines_of_a_step(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """The lines that two iterations run, without the evaluation after them."""
    lines: Lines = set()
    step = GRPOModule.training_step

    def traced(self: GRPOModule, batch: Any, batch_idx: int) -> dict[str, Any]:
        with tracing(lines):
            return step(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GRPOModule, "training_step", traced)
        main(small_run(tmp_path_factory.mktemp("step")))
    return lines


def entered(lines: Lines) -> list[Path]:
    """Return the files of the lines but those of a device."""
    return sorted({Path(file) for file, _ in lines if not Path(file).is_relative_to(DEVICE)})


def listed() -> list[str]:
    """The files of the page's list."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    block = page.split("## The files of one iteration")[1].split("```")[1]
    return [f"r1lit/{line.split()[0]}" for line in block.strip().splitlines()]


def test_the_page_lists_the_files_of_one_step(lines_of_a_step: Lines):
    files = [path.relative_to(ROOT).as_posix() for path in entered(lines_of_a_step)]
    assert files == sorted(listed()), "docs/ARCHITECTURE.md lists them in reading order"


def test_the_page_begins_with_the_iteration():
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    source = textwrap.dedent(inspect.getsource(GRPOModule.training_step)).strip()
    assert page.split("```python")[1].split("```")[0].strip() == source


def measure_step(lines: Lines) -> dict[str, float]:
    """Return the lines of the files entered, and the share run of the statements in functions."""
    files = entered(lines)
    in_functions = {(str(f), line) for f in files for line in house.statements(f)}
    return {
        "files entered by a step": len(files),
        "lines of the files entered by a step": house.num_lines(files),
        "share of their statements that it runs": len(in_functions & lines) / len(in_functions),
    }


def measure_imports() -> dict[str, float]:
    """Return the files, and their lines, that imports load."""
    found: dict[str, float] = {}
    for module in IMPORTED:
        files = house.loaded_by(module)
        found[f"files loaded by import {module}"] = len(files)
        found[f"lines loaded by import {module}"] = house.num_lines(files)
    return found


def closure_of_aha() -> set[Path]:
    """Return the files of the classes that the recipe names, and of the command line."""
    config = yaml.safe_load((ROOT / "configs/mini/aha.yaml").read_text())
    problems = WorldSearch(split="train", num_problems=1).problems()
    verifiers = {DEFAULTS[problem.verifier] for problem in problems}
    packages = {f"r1lit.{package}" for package in PACKAGES}  # their stubs list bare names
    command = {"r1lit.cli", "r1lit.cli.command"}
    return house.closure(command | packages | house.class_paths(config) | verifiers)


@pytest.fixture(scope="module")
def files_of_a_run(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files in memory after a run that may import nothing outside of its closure."""
    files, refused = house.run_within(closure_of_aha(), small_run(tmp_path_factory.mktemp("run")))
    assert refused
    return files


def measure_run(files: list[Path]) -> dict[str, float]:
    """Return the files, and their lines, that a run has in memory when it ends."""
    return {
        "files in memory after a run": len(files),
        "lines in memory after a run": house.num_lines(files),
    }


@pytest.mark.long
def test_a_run_needs_no_file_that_its_classes_do_not_import(files_of_a_run: list[Path]):
    """All others could be deleted."""
    assert len(house.FILES) - len(closure_of_aha()) > 100
    check(measure_run(files_of_a_run))


def check(measured: dict[str, float]) -> None:
    """Print measures, and compare them with the file."""
    golden = json.loads(GOLDEN.read_text())
    print(*(f"\n{name}: {value:.4g} ({golden[name]:.4g})" for name, value in measured.items()))
    for name, value in measured.items():
        if name.startswith("share"):
            assert value >= golden[name] / SLACK, name
        else:
            assert value <= golden[name] * SLACK, name


def test_a_step_enters_few_lines_and_runs_many_of_them(lines_of_a_step: Lines):
    check(measure_step(lines_of_a_step))


@pytest.mark.long
def test_an_import_loads_what_it_names():
    check(measure_imports())


def test_worse_measures_are_refused():
    golden = json.loads(GOLDEN.read_text())
    share = "share of their statements that it runs"
    check({share: golden[share] / 1.04})
    with pytest.raises(AssertionError, match=share):
        check({share: golden[share] / 1.06})
    files = "files entered by a step"
    with pytest.raises(AssertionError, match=files):
        check({files: golden[files] * 1.06})


@pytest.mark.skipif("R1LIT_WRITE_GOLDEN" not in os.environ, reason="writes golden/house.json")
def test_write_the_measures(lines_of_a_step: Lines, files_of_a_run: list[Path]):
    measured = measure_imports() | measure_step(lines_of_a_step) | measure_run(files_of_a_run)
    GOLDEN.write_text(json.dumps(measured, indent=1) + "\n")
