"""Executes notebooks on the committed runs and writes their outputs into them.

    python notebooks/execute.py                    # all that have a committed run
    python notebooks/execute.py rollouts.ipynb

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


def execute(path: Path, run: Path) -> Any:
    """Return the notebook with the outputs that it has on a run folder; an error is raised."""
    notebook = nbformat.read(path, as_version=4)
    # the kernel imports r1lit from here, installed or not
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    changed = {"R1LIT_RUN": str(run), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=300, resources=resources, record_timing=False)
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
        nbformat.write(execute(HERE / name, RUNS[name]), HERE / name)
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
