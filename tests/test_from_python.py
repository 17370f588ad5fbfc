"""The programs of docs/FROM_PYTHON.md run, one after the other, on a policy of a few thousand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny import ROOT

PAGE = (ROOT / "docs" / "FROM_PYTHON.md").read_text()
SECTIONS = [part.partition("\n") for part in PAGE.split("\n## ")[1:]]
PROGRAMS = {
    title: re.findall(r"```python\n(.*?)```", text, re.S)[0]
    for title, _, text in SECTIONS
    if "```python" in text
}
SMALLER = {
    r'"models/search"': "POLICY",
    r"max_tokens=384": "max_tokens=8",
    r"num_problems=384": "num_problems=8",
    r"num_problems=48": "num_problems=3",
    r"num_iterations=30": "num_iterations=2",
    r"val_check_interval=10": "val_check_interval=1",
    r"prompts_per_iteration=16, group_size=16": "prompts_per_iteration=8, group_size=8",
    r"callbacks=\[CurveWriter\(\)": "callbacks=[CurveWriter(draw_every_n_iterations=0)",
    r"range\(3, 40\)": "range(3, 9)",
    r"max_seq_len=512": "max_seq_len=256",
}


def test_there_are_four_of_twenty_lines():
    assert list(PROGRAMS) == ["Reinforcement learning", "Your own reward",
                              "Supervised fine-tuning", "Evaluation"]  # fmt: skip
    for name, program in PROGRAMS.items():
        lines = [line for line in program.splitlines() if line.strip()]
        own = [line for line in lines if not line.startswith(("import", "from"))]
        assert len(own) <= 24, name


@pytest.mark.long
def test_they_run_and_leave_what_the_page_says(tmp_path: Path, policy: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    unused = set(SMALLER)
    names = {"__name__": "page"}
    for title, program in PROGRAMS.items():
        for pattern, replacement in SMALLER.items():
            wanted = repr(str(policy)) if replacement == "POLICY" else replacement
            program, count = re.subn(pattern, wanted.replace("\\", r"\\"), program)
            unused -= {pattern} if count else set()
        exec(compile(program, title, "exec"), names)
    assert not unused
    runs = tmp_path / "runs" / "python"
    assert (runs / "rl" / "policy" / "model.safetensors").is_file()
    assert (runs / "rl" / "curves.png").is_file()
    lines = [json.loads(x) for x in (runs / "brevity" / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1]
    assert all(0 < line["train/reward/brevity"] < 1 for line in lines)
    losses = (runs / "sft" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(losses[-1])["train/loss"] < json.loads(losses[0])["train/loss"]
    assert (runs / "sft" / "policy" / "model.safetensors").is_file()
    assert len((runs / "evaluation" / "responses.jsonl").read_text().splitlines()) == 12
    assert names["evaluation"].report is not None
    assert (runs / "evaluation" / "report.md").is_file()
