"""Repair tasks of a tiny package: each is wrong as it is, and right once mended."""

from __future__ import annotations

import ast

import pytest
from tally import CORE, FILES, write_tally

from r1lit.data import RepositoryTasks
from r1lit.environments import make_repair
from r1lit.files import append_records, read_records
from r1lit.verifiers import RepositoryVerifier


def run(monkeypatch, *words: object) -> None:
    monkeypatch.setattr("sys.argv", ["make_repair", *map(str, words)])
    make_repair.main()


def test_tasks_are_wrong_as_they_are_and_right_once_mended(tmp_path, monkeypatch):
    write_tally(tmp_path / "tally-1.0")
    out = tmp_path / "out"
    run(monkeypatch, tmp_path / "tally-1.0", "--out", out, "--most", 3, "--per-function", 2)
    rows = read_records(out / "tasks.jsonl")
    assert len(rows) == 3 and len({row["instance_id"] for row in rows}) == 3
    assert {row["split"] for row in rows} <= {"train", "validation"}
    problems = RepositoryTasks(str(out / "tasks.jsonl")).problems()
    for row, problem in zip(rows, problems, strict=True):
        assert 1 <= len(row["FAIL_TO_PASS"]) <= make_repair.MOST_BROKEN
        assert set(row["hidden"]) < set(row["FAIL_TO_PASS"])
        assert "fails:" in problem.question and "SEARCH" in problem.question
        assert not any(test.rpartition("::")[2] in problem.question for test in row["hidden"])
    verifier = RepositoryVerifier(num_workers=1)
    try:
        comment = (
            "tally/core.py\n<<<<<<< SEARCH\nimport os\n=======\nimport os  #\n>>>>>>> REPLACE\n"
        )
        verdicts = verifier.verify_batch(
            [problems[0].answer, comment, problems[1].answer],
            [problems[0], problems[0], problems[1]],
        )
        assert [v.status for v in verdicts] == ["right", "wrong", "right"], verdicts
    finally:
        verifier.close()


def test_a_command_goes_on_where_it_ended_and_stops_at_its_total(tmp_path, monkeypatch, capsys):
    folder, out = tmp_path / "tally-1.0", tmp_path / "out"
    write_tally(folder)
    table = out / "tasks.jsonl"
    append_records(table, [{"repo": "other-1.0"}])
    run(monkeypatch, folder, "--out", out, "--most", 3, "--total", 2)
    assert [row["repo"] for row in read_records(table)] == ["other-1.0", "tally-1.0"]
    run(monkeypatch, folder, "--out", out, "--most", 3)
    assert "its tasks are in" in capsys.readouterr().out
    run(monkeypatch, folder, "--out", out, "--total", 2)
    assert "2 tasks, as many as wanted" in capsys.readouterr().out
    assert len(read_records(table)) == 2


def test_tasks_with_long_questions_are_left_out(tmp_path, monkeypatch):
    folder, out = tmp_path / "tally-1.0", tmp_path / "out"
    write_tally(folder)
    run(monkeypatch, folder, "--out", out, "--most", 2)
    path = str(out / "tasks.jsonl")
    lengths = sorted(len(p.question) for p in RepositoryTasks(path).problems())
    problems = RepositoryTasks(path, most_chars=lengths[0], meta={"kind": "reasoning"}).problems()
    assert [len(problem.question) for problem in problems] == lengths[: lengths.count(lengths[0])]
    assert problems[0].meta["kind"] == "reasoning"
    with pytest.raises(ValueError, match="most_chars: 9 leaves out all 2 tasks"):
        RepositoryTasks(path, most_chars=9).problems()


def test_changes_keep_all_but_their_place_and_parse():
    found = list(make_repair.changes("tally/core.py", CORE))
    assert {c.function for c in found} >= {"total", "mean"} and len(found) >= 4
    for change in found:
        source = change.applied(CORE)
        ast.parse(source)
        assert source != CORE and len(source.splitlines()) == len(CORE.splitlines())
        assert sum(a != b for a, b in zip(source.splitlines(), CORE.splitlines(), strict=True)) == 1


def test_splits_go_by_repository_and_by_function():
    rows = [{"repo": "toolz-1.0", "function": f"a.py::f{n}"} for n in range(200)]
    splits = [make_repair.split_of(row, ["parse"]) for row in rows]
    assert set(splits) == {"train", "validation"} and splits.count("validation") < 50
    assert {make_repair.split_of(row, ["toolz"]) for row in rows} == {"test"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"tests/test_core.py": "def test_a():\n    assert False\n"},
            "no test of tally-1.0 passes",
        ),
        ({"tests/test_core.py": "x = 1\n"}, "no test of tally-1.0 passes before any change: there"),
        (
            {"tests/test_core.py": "def test_a(request):\n    assert 'test_a' in str(request)\n"},
            "no test of tally-1.0 passes in disguise: they fail under other names",
        ),
    ],
)
def test_a_library_whose_tests_do_not_pass_is_refused_in_one_line(
    tmp_path, monkeypatch, change, message
):
    folder = tmp_path / "tally-1.0"
    write_tally(folder)
    for path, content in change.items():
        assert path in FILES
        (folder / path).write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        run(monkeypatch, folder, "--out", tmp_path / "out")
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_sdist_is_refused(tmp_path, monkeypatch):
    append_records(tmp_path / "tally.zip", [{"a": 1}])
    with pytest.raises(ValueError, match=r"tally\.zip is not a tar file"):
        run(monkeypatch, tmp_path / "tally.zip", "--out", tmp_path / "out")
