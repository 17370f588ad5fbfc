"""The notebook of the stages runs from top to bottom on a run folder that the command line made."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_notebooks import num_images, outputs_on, texts

ROOT = Path(__file__).parents[2]
for folder in (ROOT, ROOT / "tests/experiments/r1"):
    sys.path.insert(0, str(folder))

from tiny_stages import make_run  # noqa: E402

# as r1lit.callbacks.RejectionSampling writes them
DROPPED = [
    {"uid": "a", "sample": 0, "filter": "correct", "why": "wrong: no digit", "text": "<think>x"},
    {"uid": "a", "sample": 1, "filter": "mixed_language", "why": "0.4 of words", "text": "hm 好"},
    {"uid": "b", "sample": 0, "filter": "correct", "why": "unparsed", "text": ""},
]
CARD = {"num_problems": 2, "num_drawn": 8, "num_kept": 5, "num_dropped": 3}
CARD["losses"] = [{"filter": "correct", "dropped": 2}, {"filter": "mixed_language", "dropped": 1}]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    run = make_run(tmp_path_factory.mktemp("notebook"))
    folder = run / "rejection"
    folder.mkdir()
    lines = "".join(json.dumps(record) + "\n" for record in DROPPED)
    (folder / "dropped.jsonl").write_text(lines)
    (folder / "card.json").write_text(json.dumps(CARD))
    return run


@pytest.mark.slow
def test_notebook_runs_on_a_run_folder(run_folder):
    outputs = outputs_on("r1_stages.ipynb", run_folder)
    assert num_images(outputs) == 2
    first, table, moves, *said = texts(outputs)
    assert first.endswith("A run of your own.")
    assert "| R1-Zero |" in table and "| the paper, v2 Table 3 |" in table
    assert "directions of the paper's table" in moves and "| cold start |" in moves
    shown = [text for text in said if text.startswith("### ") and "**R1-Zero**" in text]
    assert len(shown) == 5  # prompts, each answered by five stages
    assert all(text.count("tokens") >= 5 for text in shown)
    assert {"(reasoning)", "(general)", "(harmful)"} <= {text.splitlines()[2] for text in shown}
    [rejected] = [text for text in said if "rejection: 5 of 8 responses kept" in text]
    assert "| correct | 2 |" in rejected and "**mixed_language**: 0.4 of words" in rejected
    assert "| R1-Zero | 8 |" in said[-1]  # 2 general problems x 4 responses, unless one is empty
