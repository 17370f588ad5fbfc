"""Repair tasks of a tiny package: each is wrong as it is, and right once mended."""

from __future__ import annotations

import ast
import shutil
import tarfile
from pathlib import Path

import pytest
from http_server import HTTPServer, Received, send
from tally import CORE, FILES, write_tally

from r1lit.data import RepositoryTasks
from r1lit.environments import code_changes, libraries, make_repair
from r1lit.files import append_records, held, read_records
from r1lit.sandbox import LocalSandbox
from r1lit.sandbox.repository import name_of
from r1lit.verifiers import RepositoryVerifier


def run(monkeypatch, *words: object) -> None:
    monkeypatch.setattr("sys.argv", ["make_repair", *map(str, words)])
    make_repair.main()


@pytest.mark.long
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


@pytest.mark.long
def test_a_command_goes_on_where_it_ended_and_stops_at_its_total(tmp_path, monkeypatch, capsys):
    folder, out = tmp_path / "tally-1.0", tmp_path / "out"
    write_tally(folder)
    table = out / "tasks.jsonl"
    append_records(table, [{"repo": "other-1.0", "function": "a.py::f", "instance_id": "a"}])
    run(monkeypatch, folder, "--out", out, "--most", 3, "--total", 2)
    assert [row["repo"] for row in read_records(table)] == ["other-1.0", "tally-1.0"]
    monkeypatch.setattr(make_repair, "suite_of", None)  # its tests do not run again
    shutil.rmtree(folder)  # nor is it fetched
    run(monkeypatch, folder, "--out", out, "--most", 3)
    rows = read_records(table)
    assert len(rows) == 4
    run(monkeypatch, folder, "--out", out, "--most", 3)
    run(monkeypatch, folder, "--out", out, "--total", 2)
    said = capsys.readouterr().out
    assert "3 tasks are in" in said and "4 tasks, as many as wanted" in said
    assert read_records(table) == rows
    with pytest.raises(ValueError, match=r"seed: 1, but the changes of tally-1\.0 .* seed 0"):
        run(monkeypatch, folder, "--out", out, "--most", 9, "--seed", 1)
    whole = tmp_path / "whole"
    write_tally(folder)
    monkeypatch.undo()
    run(monkeypatch, folder, "--out", whole, "--most", 3, "--num-workers", 1)
    assert read_records(whole / "tasks.jsonl") == rows[1:]
    table = (whole / "libraries.md").read_text()
    assert table.splitlines()[2].startswith("| tally-1.0 | 6 |")


def test_a_second_command_in_the_same_folder_is_refused(tmp_path, monkeypatch):
    with (
        held(tmp_path / ".lock"),
        pytest.raises(ValueError, match="in use by another make_repair"),
    ):
        run(monkeypatch, "toolz", "--out", tmp_path)
    with held(tmp_path / ".lock") as lock:
        assert lock is not None


@pytest.mark.long
def test_libraries_without_tests_that_pass_are_left_out_and_named(tmp_path, monkeypatch, capsys):
    for name in ("none-1.0", "tally-1.0"):
        write_tally(tmp_path / name)
    (tmp_path / "none-1.0" / "tests" / "test_core.py").write_text("import absent_module\n")
    files = tmp_path / "libraries.txt"
    files.write_text(f"{tmp_path / 'none-1.0'}\n{tmp_path / 'tally-1.0'}\n")
    out = tmp_path / "out"
    run(monkeypatch, f"@{files}", "--out", out, "--most", 1, "--held-out", "Tally")
    why = "no test of none-1.0 passes before any change: ModuleNotFoundError: No module named"
    assert f"left out: library: {why} 'absent_module'" in capsys.readouterr().out
    assert why in (out / "libraries.md").read_text()
    assert [row["split"] for row in read_records(out / "tasks.jsonl")] == ["test"]
    with pytest.raises(ValueError, match="held_out: 'toolz' is not one of the libraries"):
        run(monkeypatch, tmp_path / "tally-1.0", "--out", out, "--held-out", "toolz")


