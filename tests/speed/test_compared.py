"""The tasks of docs/RECIPES.md in r1lit and in TRL: the page's table, and one task of both run."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
import yaml

from benchmarks.compared.__main__ import PAGE_OUT, RESULTS, main
from benchmarks.compared.tasks import num_lines, ours, theirs


def test_lines_are_code_and_configuration():
    script = '"""What it does,\nand why."""\n\nimport re\n\n# a note\nx = re\n'
    assert num_lines({"a.py": script, "b.jsonl": "{}\n{}\n", "c.yaml": "a: 1  # one\n"}) == 3


def test_every_task_has_both_sides():
    mine, other = ours(), theirs()
    assert list(mine) == list(other) and len(mine) == 13
    assert mine["Own problems"].lines()[0] == 9
    assert set(mine["LoRA"].presets) == {"r1lit:mini/r1_zero.yaml", "r1lit:hardware/lora.yaml"}
    assert set(mine["A sweep"].presets) == {"r1lit:mini/r1_zero.yaml"}
    assert all(task.commands for task in mine.values())
    assert all(task.commands or task.missing for task in other.values())


def test_the_page_has_what_was_run():
    page, results = PAGE_OUT.read_text(), json.loads(RESULTS.read_text())
    rows = {line.split(" | ")[0].strip("| "): line for line in reversed(page.splitlines())}
    for name in theirs():
        assert page.count(f"| {name} |") == 2
        for side, column in (("r1lit", 1), ("trl", 2)):
            result = results["tasks"].get(name, {}).get(side)
            cell = rows[name].split(" | ")[column]
            assert cell.endswith(f"{result['seconds']:.0f} s" if result else ("not run", "–"))
    tools = yaml.safe_load((RESULTS.parents[1] / "compared" / "elsewhere.yaml").read_text())
    linked = [tool[name]["source"] for tool in tools.values() for name in theirs()]
    assert len(re.findall(r"\]\(https://github", page)) == sum(
        source is not None for source in linked
    )


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="no trl")
def test_both_sides_of_a_task_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    options = ["--output", str(tmp_path / "results.json"), "--page", str(page)]
    assert main(["--only", "Supervised fine-tuning", *options]) == 0
    results = json.loads((tmp_path / "results.json").read_text())["tasks"]
    assert set(results["Supervised fine-tuning"]) == {"r1lit", "trl"}
    text = page.read_text()
    assert text.startswith("# Before") and text.endswith("after\n") and "old" not in text
    assert "| LoRA | 0 + " in text
