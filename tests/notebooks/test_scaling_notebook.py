"""The notebook of the scaling study runs on results whose sigmoids are known."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_notebooks import ROOT, num_images, outputs_on, texts

for folder in (ROOT, ROOT / "tests/experiments"):
    sys.path.insert(0, str(folder))

from test_scaling import KNOWN, curve  # noqa: E402


def known_results() -> list[dict[str, object]]:
    return [
        {
            "variant": f"recipe {index}",
            "seed": seed,
            "curve": [(1e4 * c, r) for c, r in curve(known, noise=0.002 * seed)],
            "evaluations": [{"pass_at_1_stderr": 0.02}],
        }
        for index, known in enumerate(KNOWN)
        for seed in (0, 1)
    ]


@pytest.mark.slow
def test_notebook_finds_the_known_asymptotes(tmp_path: Path) -> None:
    lines = [json.dumps(result) + "\n" for result in known_results()]
    (tmp_path / "results.jsonl").write_text("".join(lines))
    outputs = outputs_on("scaling.ipynb", tmp_path)
    _, table, known = texts(outputs)[:3]
    assert "| recipe 0 | 2 | 0.90" in table
    assert known.startswith("A of recipe 0: 0.900; noise 0.020")
    assert num_images(outputs) == 2
