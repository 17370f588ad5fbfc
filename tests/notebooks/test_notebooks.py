"""What every committed notebook is held to, and how one is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def outputs_on(notebook_name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Execute a notebook on a run folder; return what its cells put out. An error fails."""
    monkeypatch.setenv("R1LIT_RUN", str(run))
    # the kernel imports r1lit from here, installed or not
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    file = ROOT / "notebooks" / notebook_name
    notebook = nbformat.read(file, as_version=4)
    client = NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(file.parent)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]
    return outputs


@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "notebooks").glob("*.ipynb")))
def test_notebook_is_committed_without_outputs_and_explained(name):
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert len(notebook.cells) - len(code) >= 5
