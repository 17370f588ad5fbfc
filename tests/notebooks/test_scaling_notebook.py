"""The notebook of the scaling study runs on results whose sigmoids are known."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_notebooks import ROOT, outputs_on

for folder in (ROOT, ROOT / "tests/experiments"):
    sys.path.insert(0, str(folder))

from test_scaling import known_results  # noqa: E402


@pytest.mark.slow
def test_notebook_finds_the_known_asymptotes(tmp_path: Path, monkeypatch) -> None:
    lines = [json.dumps(result) + "\n" for result in known_results()]
    (tmp_path / "results.jsonl").write_text("".join(lines))
    outputs = outputs_on("scaling.ipynb", tmp_path, monkeypatch)
    shown = [output.get("data", {}) for output in outputs]
    texts = [data["text/markdown"] for data in shown if "text/markdown" in data]
    assert "| recipe 0 | 2 | 0.90" in texts[0]
    assert texts[1].startswith("A of recipe 0: 0.900; noise 0.020")
    assert sum("image/png" in data for data in shown) == 2