@pytest.mark.long
def test_files_that_are_not_python_are_left_as_they_are(tmp_path, monkeypatch):
    folder, out = tmp_path / "tally-1.0", tmp_path / "out"
    write_tally(folder)
    for path in ("tally/old.py", "tests/test_old.py", "tests/bad.py"):
        (folder / path).write_text("print 1\n")
    run(monkeypatch, folder, "--out", out, "--most", 1)
    problem, *_ = RepositoryTasks(str(out / "tasks.jsonl")).problems()
    verifier = RepositoryVerifier(num_workers=1)
    try:
        assert verifier.verify(verifier.gold_text(problem), problem).status == "right"
    finally:
        verifier.close()


@pytest.mark.long
def test_a_folder_may_hold_the_tasks_and_is_copied_without_them(tmp_path, monkeypatch):
    write_tally(tmp_path)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, ".", "--out", "runs/repair", "--most", 1)
    copied = tmp_path / "runs" / "repair" / "repositories" / tmp_path.name
    assert (copied / "tally" / "core.py").is_file() and not (copied / "runs" / "repair").exists()


TWICE = """class TestA:
    def test_one(self):
        assert 1 == 1


class TestB(TestA):
    def test_one(self):
        assert 1 == 2
"""


def test_an_issue_shows_the_code_of_its_test_and_what_all_runs_have_in_common():
    (change,) = code_changes.changes("tally/core.py", "def f():\n    return 1\n")
    files = {"test_a.py": TWICE}
    seen = [
        f"E   TypeError: <A at 0x7f{n}a81d0>\nE   in /program/repository/a.py\nE   at {n}"
        for n in (1, 2)
    ]
    text = make_repair.statement(files, change, "test_a.py::TestB::test_one", seen, 0)
    assert "assert 1 == 2" in text and "assert 1 == 1" not in text
    assert text.endswith("    TypeError: <A at 0x…>\n    in a.py\n")
    text = make_repair.statement(files, change, "test_a.py::TestB::test_two", [""], 0)
    assert "(no message)" in text


@pytest.mark.long
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
    found = list(code_changes.changes("tally/core.py", CORE))
    assert {c.function for c in found} >= {"total", "mean"} and len(found) >= 4
    for change in found:
        source = change.applied(CORE)
        ast.parse(source)
        assert source != CORE and len(source.splitlines()) == len(CORE.splitlines())
        assert sum(a != b for a, b in zip(source.splitlines(), CORE.splitlines(), strict=True)) == 1


@pytest.mark.parametrize(
    ("condition", "kinds"),
    [
        ("a == b", ["=="]),
        ("not a", ["removed not"]),
        ("a not in b", ["not in"]),
        ("a < b", ["negated condition", "<"]),
        ("a == b == c", ["negated condition", "=="]),
        ("a", ["negated condition"]),
    ],
)
def test_a_condition_is_negated_once(condition, kinds):
    found = code_changes.changes("f.py", f"def f(a, b, c):\n    if {condition}:\n        pass\n")
    assert [change.kind for change in found] == kinds


def test_splits_go_by_repository_and_by_function():
    rows = [{"repo": "toolz-1.0", "function": f"a.py::f{n}"} for n in range(200)]
    splits = [make_repair.split_of(row, ["parse"]) for row in rows]
    assert set(splits) == {"train", "validation"} and splits.count("validation") < 50
    assert {make_repair.split_of(row, ["Toolz"]) for row in rows} == {"test"}
    row = {"repo": "more_itertools-10.8.0", "function": "a.py::f"}
    assert make_repair.split_of(row, ["more-itertools==10.8.0"]) == "test"
    assert make_repair.split_of(row, ["more"]) != "test"


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"tests/test_core.py": "def test_a():\n    assert False\n"},
            "no test of tally-1.0 passes",
        ),
        ({"tests/test_core.py": "x = 1\n"}, "no test of tally-1.0 passes before any change: there"),
        ({"tests/test_core.py": "print 1\n"}, r"tally-1.0 has no test files \(test_"),
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


