"""lm-eval loads an exported policy and scores a task of our own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import save_policy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="lm-eval is not here"),
]

TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {table}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - {{metric: acc}}
"""


def test_lm_eval_scores_an_exported_policy(tmp_path: Path):
    policy = save_policy(tmp_path / "policy", seed=3)
    rows = [
        {"question": f"{i} + {i} =", "choices": [str(2 * i), str(9 - i)], "answer": i % 2}
        for i in range(4)
    ]
    table = tmp_path / "sums.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "sums.yaml").write_text(TASK.format(table=table))
    command = [
        sys.executable, "-m", "lm_eval", "--model", "hf",
        "--model_args", f"pretrained={policy},dtype=float32", "--device", "cpu",
        "--include_path", str(tmp_path / "tasks"), "--tasks", "sums",
        "--output_path", str(tmp_path / "results"),
    ]  # fmt: skip
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (result,) = (tmp_path / "results").rglob("results_*.json")
    accuracy = json.loads(result.read_text())["results"]["sums"]["acc,none"]
    assert accuracy in {0.0, 0.25, 0.5, 0.75, 1.0}
