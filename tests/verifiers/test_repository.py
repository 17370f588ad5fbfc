"""Patches of repositories: what is right, what is refused, and what cannot be forged."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tally import FAIL, FILES, GOLD, LINE, MENDED, write_tally

from r1lit.data import RepositoryTasks
from r1lit.environments import Repository
from r1lit.problems import Problem
from r1lit.text.patches import PatchError, apply_edits, read_patch, reverse_diff, write_diff
from r1lit.verifiers import RepositoryVerifier


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return write_tally(tmp_path_factory.mktemp("tally"))


@pytest.fixture(scope="module")
def verifier():
    made = RepositoryVerifier(timeout_s=60, num_workers=2)
    yield made
    made.close()


def block(old: str, new: str, path: str = "tally/core.py") -> str:
    return f"{path}\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


MAX = "    return max(values)\n"
RETURN = "    return result\n"


@pytest.mark.parametrize(
    ("response", "status", "reason"),
    [
        (f"<think> I see </think>\n```diff\n{GOLD}```", "right", ""),
        (f"It is this:\n\n{block(LINE, MENDED)}", "right", ""),
        (block(LINE, LINE + "        # as it was\n"), "wrong", "fail-to-pass test"),
        (block(RETURN, "    return abs(result) % 6\n"), "wrong", "TestMore::test_hidden"),
        (block(LINE, MENDED) + block(MAX, MAX.replace("max", "min")), "wrong", "pass-to-pass"),
        (f"<think>\n{GOLD}\n</think> Done.", "unparsed", "neither search/replace"),
        (block("        result *= value\n", MENDED), "unparsed", "are not in the file"),
        (block("\n\n", "\n"), "unparsed", "are in the file"),
        (block(LINE, "    )\n"), "wrong", "does not parse"),
        (block(LINE, MENDED, "tally/cor.py"), "unparsed", "there is no such file"),
    ],
)
def test_a_patch_is_right_if_all_tests_pass(problem, verifier, response, status, reason):
    verdict = verifier.verify(response, problem)
    assert verdict.status == status and reason in verdict.reason, verdict
    assert verdict.value == float(status == "right")


def attack(code: str) -> str:
    """A patch that runs code when the module is imported, and mends nothing."""
    return block("import time\n", f"import time\n\n{code}\n")


ATTACKS = {
    "forged reports": """
import _pytest.reports
make = _pytest.reports.TestReport.from_item_and_call.__func__
def passed(cls, item, call):
    call.excinfo = None
    return make(cls, item, call)
_pytest.reports.TestReport.from_item_and_call = classmethod(passed)""",
    "forged by name": """
import _pytest.python
run = _pytest.python.Function.runtest
def runtest(self):
    if self.name.partition("[")[0] not in ("test_total", "test_mean", "test_one", "test_hidden"):
        run(self)
_pytest.python.Function.runtest = runtest""",
    "no assertion of unittest fails": """
import unittest
unittest.TestCase.assertEqual = lambda self, *_: None""",
    "nothing has to raise": """
import pytest
class Anything:
    def __init__(self, *_): pass
    def __enter__(self): return self
    def __exit__(self, *_): return True
pytest.raises = Anything""",
    "an early end": "os._exit(0)",
    "an early end with a report": """
import json
for at in range(3, 64):
    try:
        os.write(at, json.dumps({"key": "", "outcomes": {
            "tests/test_core.py::test_total": "passed"}}).encode())
    except OSError:
        pass
os._exit(0)""",
    "the end of the process": "sys.exit(0)",
    "no test is left": """
import _pytest.main
_pytest.main.Session.perform_collect = lambda self, *_, **__: []""",
    "rewritten tests": """
