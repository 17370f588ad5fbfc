"""``r1lit-score``: lines in, verdicts out, and again after every kind of trouble."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r1lit.batches import Problem, Verdict
from r1lit.evaluation import score
from r1lit.evaluation.compare import compare_runs
from r1lit.verifiers import (
    CountdownVerifier,
    DefaultVerifiers,
    Grader,
    MathVerifier,
    Verifier,
)
from r1lit.verifiers.base import DEFAULTS, conclude

LINES = [
    {"response": "<answer> 4 </answer>", "answer": "4"},
    {"response": r"so \boxed{\frac{1}{2}}", "answer": 0.5},
    {"response": "<answer> 5 </answer>", "answer": 4.0},
    {"response": "no idea", "answer": "4"},
]
STATUSES = ["right", "right", "wrong", "unparsed"]


def write(path: Path, lines: Sequence[Any]) -> Path:
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def problem_of_line(line: dict[str, Any], name: str, uid: str, source: str) -> Problem:
    return score.problem_of(line, name, DefaultVerifiers()[name].needs, uid, source)


class Counting(Verifier):
    """Gives a right verdict for text that holds the answer, and remembers what it was asked."""

    needs = (("answer",),)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def verify(self, response: str, problem: Problem) -> Verdict:
        self.asked.append(response)
        right = problem.answer in response
        verdict = conclude("right" if right else "wrong", None, "")
        return replace(verdict, seconds=0.001)  # the same in every run: outputs are compared


class NeedsRubric(Counting):
    """A verifier of a user, which looks into the problem's meta."""

    def verify(self, response: str, problem: Problem) -> Verdict:
        assert problem.meta["rubric"]
        return super().verify(response, problem)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def grader(counting: Counting) -> Grader:
    return Grader({"exact": counting, "rubric": NeedsRubric()})


def test_lines_are_judged_in_order(tmp_path, capsys):
    path = write(tmp_path / "in.jsonl", LINES)
    totals = score.main([str(path), "--verifier", "math", "--output", str(tmp_path / "out.jsonl")])
    out = read(tmp_path / "out.jsonl")
    assert [line["status"] for line in out] == STATUSES
    assert [line["value"] for line in out] == [1.0, 1.0, 0.0, 0.0]
    assert all(isinstance(line["reason"], str) for line in out)
    assert out[3]["reason"] and totals.statuses == {"right": 2, "wrong": 1, "unparsed": 1}
    shown, bar = capsys.readouterr()
    assert "4 lines: 2 right, 1 wrong, 1 unparsed, 0 timeout, 0 error" in shown
    assert "mean value 0.5000, standard error 0.2887" in shown
    assert "4/4" in bar


