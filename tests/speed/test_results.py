from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager

import pytest

from benchmarks import results
from benchmarks.results import (
    KEYS,
    Comparison,
    Entry,
    Report,
    alternate,
    commit,
    compare,
    merge,
    ratios,
    table,
)

STEPS = {"repeats": 2, "warmups": 1}


class Side:
    def __init__(self, name, seconds, calls):
        self.name, self.seconds, self.calls = name, list(seconds), calls

    @contextmanager
    def __call__(self):
        self.calls.append(f"start {self.name}")
        yield self

    def step(self):
        self.calls.append(self.name)
        return {"seconds": self.seconds.pop(0)}


def entry(work="rollout", peer="them", goal=2.0, ours=1.0, theirs=4.0, **extra):
    comparison = Comparison(ours=[{"seconds": ours}], theirs=[{"seconds": theirs}])
    return compare(comparison, work=work, model="mini", peer=peer, goal=goal, unit="s", **extra)


def test_sides_alternate_and_the_warmup_does_not_count():
    calls = []
    ours, theirs = Side("A", [9, 1, 2], calls), Side("B", [8, 4, 6], calls)
    comparison = alternate(ours, theirs, **STEPS)
    assert calls == ["start A", "start B", *["A", "B"] * 3]
    assert [s["seconds"] for s in comparison.ours] == [1, 2]
    assert [s["seconds"] for s in comparison.theirs] == [4, 6]
    assert (comparison.warmup_ours_s, comparison.warmup_theirs_s) == (9, 8)


def test_sides_that_are_alone_start_and_warm_up_in_each_turn():
    calls = []
    ours, theirs = Side("A", [9, 1, 8, 2], calls), Side("B", [7, 4, 6, 5], calls)
    comparison = alternate(ours, theirs, **STEPS, alone=True)
    assert calls == ["start A", "A", "A", "start B", "B", "B"] * 2
    assert [s["seconds"] for s in comparison.ours] == [1, 2]
    assert [s["seconds"] for s in comparison.theirs] == [4, 5]
    assert (comparison.warmup_ours_s, comparison.warmup_theirs_s) == (17, 13)


def test_ratios_are_of_pairs_and_then_the_median():
    # pairs: 4/1, 6/2, 10/1; the ratio of the medians, 6/1, would be another number
    of_time = ratios([1.0, 2.0, 1.0], [4.0, 6.0, 10.0], memory=False)
    assert of_time == {
        "ratio_median": 4.0,
        "ratio_min": 3.0,
        "ratio_max": 10.0,
        "ours": 1.0,
        "theirs": 6.0,
    }
    of_memory = ratios([1.0, 2.0], [4.0, 4.0], memory=True)
    assert (of_memory["ratio_median"], of_memory["ratio_min"]) == (0.375, 0.25)


def test_unequal_numbers_of_steps_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0], [1.0, 2.0], memory=False)


def test_a_goal_is_a_least_ratio_for_time_and_a_largest_for_memory():
    assert entry(goal=4.0).met is True
    assert entry(goal=4.1).met is False
    memory = entry(work="peak memory", goal=0.4, ours=1.0, theirs=4.0)
    assert (memory.ratio_median, memory.met) == (0.25, True)
    assert entry(work="peak memory", goal=0.2).met is False
    assert entry(goal=None).met is None


def test_merge_replaces_what_is_measured_again_and_keeps_the_rest():
    old = [entry(peer="a"), entry(peer="b"), entry(work="update", peer="a")]
    merged = merge(old, [entry(peer="b", theirs=8.0)])
    assert [(e.work, e.peer, e.ratio_median) for e in merged] == [
        ("rollout", "a", 4.0),
        ("rollout", "b", 8.0),
        ("update", "a", 4.0),
    ]


def test_a_report_is_written_after_each_piece_and_read_back(tmp_path):
    path = tmp_path / "cpu.json"
    report = Report(path, "title", "command", "cpu")
    report.add([entry(peer="a", mfu_ours=0.5)], {"bf16_gflops": 700.0})
    again = Report(path, "title", "another", "cpu")
    again.add([entry(peer="b")], {"bf16_gflops": 900.0})
    third = Report(path, "title", "third", "cpu")
    third.add([entry(peer="a", theirs=6.0)], {"bf16_gflops": 800.0})
    rows = json.loads(path.read_text())
    assert [tuple(row)[: len(KEYS)] for row in rows] == [KEYS, KEYS]
    assert [row["ratio_median"] for row in rows] == [6.0, 4.0]
    assert all({"commit", "date", "repeats"} <= set(row) for row in rows)
    assert [row["limits"]["bf16_gflops"] for row in rows] == [800.0, 900.0]
    assert Report(path, "title", "fourth", "cpu").entries[0].extra["warmup_ours_s"] == 0.0
    page = path.with_suffix(".md").read_text()
    assert "before each piece: bf16_gflops 800.0 to 900.0" in page
    assert "`third` at " in page and "; `another` at " in page and "`command`" not in page
    assert "| rollout | mini | b | **4.00** (4.00–4.00) | ≥ 2 ✓" in page


def test_the_commit_has_a_plus_when_more_than_results_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "ROOT", tmp_path)
    assert commit() == "unknown"
    code, result = tmp_path / "code.py", tmp_path / "benchmarks" / "results" / "cpu.json"
    result.parent.mkdir(parents=True)
    code.touch()
    result.touch()
    for line in (
        "init -q",
        "add .",
        "-c user.name=a -c user.email=a@b commit -qm first",
    ):
        subprocess.run(["git", *line.split()], cwd=tmp_path, check=True)
    clean = commit()
    assert len(clean) >= 7 and not clean.endswith("+")
    result.write_text("[]")
    assert commit() == clean
    code.write_text("pass")
    assert commit() == clean + "+"


def test_the_table_shows_utilisation_and_the_direction_of_goals():
    lines = table([entry(mfu_ours=0.457), entry(work="memory", goal=0.1)]).splitlines()
    assert "mfu_ours 46%" in lines[2]
    assert "≤ 0.1 ✗" in lines[3]


def test_an_entry_has_the_keys_of_the_schema():
    row = entry().to_dict()
    assert list(row)[: len(KEYS)] == list(KEYS)
    assert Entry.from_dict(row).to_dict() == row
