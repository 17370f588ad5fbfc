"""What every committed notebook is held to, and how one is run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
sys.path.insert(0, str(ROOT / "notebooks"))

from execute import RUNS, TRAINS, execute  # noqa: E402


def outputs_on(notebook_name: str, run: Path) -> list[Any]:
    """Execute a notebook on a run folder; return what its cells put out. An error fails."""
    return outputs_in(execute(ROOT / "notebooks" / notebook_name, run))


def outputs_in(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def texts(outputs: list[Any]) -> list[str]:
    """Return the outputs that are read, not looked at."""
    shown = [output.get("data", {}) for output in outputs]
    return [data["text/markdown"] for data in shown if "text/markdown" in data]


def num_images(outputs: list[Any]) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_explained_and_committed_with_its_outputs(name):
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(notebook.cells) - len(code) >= 5
    if name not in RUNS and name not in TRAINS:
        assert not any(cell.outputs for cell in code), "of a run that nobody else has"
        return
    outputs = outputs_in(notebook)
    assert all(cell.execution_count for cell in code), f"python notebooks/execute.py {name}"
    if name in RUNS:
        assert num_images(outputs) >= 2 and "shown here**" in texts(outputs)[0]
    assert num_images(outputs) >= 1
    assert {output.output_type for output in outputs} <= {
        "display_data",
        "execute_result",
        "stream",
    }
    assert str(ROOT) not in str(texts(outputs))


@pytest.mark.slow
def test_the_first_steps_train_and_draw():
    made = execute(ROOT / "notebooks" / "00_first_steps.ipynb", None, R1LIT_ITERATIONS="2")
    outputs = outputs_in(made)
    assert num_images(outputs) == 1  # one picture, redrawn
    before, after = (text for text in texts(outputs) if "held-out accuracy" in text)
    assert re.fullmatch(r"held-out accuracy: \*\*0\.\d\d\*\*", before)
    assert "in 2 iterations. Training took" in after and "minutes of CPU time" in after


def test_the_first_steps_were_committed_after_a_whole_training():
    outputs = outputs_in(nbformat.read(ROOT / "notebooks" / "00_first_steps.ipynb", as_version=4))
    pattern = r"accuracy: (\S+) → \*\*(\S+)\*\* in (\d+) iterations. Training took (\S+) minutes"
    (found,) = (hit for text in texts(outputs) if (hit := re.search(pattern, text)))
    before, after, iterations, minutes = map(float, found.groups())
    assert iterations >= 16 and minutes < 5 and after > before + 0.15


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(RUNS))
def test_committed_outputs_are_those_of_the_committed_run(name):
    committed = outputs_in(nbformat.read(ROOT / "notebooks" / name, as_version=4))
    made = outputs_on(name, RUNS[name])
    assert texts(made) == texts(committed), f"stale: python notebooks/execute.py {name}"
    assert num_images(made) == num_images(committed)


def test_a_rollout_shows_characters_not_code_points():
    notebook = nbformat.read(ROOT / "notebooks" / "rollouts.ipynb", as_version=4)
    shown = "".join(texts(outputs_in(notebook)))
    code = "".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert "24. 试 2" in shown and "\\u" not in shown + code


def test_committed_runs_are_small_and_say_what_they_are():
    folder = ROOT / "notebooks/data"
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 1_000_000
    for run in (path for path in RUNS.values() if path.parent == folder):
        assert (run / "README.md").read_text().startswith("A committed, thinned copy of ")
