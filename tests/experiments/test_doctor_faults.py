"""The planted faults of experiments/doctor: their halves, their rules and their classes."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib import import_module

import yaml

from experiments.doctor.__main__ import DRAWN, HALVES, HERE, SHOWN, planted, runs
from r1lit.doctor.rules import RULES
from r1lit.files import read_records


def test_each_fault_has_a_half_and_a_rule_that_can_name_it() -> None:
    faults = planted()
    counts = Counter(fault["half"] for fault in faults.values())
    halves = ("rules", "opened", "apart", "round3", "round4", "round5")
    assert counts == {half: HALVES[half] for half in halves}
    assert all({r.name for r in RULES} & set(fault["named"]) for fault in faults.values())


def test_no_two_rounds_have_a_name_in_common() -> None:
    """A later one would replace the earlier."""
    names = [
        name for file in HERE.glob("faults*.yaml") for name in yaml.safe_load(file.read_text())
    ]
    assert len(names) == len(set(names)) == len(planted())


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
        fault, seen = faults[name] if kind == "faults" else {}, row["seen"]
        counted = seen[:1] if fault.get("first") else seen
        named = bool(set(counted) & set(fault["named"])) if fault else not seen
        assert row["ok"] == named
    for half in ("rules", "apart", "opened", "round3", "round4", "round5"):
        own = [row["ok"] for row in rows if row["half"] == half]
        assert f"(`{half}`) | {len(own)} of {HALVES[half]} | {sum(own)} named |" in readme


def test_the_figure_is_drawn_from_the_kept_rows() -> None:
    rows = read_records(HERE / "curves.jsonl")
    assert {row["run"] for row in rows} == DRAWN.keys()
    assert all(row.keys() >= SHOWN.keys() for row in rows)
