"""Executes notebooks on the committed runs and writes their outputs into them.

    python notebooks/execute.py                    # all that have a committed run
    python notebooks/execute.py rollouts.ipynb
    python notebooks/execute.py 00_first_steps.ipynb    # trains, for minutes
    python notebooks/execute.py course/1_advantages.ipynb    # and so do those of the course

To be called when a notebook, the code that it calls or its run changes; a test compares.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
RUNS = {
    "aha_moment.ipynb": HERE / "data/aha",
    "r1_stages.ipynb": HERE / "data/r1",
    "rollouts.ipynb": HERE / "data/rollout",
    "scaling.ipynb": HERE.parent / "experiments/scaling",
    "stages_against_paper.ipynb": HERE.parent / "experiments/r1/results",
    "what_rl_adds.ipynb": HERE.parent / "experiments/what_rl_adds",
}
"""What the committed outputs of each are of."""

COURSE = (
    "course/1_advantages.ipynb",
    "course/2_r1_zero.ipynb",
    "course/3_cold_start_and_reward_models.ipynb",
    "course/4_distillation_and_error_bars.ipynb",
)
"""The course, in its order."""

TRAINS = ("00_first_steps.ipynb", *COURSE)
"""Those that train or calculate, and need no run."""
TIMEOUT_S = 1200  # of a cell: training on a busy machine


def execute(path: Path, run: Path | None, **environment: str) -> Any:
    """Return the notebook with the outputs that it has on a run folder; an error is raised."""
    notebook = nbformat.read(path, as_version=4)
    # the kernel imports r1lit from here, installed or not
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    changed = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    changed |= {} if run is None else {"R1LIT_RUN": str(run)}
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=TIMEOUT_S, resources=resources, record_timing=False)
    client.execute(env=os.environ | changed)
    for cell in notebook.cells:  # no warnings of the machine that executed it
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    return notebook


def main(names: list[str]) -> None:
    """Execute the notebooks named, or all, and write them."""
    for name in names or RUNS:
        nbformat.write(execute(HERE / name, RUNS.get(name)), HERE / name)
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
