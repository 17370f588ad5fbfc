"""First errors of ProcessBench: its table by hand, and the whole command on solutions made here."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tiny_sweep import ROOT

from experiments.page import END, START
from experiments.process_rewards.process_bench.__main__ import NUM_GSM8K, main
from experiments.process_rewards.process_bench.report import COLUMNS, as_table
from r1lit.cli import main as r1lit
from r1lit.files import read_records


def test_table_by_hand():
    report = dict.fromkeys(COLUMNS.values(), 0.5) | {"num_examples": 9, "num_with_errors": 4}
    results = [{"variant": "MATH", "final": {"reward_model": {**report, "f1": f}}} for f in (0, 1)]
    (row,) = as_table(results).splitlines()[2:]
    assert row.startswith("| MATH | 2 | 9 (4) | 0.500 ± 0.000 |") and "| 0.500 ± 0.500 |" in row


def solutions(path: Path, num: int) -> Path:
    """Write sums of three numbers; half have a wrong first or second step."""
    rng = random.Random(0)
    with path.open("w") as file:
        for i in range(num):
            a, b, c = (rng.randint(2, 40) for _ in range(3))
            label = rng.choice((-1, -1, 0, 1))
            sums = [a + b + (label == 0), a + b + c + (label >= 0)]
            steps = [f"{a} + {b} = {sums[0]}", f"{sums[0]} + {c} = {sums[1]}"]
            asked = f"Add {a}, {b} and {c}, the {i}th."
            row = {"id": f"own-{i}", "generator": "none", "problem": asked, "steps": steps}
            row |= {"label": label, "final_answer_correct": label < 0}
            file.write(json.dumps(row) + "\n")
    return path


@pytest.mark.slow
def test_from_solutions_to_the_page(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (tmp_path / "README.md").write_text(f"# First errors\n\n{START}\n{END}\n")

    def launch(arguments: list[str], log: Path) -> int:
        r1lit(arguments)
        return 0

    path = solutions(tmp_path / "own.jsonl", NUM_GSM8K + 40)
    given = [str(path), "--seeds=0", f"--output={tmp_path}/runs", f"--report={tmp_path}"]
    assert main(given, launch) == 0, capsys.readouterr().err
    page = (tmp_path / "README.md").read_text()
    assert "| GSM8K | 1 | 80 (" in page and "| MATH | 1 | 8 (" in page
    assert [r["variant"] for r in read_records(tmp_path / "results.jsonl")] == ["GSM8K", "MATH"]
    assert (tmp_path / "process_bench.png").exists()
    assert main([str(tmp_path / "none.jsonl")], launch) == 2
    assert "none.jsonl" in capsys.readouterr().err
