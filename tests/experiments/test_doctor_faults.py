"""The planted faults of experiments/doctor: their halves, their rules and their classes."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib import import_module

from experiments.doctor.__main__ import HALVES, HERE, planted, runs
from r1lit.cli.doctor import RULES
from r1lit.files import read_records


def test_each_fault_has_a_half_and_a_rule_that_can_name_it() -> None:
    faults = planted()
    counts = Counter(fault["half"] for fault in faults.values())
    assert counts == {half: HALVES[half] for half in ("rules", "opened", "apart", "round3")}
    assert all({r.name for r in RULES} & set(fault["named"]) for fault in faults.values())


def test_each_class_that_plants_a_fault_is_there() -> None:
    text = json.dumps([change for _, change in runs()])
    paths = set(re.findall(r"experiments\.doctor\.\w+\.\w+", text))
    for module, name in (path.rsplit(".", 1) for path in paths):
        assert hasattr(import_module(module), name)
    assert len(paths) > 10


def test_the_findings_count_as_the_page_says() -> None:
    rows = read_records(HERE / "findings.jsonl")
    readme, faults = (HERE / "README.md").read_text(), planted()
    for row in rows:
        kind, name = row["run"].split("/")
        seen = set(row["seen"])
        named = bool(seen & set(faults[name]["named"])) if kind == "faults" else not seen
        assert row["ok"] == named
    for half in ("rules", "apart", "opened", "round3"):
        own = [row["ok"] for row in rows if row["half"] == half]
        assert f"(`{half}`) | {len(own)} of 15 | {sum(own)} named |" in readme