@pytest.mark.long
def test_a_change_is_judged_by_the_tests_that_call_its_function(tmp_path):
    folder = tmp_path / "tally-1.0"
    write_tally(folder)
    extended = CORE + "\n\ndef unused(a):\n    return a + 1\n\n\ndef one():\n    return 1 + 0\n"
    (folder / "tally" / "core.py").write_text(extended + "\n\nONE = one()\n")
    with LocalSandbox() as sandbox:
        suite = make_repair.suite_of(sandbox, folder)
        near = {
            change.function: [name_of(test) for test in suite.near(change)]
            for change in make_repair.changes_of(suite, 0)
        }
        assert sorted(near["mean"]) == ["test_mean", "test_mean"]
        assert set(near["total"]) == {"test_mean", "test_one", "test_hidden", "test_total"}
        assert len(near["one"]) == len(suite.stable) == 6 and near["unused"] == []
        unused = [c for c in make_repair.changes_of(suite, 0) if c.function == "unused"]
        assert make_repair.attempt(sandbox, suite, unused[0], 0) == ("not called", None)


def test_a_test_that_cannot_run_twice_in_one_process_decides_too(tmp_path):
    folder = tmp_path / "tally-1.0"
    write_tally(folder)
    (folder / "tests" / "test_state.py").write_text(
        "import unittest\nseen = []\n"
        "def test_once():\n    seen.append(1)\n    assert len(seen) == 1\n"
        "def test_always():\n    assert True\n"
        "class TestOnce(unittest.TestCase):\n"
        "    own = []\n"
        "    def test_once_too(self):\n        self.own.append(1)\n"
        "        self.assertEqual(len(self.own), 1)\n"
    )
    with LocalSandbox() as sandbox:
        stable = make_repair.suite_of(sandbox, folder).stable
    once = {"test_once", "test_once_too"}  # a verdict runs each test once, in a new process
    assert {name_of(t) for t in stable if "test_state" in t} == {"test_always", *once}
    assert any("test_state" not in test for test in stable)


def test_an_sdist_that_is_torn_or_holds_no_folder_is_refused(tmp_path):
    write_tally(tmp_path / "tally-1.0")
    whole = tmp_path / "tally-1.0.tar.gz"
    with tarfile.open(whole, "w:gz") as file:
        file.add(tmp_path / "tally-1.0", "tally-1.0")
    out = tmp_path / "out"
    out.mkdir()
    assert (libraries.fetch(str(whole), out) / "tally" / "core.py").read_text() == CORE
    torn = tmp_path / "torn-1.0.tar.gz"
    torn.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"torn-1\.0\.tar\.gz (cannot be unpacked|is not a tar)"):
        libraries.fetch(str(torn), out)
    flat = tmp_path / "flat.tar"
    with tarfile.open(flat, "w") as file:
        file.add(tmp_path / "tally-1.0" / "README.md", "README.md")
    with pytest.raises(ValueError, match=r"flat\.tar holds 0 folders"):
        libraries.fetch(str(flat), out)
    assert [path.name for path in out.iterdir()] == ["tally-1.0"]


@pytest.fixture
def index(monkeypatch):
    """A package index with wheels of ``wheelie`` and sdists of ``old``, which pip asks."""

    def answer(request: Received):
        files = {"/wheelie/": "wheelie-1.0-py3-none-any.whl", "/old/": "old-1.0.tar.gz"}
        if request.path not in files:
            return 404, "none"
        name = files[request.path]
        page = f"<!DOCTYPE html><html><body><a href='/{name}'>{name}</a></body></html>"
        return lambda handler: send(handler, 200, page, Content_Type="text/html")

    server = HTTPServer(answer)
    for key, value in (("INDEX_URL", server.url), ("RETRIES", "0"), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{key}", value)
    for key in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(key, raising=False)
    yield server
    server.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("wheelie", "on the package index as wheels only; name an sdist or a folder"),
        ("absent", "the package index has no such library"),
        ("old==9.9", "there is no sdist of such a version; the latest are 1.0"),
        ("not a name", "pip cannot get its sdist: ERROR: Invalid requirement"),
    ],
)
def test_a_library_that_cannot_be_had_is_named_with_the_reason(tmp_path, index, library, message):
    with pytest.raises(ValueError, match=message) as error:
        libraries.fetch(library, tmp_path)
    assert "\n" not in str(error.value) and repr(library) in str(error.value)


@pytest.mark.long
def test_without_a_network_the_message_says_so(tmp_path, index, monkeypatch):
    index.close()
    with pytest.raises(ValueError, match="the package index cannot be reached"):
        libraries.fetch("toolz", tmp_path)
    assert not list(Path(tmp_path).iterdir())