import glob
for at in glob.glob("/program/**/test_*.py", recursive=True):
    try:
        os.chmod(at, 0o777)
        open(at, "w").write("def test_total(): pass")
    except OSError:
        pass""",
    "a hang": "while True: pass",
}
EQUALS_ALL = """
class Same(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __truediv__(self, other): return self
    __hash__ = None
"""


LONG = {"a hang": pytest.mark.long}


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in ATTACKS])
def test_no_attack_is_paid(problem, verifier, name):
    """`repair_attacks` has more, and those of the hidden part."""
    if name == "a hang":
        verifier = RepositoryVerifier(timeout_s=8, num_workers=1)
    verdict = verifier.verify(attack(ATTACKS[name]), problem)
    if name == "a hang":
        verifier.close()
    assert (verdict.status, verdict.value) == ("wrong", 0.0), verdict
    assert ("hidden part" in verdict.reason) == (name == "forged reports"), verdict


def test_what_equals_everything_is_found(problem, verifier):
    patch = attack(EQUALS_ALL) + block(RETURN, "    return Same(result)\n")
    verdict = verifier.verify(patch, problem)
    assert verdict.status == "wrong" and "hidden part" in verdict.reason, verdict


@pytest.mark.long
def test_a_sleep_is_wrong_where_the_tests_end_without_it(problem):
    verifier = RepositoryVerifier(timeout_s=6, num_workers=1)
    meta = {**problem.meta, "repository": dict(FILES)}
    slow = "\n\ndef test_slow():\n    import time\n    time.sleep(60)\n"
    meta["repository"]["tests/test_core.py"] += slow
    meta["pass_to_pass"] = [*meta["pass_to_pass"], "tests/test_core.py::test_slow"]
    try:
        assert verifier.verify(attack("time.sleep(600)"), problem).status == "wrong"
        assert verifier.verify(GOLD, replace(problem, meta=meta)).status == "timeout"
    finally:
        verifier.close()


def test_a_patch_does_not_reach_the_right_code(problem, verifier):
    """What it adds or changes elsewhere is not imported where expected results are made."""
    code = "from tally import core\ncore.total = lambda values: 0\n"
    forged = attack(ATTACKS["forged reports"])
    new = f"{forged}tally/more.py\n<<<<<<< SEARCH\n=======\n{code}>>>>>>> REPLACE\n"
    patch = f"{new}{block(MAX, MAX + chr(10) + 'from tally import more  # noqa' + chr(10))}"
    verdict = verifier.verify(patch, problem)
    assert verdict.status == "wrong" and "hidden part" in verdict.reason, verdict


def test_a_task_without_calls_is_refused_in_one_line(problem, verifier):
    bare = replace(problem, meta={**problem.meta, "calls": None})
    with pytest.raises(ValueError, match=r"meta\.calls: problem 'tally-1' .* tests_alone: true"):
        verifier.verify(GOLD, bare)
    with pytest.raises(ValueError, match=r"guarded: True .* write tests_alone: true"):
        RepositoryVerifier(guarded=True)
    with pytest.raises(ValueError, match="guarded: False has no meaning any more; leave it out"):
        Repository(guarded=False)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("tests/test_core.py", "tests may not be changed"),
        ("tests/conftest.py", "tests may not be changed"),
        ("conftest.py", "tests may not be changed"),
        ("tally/sitecustomize.py", "tests may not be changed"),
        ("random.py", "has to be in a package that exists"),
        ("_pytest/__init__.py", "has to be in a package that exists"),
        ("pytest.ini", "only Python files"),
        ("../core.py", "only Python files"),
        ("/program/main.py", "only Python files"),
    ],
)
def test_what_steers_tests_stays(problem, verifier, path, reason):
    old = FILES.get(path, "")
    verdict = verifier.verify(block(old, "x = 1\n", path), problem)
    if old == "" and path in FILES:  # an empty file: nothing to search for
        assert verdict.status == "unparsed"
    else:
        assert verdict.status == "wrong" and reason in verdict.reason, verdict


def test_diffs_go_there_and_back():
    before = {"a.py": "x = 1\ny = 1\nx = 1\ny = 1\nz", "b.py": "1\n"}
    after = {"a.py": "x = 1\ny = 1\nx = 1\ny = 2\nz", "new.py": "n\n"}
    diff = write_diff(before, after)
    assert apply_edits(before, read_patch(diff)) == after
    there = {**before, **after}
    assert (
        apply_edits(there, read_patch(reverse_diff(write_diff(before, {"a.py": after["a.py"]}))))[
            "a.py"
        ]
        == before["a.py"]
    )
    with pytest.raises(PatchError, match="more than 100 edits"):
        read_patch(block("a\n", "b\n") * 101)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("fail_to_pass", [], "meta.fail_to_pass: problem 'tally-1' has"),
        ("pass_to_pass", ["test_a (a.B)"], "a list of pytest's test ids"),
        ("repository", "", "needs a folder"),
        ("repository", "/nowhere", "there is no folder '/nowhere'"),
    ],
)
def test_what_is_no_task_is_refused_in_one_line(problem, verifier, key, value, message):
    with pytest.raises(ValueError, match=message) as error:
        verifier.verify(GOLD, replace(problem, meta={**problem.meta, key: value}))
    assert "\n" not in str(error.value)


def test_rows_of_swe_bench_and_swe_smith_are_read(problem, tmp_path):
    folder = tmp_path / "repositories" / "owner__tally"
    write_tally(folder)
    shared = {"repo": "owner/tally", "problem_statement": "It is wrong.", "PASS_TO_PASS": []}
    bench = {**shared, "instance_id": "b", "patch": GOLD, "FAIL_TO_PASS": json.dumps(FAIL)}
    bench |= {"test_patch": reverse_diff(GOLD)}  # in place of new tests: what makes FAIL fail
    smith = {**shared, "instance_id": "s", "patch": reverse_diff(GOLD), "FAIL_TO_PASS": FAIL}
    smith |= {"image_name": "swesmith.x86_64.tally"}
    own = {**bench, "instance_id": "o", "split": "test", "context": [["tally/core.py", 8, 13]]}
    table = tmp_path / "tasks.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in (bench, smith, own)))
    problems = RepositoryTasks(str(table)).problems()
    assert [p.answer for p in problems] == [GOLD] * 3
    assert [p.meta["bug"] for p in problems] == [reverse_diff(GOLD)] * 3
    assert "        result -= value" in problems[2].question and "SEARCH" in problems[0].question
    (many,) = RepositoryTasks(str(table), split="test", turns="many").problems()
    assert many.environment == "repository" and many.question == "It is wrong."
    with pytest.raises(ValueError, match="has no row whose split is 'dev'"):
        RepositoryTasks(str(table), split="dev").problems()
    with pytest.raises(ValueError, match="has no folder 'b' or 'owner__tally'"):
        RepositoryTasks(str(table), repositories=str(tmp_path)).problems()