def test_countdown_needs_numbers_and_target(tmp_path):
    line = {"response": "<answer> (3 + 5) * 7 </answer>", "numbers": [3, 5, 7], "target": 56}
    path = write(tmp_path / "in.jsonl", [line, {**line, "target": 57}])
    score.score_file(path, "countdown", tmp_path / "out.jsonl", progress=False)
    assert [x["status"] for x in read(tmp_path / "out.jsonl")] == ["right", "wrong"]
    for key in ("numbers", "target"):
        bad = {k: v for k, v in line.items() if k != key}
        path = write(tmp_path / "bad.jsonl", [line, bad])
        with pytest.raises(ValueError, match=f"line 2: key '{key}' is missing"):
            score.score_file(
                path, "countdown", tmp_path / f"{key}.jsonl", on_error="fail", progress=False
            )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{not json", "line 3: not JSON"),
        ('["a"]', "line 3: a JSON object is needed, not list"),
        ({"answer": "4"}, "line 3: key 'response' is missing"),
        ({"response": None, "answer": "4"}, "line 3: key 'response' holds NoneType"),
        ({"response": "4"}, "line 3: key 'answer' is missing, which exact needs"),
        ({"response": "4", "answer": ["4"]}, "line 3: key 'answer' holds \\['4'\\]"),
        ({"response": "4", "answer": "  "}, "line 3: key 'answer' holds '  '"),
        ('{"response": "4", "answer": ' + "9" * 5000 + "}", "line 3: not JSON"),
        ("[" * 100_000, "line 3: not JSON"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_goes_on_when_it_is_mended(
    tmp_path, grader, counting, bad, message
):
    good = [{"response": f"it is {i}", "answer": str(i)} for i in range(5)]
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write(path, [*good[:2], bad, *good[3:]])
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            score.score_file(path, "exact", out, grader, on_error="fail", progress=False)
        assert len(read(out)) == 2
    write(path, good)
    totals = score.score_file(path, "exact", out, grader, progress=False)
    assert len(read(out)) == 5 and totals.values == [1.0] * 5
    assert counting.asked == [line["response"] for line in good]  # each exactly once


def test_a_line_that_cannot_be_used_is_skipped_and_counted(tmp_path, grader, capsys):
    lines: list[Any] = [{"response": f"it is {i}", "answer": str(i)} for i in range(40)]
    lines[3], lines[17], lines[39] = "{not json", {"response": "17"}, {"answer": "39"}
    path, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    totals = score.score_file(path, "exact", out, grader, progress=False)
    records = read(out)
    assert [r["uid"] for r in records] == [str(number) for number in range(1, 41)]
    assert [i for i, r in enumerate(records) if r["status"] == "skipped"] == [3, 17, 39]
    assert all((r["value"] is None) == (r["status"] == "skipped") for r in records)
    assert totals.values == [1.0] * 37
    assert "40 lines: 37 right" in str(totals)
    assert "3 skipped (the first: line 4: not JSON" in str(totals)
    before = out.read_bytes()
    again = score.score_file(path, "exact", out, grader, progress=False)
    assert str(again) == str(totals) and out.read_bytes() == before
    with pytest.raises(ValueError, match="line 4: not JSON"):
        score.score_file(path, "exact", out, grader, on_error="fail", progress=False)


def test_a_file_without_a_line_of_use_is_an_error_and_writes_nothing(tmp_path, grader):
    path, out = write(tmp_path / "in.jsonl", [{"response": "4"}] * 20), tmp_path / "out.jsonl"
    with pytest.raises(ValueError, match=r"none of 20 lines .* the first: line 1: key 'answer'"):
        score.score_file(path, "exact", out, grader, progress=False)
    assert not out.exists()


ODD: tuple[Any, ...] = (
    None, True, -1, 1e308, "", "\ud800", "a b", [], [None], ["a"], [[]], {}, {"a": None}, [{}],
    10**400, [10**400, 1, 2, 3], {"inputs": None}, {"inputs": [1], "outputs": ["1", "2"]},
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("verifier", sorted({*DEFAULTS} - {"ifeval_loose"}))  # read as the strict
def test_no_odd_value_of_any_key_ends_the_command(tmp_path, verifier):
    good = {
        "math": {"answer": "4"},
        "exact": {"answer": "4"},
        "choice": {"answer": "A", "choices": ["4", "5"]},
        "functional_code": {"tests": ["assert f() == 1"], "entry_point": "f", "prompt": ""},
        "stdin_code": {"tests": {"inputs": ["1"], "outputs": ["1"]}},
        "countdown": {"numbers": [1, 3], "target": 4},
        "game24": {"numbers": [1, 2, 3, 4], "target": 24},
        "logic": {"names": ["A", "B"], "statements": ["telling-truth", 1]},
        "ifeval_strict": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
        "json_schema": {"schema": {"type": "integer"}, "answer": "4"},
        "function_call": {
            "function": [{"name": "f", "parameters": {"type": "dict", "properties": {}}}],
            "ground_truth": [{"f": {}}],
        },
        "reasoning_gym": {"task": "chain_sum", "entry": {"answer": "4", "metadata": {}}},
        "repository": {
            "repository": str(tmp_path),
            "fail_to_pass": ["test_sums.py::test_add"],
            "pass_to_pass": [],
            "calls": {
                "packages": [],
                "functions": [{"module": "sums", "name": "add", "calls": [["[]", "[]", True]]}],
            },
        },
        "none": {"answer": "4"},
    }[verifier]
    if verifier == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    code = "```python\ndef f():\n    return 1\n```"
    good = {"response": code if "code" in verifier else "<answer> 4 </answer>", **good}
    if verifier == "logic":
        good["statements"] = [["lying", 0], ["lying", 0]]
    keys = [*good, "uid", "question"]
    lines = [good, *({**good, key: value} for key in keys for value in ODD), good]
    path, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    totals = score.score_file(path, verifier, out, progress=False)
    records = read(out)
    assert len(records) == len(lines) == sum(totals.statuses.values())
    assert records[0]["status"] == records[-1]["status"] != "skipped"
    assert totals.statuses["skipped"] >= len(ODD) - 6  # a response that is no text, at least
    assert all(r["reason"] for r in records if r["status"] == "skipped")


def test_ids_canonical_answers_and_seconds_are_written(tmp_path):
    path = write(tmp_path / "in.jsonl", [{**LINES[1], "uid": "half"}, *LINES[2:]])
    score.score_file(path, "math", tmp_path / "out.jsonl", progress=False)
    half, four, none = read(tmp_path / "out.jsonl")
    assert (half["uid"], four["uid"]) == ("half", "2")
    assert half["canonical"] and four["canonical"] == "5" and none["canonical"] is None
    assert half["seconds"] > 0 and four["seconds"] >= 0


def test_grouped_lines_have_pass_at_k_and_cons_at_k_over_problems(tmp_path, capsys):
    """Problem p: 4, 4, 5 with 4 right. Problem q: 1, 1, nothing with 2 right."""
    said = [("p", "4", "4"), ("q", "1", "2"), ("p", "4", "4"), ("q", "1", "2"), ("p", "5", "4"),
            ("q", None, "2")]  # fmt: skip
    lines: list[Any] = [
        {"response": f"<answer> {said} </answer>" if said else "?", "answer": gold, "task": [key]}
        for key, said, gold in said
    ]
    path = write(tmp_path / "in.jsonl", [*lines, {"response": "4", "answer": "4"}])
    options = ["--verifier", "math", "--group-by", "task", "--report", str(tmp_path / "r.json")]
    for _ in range(2):  # the second time all is read again
        totals = score.main([str(path), *options, "--output", str(tmp_path / "out.jsonl")])
        report = json.loads((tmp_path / "r.json").read_text())
        assert (report["num_problems"], report["num_samples"]) == (2, 3)
        assert report["pass_at_1"]["value"] == pytest.approx(1 / 3)
        assert report["pass_at_1"]["stderr"] == pytest.approx(1 / 3)
        assert report["pass_at_k"]["2"]["value"] == pytest.approx(1 / 2)
        assert report["cons_at_k"]["3"]["value"] == pytest.approx(1 / 2)
        assert totals.statuses["skipped"] == 1
        shown = capsys.readouterr().out
        assert "| pass@1 | 33.3 | 33.3 | 0.0 to 66.7 |" in shown and "| cons@3 | 50.0 |" in shown
        assert "key 'task' is missing, which --group-by names" in shown
    write(path, lines[:5])
    totals = score.score_file(path, "math", tmp_path / "b.jsonl", group_by="task", progress=False)
    assert "2 problems, 2 to 3 responses each" in str(totals)
    assert set(totals.report()["cons_at_k"]) == {"1", "2"}
    with pytest.raises(ValueError, match="report: it needs --group-by"):
        score.main([str(path), "--verifier", "math", "--output", "x", "--report", "y"])


def test_what_was_scored_can_be_compared(tmp_path, grader):
    for name, said in (("a", "1 2"), ("b", "1 0")):
        lines = [{"response": r, "answer": str(i), "uid": f"p{i}"} for i, r in enumerate(said, 0)]
        path = write(tmp_path / f"{name}.in", [*lines, "no JSON"])
        score.score_file(path, "exact", tmp_path / f"{name}.jsonl", grader, progress=False)
    assert compare_runs(tmp_path / "a.jsonl", tmp_path / "b.jsonl").num_problems == 3


def test_the_end_of_a_response_is_read_if_switched_on(tmp_path):
    path = write(tmp_path / "in.jsonl", [{"response": "the answer is 5.", "answer": "5"}])
    out = [str(path), "--verifier", "math", "--output"]
    assert score.main([*out, str(tmp_path / "a")]).statuses == {"unparsed": 1}
    assert score.main([*out, str(tmp_path / "b"), "--last-expression"]).statuses == {"right": 1}
    with pytest.raises(ValueError, match="and these options; name another --output"):
        score.main([*out, str(tmp_path / "a"), "--last-expression"])


def test_the_error_of_one_line_is_absent(tmp_path, grader):
    path = write(tmp_path / "in.jsonl", [{"response": "a", "answer": "a"}])
    for group_by in (None, "answer"):
        totals = score.score_file(
            path, "exact", tmp_path / "out.jsonl", grader, group_by=group_by, progress=False
        )
        assert "mean value 1.0000" in str(totals)
        assert "standard error 0" not in str(totals) and "nan" not in str(totals)


def test_help_names_every_verifier_and_what_it_needs(capsys):
    needs = {name: verifier.needs for name, verifier in DefaultVerifiers().items()}
    with pytest.raises(SystemExit):
        score.main(["--help"])
    shown = capsys.readouterr().out
    for name, needed in needs.items():
        line = next(line for line in shown.splitlines() if line.startswith(f"  {name}  "))
        assert all(key in line for keys in needed for key in keys)


def test_the_command_starts_without_what_takes_seconds_to_import():
    code = "import r1lit.evaluation.score, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = {"torch", "torchmetrics", "transformers", "lightning", "datasets", "scipy", "sympy",
            "matplotlib", "math_verify", "pandas"}  # fmt: skip
    assert not slow & set(done.stdout.split())


def test_a_killed_run_goes_on_behind_the_last_whole_line(tmp_path, grader, counting):
    lines = [{"response": f"it is {i}", "answer": str(i)} for i in range(30)]
    path, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    score.score_file(path, "exact", out, grader, progress=False)
    whole = out.read_bytes()
    counting.asked.clear()
    out.write_bytes(whole[: whole.find(b"\n", len(whole) // 2) + 9])  # torn in the middle of a line
    kept = out.read_bytes().count(b"\n")
    totals = score.score_file(path, "exact", out, grader, progress=False)
    assert out.read_bytes() == whole and len(totals.values) == 30
    assert counting.asked == [line["response"] for line in lines[kept:]]


def test_the_output_of_another_input_or_verifier_is_left_alone(tmp_path, grader):
    path = write(tmp_path / "in.jsonl", [{"response": "a", "answer": "a", "rubric": "r"}])
    other = write(tmp_path / "other.jsonl", [{"response": "b", "answer": "a"}])
    out = tmp_path / "out.jsonl"
    score.score_file(path, "exact", out, grader, progress=False)
    before = out.read_bytes()
    with pytest.raises(ValueError, match=r"line 1 of .*out.jsonl was not written for line 1"):
        score.score_file(other, "exact", out, grader, progress=False)
    with pytest.raises(ValueError, match="verifier 'rubric'"):
        score.score_file(path, "rubric", out, grader, progress=False)
    write(path, [])
    with pytest.raises(ValueError, match="was not written for a line of"):
        score.score_file(path, "exact", out, grader, progress=False)
    assert out.read_bytes() == before


def test_a_key_that_only_the_verifier_knows_is_named_with_its_line(tmp_path, grader):
    good = {"response": "a", "answer": "a", "rubric": "r"}
    path = write(tmp_path / "in.jsonl", [good, good, {"response": "a", "answer": "a"}, good])
    crashed = "line 3: verifier 'rubric' crashed with KeyError: 'rubric'"
    with pytest.raises(ValueError, match=crashed):
        score.score_file(
            path, "rubric", tmp_path / "out.jsonl", grader, on_error="fail", progress=False
        )
    assert len(read(tmp_path / "out.jsonl")) == 2
    totals = score.score_file(path, "rubric", tmp_path / "all.jsonl", grader, progress=False)
    assert totals.statuses == {"right": 3, "skipped": 1}


def test_a_users_verifier_has_its_needs_checked(tmp_path):
    class Either(Counting):
        needs = (("answer",), ("rubric", "notes"))

    good = {"response": "a", "answer": "a", "notes": "n"}
    path = write(
        tmp_path / "in.jsonl", [good, {"response": "a", "answer": "a"}, {**good, "answer": None}]
    )
    mine = Grader({"mine": Either()})
    totals = score.score_file(path, "mine", tmp_path / "out.jsonl", mine, progress=False)
    assert totals.statuses == {"right": 1, "skipped": 2}
    assert [line["reason"] for line in read(tmp_path / "out.jsonl")] == [
        "",
        "key 'rubric' or 'notes' is missing, which mine needs",
        "key 'answer' is missing, which mine needs",
    ]


def test_one_verifier_is_scored_without_importing_the_others(tmp_path):
    path = write(tmp_path / "in.jsonl", LINES)
    code = (
        "import sys; from r1lit.evaluation import score;"
        f"score.main([{str(path)!r}, '--verifier', 'exact', '--output', {str(tmp_path / 'o')!r}]);"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, used = set(done.stdout.split()), {"r1lit.verifiers.base", "r1lit.verifiers.exact"}
    assert loaded & {path.rpartition(".")[0] for path in DEFAULTS.values()} == used


def test_unknown_verifiers_and_files(tmp_path, grader):
    path = write(tmp_path / "in.jsonl", LINES)
    with pytest.raises(ValueError, match=r"'maths' is not one of .*countdown.*ifeval_loose.*rub"):
        score.score_file(path, "maths", tmp_path / "out.jsonl", grader)
    with pytest.raises(ValueError, match="there is no file"):
        score.score_file(tmp_path / "absent.jsonl", "exact", tmp_path / "out.jsonl", grader)
    with pytest.raises(ValueError, match="is the input itself"):
        score.score_file(path, "exact", path, grader)
    with pytest.raises(ValueError, match="is a folder"):
        score.score_file(path, "exact", tmp_path, grader)
    assert read(path) == LINES


def test_a_full_disk_is_said(tmp_path, grader):
    path = write(tmp_path / "in.jsonl", [{"response": "a", "answer": "a"}])
    out = tmp_path / "out.jsonl"
    out.symlink_to("/dev/full")
    with pytest.raises(ValueError, match=r"cannot be written .*No space left on device"):
        score.score_file(path, "exact", out, grader, progress=False)


def test_blank_lines_empty_files_gzip_and_odd_characters(tmp_path, grader):
    out = tmp_path / "out.jsonl"
    empty = write(tmp_path / "empty.jsonl", ["", " "])
    assert score.score_file(empty, "exact", out, grader, progress=False).values == []
    assert out.read_bytes() == b""
    packed = tmp_path / "in.jsonl.gz"
    lines = [json.dumps({"response": "\ud800 \u2028 4", "answer": "4"}), "", json.dumps(LINES[0])]
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))  # and no newline at the end
    assert score.score_file(packed, "exact", out, grader, progress=False).values == [1.0, 1.0]


def test_the_index_of_a_choice_is_its_letter():
    line = {"response": "", "choices": ["x", "y", "z"], "answer": 2}
    assert problem_of_line(line, "choice", "1", "s").answer == "C"
    assert problem_of_line({**line, "answer": "B"}, "choice", "1", "s").answer == "B"
    for wrong in (3, -1, True):
        with pytest.raises(ValueError, match="key 'answer'"):
            problem_of_line({**line, "answer": wrong}, "choice", "1", "s")


def test_the_problem_carries_what_the_verifier_needs():
    line = {"response": "x", "question": "q?", "test": "def check(f): ...", "entry_point": "f"}
    problem = problem_of_line(line, "functional_code", "7", "he")
    assert problem.uid == "7" and problem.question == "q?" and problem.verifier == "functional_code"
    given = {k: v for k, v in line.items() if k != "response"}
    assert problem.meta == given | {"prompt": "def f(*args, **kwargs):\n"}
    given["prompt"] = "def f(x):\n"
    assert problem_of_line({**line, **given}, "functional_code", "7", "he").meta == given


CHECK = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(-1) == 0"
ASSERTS = ["assert f(1) == 2", "assert f(-1) == 0"]


@pytest.mark.parametrize(
    "tests",
    [
        {"test": CHECK, "entry_point": "f"},
        {"tests": CHECK, "entry_point": "f"},
        {"tests": [CHECK], "entry_point": "f"},
        {"test": CHECK + "\ncheck(f)"},
        {"tests": [CHECK + "\ncheck(f)"], "entry_point": "f"},
        {"tests": ASSERTS},
        {"test": ASSERTS, "entry_point": "f"},
        {"tests": "\n".join(ASSERTS)},
        {"test": "\n".join(ASSERTS), "entry_point": "f"},
    ],
)
def test_functional_tests_of_every_form_are_run(tmp_path, tests):
    codes = ["def f(x):\n    return x + 1", "def f(x):\n    return 2", "f = 3"]
    lines = [{"response": f"```python\n{code}\n```", **tests} for code in codes]
    path = write(tmp_path / "in.jsonl", lines)
    score.score_file(path, "functional_code", tmp_path / "out.jsonl", progress=False)
    assert [x["status"] for x in read(tmp_path / "out.jsonl")] == ["right", "wrong", "wrong"]


@pytest.mark.parametrize(
    "tests",
    [
        {"inputs": ["1", "2"], "outputs": ["2", "3"]},
        {"input": ["1", "2"], "output": ["2", "3"]},
        [{"input": "1", "output": "2"}, {"input": "2", "output": "3"}],
    ],
)
def test_tests_by_standard_input_of_every_form(tests):
    problem = problem_of_line({"response": "", "tests": tests}, "stdin_code", "1", "s")
    assert problem.meta["tests"]["inputs"] == ["1", "2"]
    assert problem.meta["tests"]["outputs"] == ["2", "3"]


def test_the_console_script_exits_with_status_2(tmp_path):
    path = write(tmp_path / "in.jsonl", [*LINES, "oops"])
    command = [sys.executable, "-m", "r1lit.evaluation.score", str(path), "--verifier", "math"]
    command += ["--on-error", "fail", "--output", str(tmp_path / "out.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[-1].startswith("r1lit-score: error: ") and "line 5" in done.stderr
    )
    assert [line["status"] for line in read(tmp_path / "out.jsonl")] == STATUSES


def test_a_judge_that_was_given_stays_open(tmp_path):
    grader = Grader({"math": MathVerifier(), "countdown": CountdownVerifier()})
    path = write(tmp_path / "in.jsonl", LINES)
    for name in ("a.jsonl", "b.jsonl"):
        assert score.score_file(path, "math", tmp_path / name, grader, progress=False).values
    grader.close()
