"""The check of repository tasks: it passes sound ones, and names each kind of unsound ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tally import CALLS, CORE, FAIL, GOLD, TEST, calls_of, write_tally

from r1lit.evaluation import check_repositories
from r1lit.files import append_records, read_records
from r1lit.text.patches import reverse_diff, write_diff

KEPT = f"{TEST}test_largest"


def row(name: str, patch: str = GOLD, **changed: object) -> dict[str, object]:
    return {
        "instance_id": name,
        "repo": "tally-1.0",
        "problem_statement": "It is wrong.",
        "patch": patch,
        "bug": reverse_diff(patch),
        "FAIL_TO_PASS": FAIL,
        "PASS_TO_PASS": [KEPT],
        "context": [["tally/core.py", 8, 13]],
        "function": "tally/core.py::total",
        "split": "train",
        **changed,
    }


def change(old: str, new: str) -> str:
    return write_diff({"tally/core.py": CORE.replace(old, new)}, {"tally/core.py": CORE})


def check(
    monkeypatch, folder: Path, *rows: dict[str, object], times: int = 2, alone: bool = False
) -> int:
    write_tally(folder / "repositories" / "tally-1.0")
    append_records(folder / "tasks.jsonl", rows)
    words = [str(folder / "tasks.jsonl"), "--num-workers", "1", "--times", str(times)]
    words += ["--tests-alone"] * alone
    monkeypatch.setattr("sys.argv", ["check_repositories", *words])
    try:
        check_repositories.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.long
def test_sound_tasks_pass_and_are_decided_once(tmp_path, monkeypatch, capsys):
    other = change("len(values)", "1")
    mean = {"FAIL_TO_PASS": FAIL[1:3], "function": "tally/core.py::mean"}
    mean["calls"] = calls_of("mean", {(1, 3): 2.0, (2, 2): 2.0})
    rows = (row("a", calls=CALLS), row("b", other, **mean))
    assert check(monkeypatch, tmp_path, *rows) == 0
    said = capsys.readouterr().out
    assert "fix, to be right: 4 right (2 tasks)" in said
    assert "comment, to be wrong: 4 wrong (2 tasks)" in said
    monkeypatch.setattr(check_repositories.RepositoryVerifier, "verify_batch", None)
    assert check(monkeypatch, tmp_path) == 0
    assert capsys.readouterr().out == said


@pytest.mark.long
def test_each_kind_of_unsound_task_is_named(tmp_path, monkeypatch, capsys):
    rows = (
        row("a"),
        row("same", change("result += value", "result -= (value)"), split="validation"),
        row("harmless", change("return max(values)", "return (max(values))"), split="test"),
    )
    assert check(monkeypatch, tmp_path, *rows, times=1, alone=True) == 1
    said = capsys.readouterr().out
    assert "comment, to be wrong: 2 wrong, 1 right (3 tasks)" in said
    assert "not as it should be: harmless: comment: right" in said
    assert "the same: a, same" in said
    assert "shared: tally\n" in said and "shared: tally-1.0 tally/core.py::total" in said
    assert "shared: code of def total(values):" in said


@pytest.mark.long
def test_a_harmless_change_is_an_error_where_calls_decide(tmp_path, monkeypatch, capsys):
    calls = calls_of("largest", {(1, 2): 2})
    harmless = row("harmless", change("return max(values)", "return (max(values))"), calls=calls)
    assert check(monkeypatch, tmp_path, harmless, times=1) == 1
    assert "harmless: fix: error: no freshly drawn call tells" in capsys.readouterr().out


def test_tasks_without_calls_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"meta\.calls: problem 'a' has 'None', .* tests_alone"):
        check(monkeypatch, tmp_path, row("a"))


def test_verdicts_that_differ_between_times_are_counted():
    statuses = ("right", "timeout", "wrong", "wrong")
    rows = [
        {"uid": "a", "patch": patch, "time": time, "status": status, "reason": ""}
        for patch, time, status in zip(
            ("fix", "fix", "comment", "comment"), (0, 1, 0, 1), statuses, strict=True
        )
    ]
    lines, wrong = check_repositories.report(rows, 1)
    assert lines[-1] == "verdicts that differ between times: 1 tasks"
    assert wrong == ["a: fix: timeout: "]


def test_a_table_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["check_repositories", str(tmp_path / "tasks.jsonl")])
    with pytest.raises(ValueError, match=r"tasks\.jsonl"):
        check_repositories.main()
    assert not read_records(tmp_path / "checks.jsonl")
