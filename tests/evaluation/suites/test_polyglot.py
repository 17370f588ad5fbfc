"""Aider polyglot: references right, stubs and refusals not, and the second try."""

from __future__ import annotations

import pytest
from suite_rows import write_rows
from tiny import ROOT

from r1lit.environments import Reply
from r1lit.evaluation.suites import build, load_suite
from r1lit.evaluation.suites.polyglot import TEST_FAILURES, block, pass_rate_2

DATA = ROOT / ".." / "shared" / "data" / "polyglot_python.jsonl"
STUB = "def add(a, b):\n    pass\n"
RIGHT = block("add.py", STUB, "def add(a, b):\n    return a + b\n")
WRONG = block("add.py", STUB, "def add(a, b):\n    return a - b\n")


@pytest.fixture
def exercise(tmp_path):
    suite = load_suite("aider_polyglot")
    [problem] = suite.read(str(write_rows(tmp_path, suite.name) / suite.file))
    environment = build(suite.environment)
    yield suite, problem, environment
    environment.close()


def test_the_prompt_has_the_files_and_the_benchmarks_words(exercise):
    _, problem, _ = exercise
    assert f"add.py\n```\n{STUB}\n```" in problem.question
    assert problem.question.endswith(
        "# Instructions\n\nAdd two numbers.\n\n####\n\nUse the above instructions to modify the"
        " supplied files: add.py\nDon't change the names of existing functions or classes, as they"
        " may be referenced from other code like unit tests, etc.\nOnly use standard libraries,"
        " don't suggest installing any packages.\n"
    )


@pytest.mark.long
def test_a_failed_try_shows_the_errors_and_a_second_one_counts(exercise):
    _, problem, environment = exercise
    episode = environment.begin(problem, 0)
    step = episode.step(Reply(text=f"<think>so</think>{WRONG}"))
    [message] = step.messages
    assert message["role"] == "user" and "0 passed, 1 failed" in message["content"]
    assert "-1 != 3" in message["content"]
    assert message["content"].endswith(TEST_FAILURES.replace("{file_list}", "add.py"))
    again = block("add.py", "    return a - b\n", "    return a + b\n")
    verdict = episode.step(Reply(text=again)).verdict
    assert (verdict.status, verdict.details) == ("right", {"tries": 2, "malformed": 0})
    at_once = environment.begin(problem, 0).step(Reply(text=RIGHT)).verdict
    assert (at_once.status, at_once.details["tries"]) == ("right", 1)


def test_blocks_that_do_not_fit_come_back_three_times(exercise):
    _, problem, environment = exercise
    episode = environment.begin(problem, 0)
    misfit = block("add.py", "def sub(a, b):\n", "x\n")
    for _ in range(3):
        step = episode.step(Reply(text=misfit))
        assert step.invalid and "the lines to replace are not in the file" in str(step.messages)
    assert "1 failed" in episode.step(Reply(text=misfit)).messages[0]["content"]
    other = episode.step(Reply(text=block("add_test.py", "", "x")))
    assert "add_test.py: it is none of add.py" in other.messages[0]["content"]
    verdict = episode.step(Reply(text="I cannot.")).verdict
    assert (verdict.status, verdict.details) == ("wrong", {"tries": 2, "malformed": 5})


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (RIGHT, "right"),
        (f"<think>{RIGHT}</think> Done.", "unparsed"),
        (WRONG, "wrong"),
        ("I cannot.", "unparsed"),
        (block("add.py", "", "import os\nos._exit(0)\n"), "wrong"),
        (block("add_test.py", "", "# none\n"), "unparsed"),
    ],
)
def test_known_verdicts(exercise, response, status):
    suite, problem, _ = exercise
    assert suite.verifier.verify(response, problem).status == status


@pytest.mark.long
@pytest.mark.skipif(not DATA.is_file(), reason="the shared data is not here")
def test_references_of_real_exercises_are_right_and_their_stubs_are_not():
    suite = load_suite("aider_polyglot")
    problems = suite.read(str(DATA))
    assert len(problems) == 34 and problems[0].environment == "aider_polyglot"
    verifier = suite.verifier
    try:
        for problem in problems[::6]:
            assert verifier.verify(verifier.gold_text(problem), problem).status == "right"
            [path] = problem.meta["files"]
            untouched = verifier.verify(block(path, "", "# nothing\n"), problem)
            assert untouched.status == "wrong" and "failed" in untouched.reason
    finally:
        verifier.close()


def test_pass_rates_count_tries():
    def record(value, **details):
        return {"value": value, "details": details}

    groups = {
        "a": [record(1.0, tries=1, malformed=0)],
        "b": [record(1.0, tries=2, malformed=1)],
        "c": [record(0.0, tries=2, malformed=0)],
        "d": [record(0.0)],
    }
    score = pass_rate_2(groups)
    assert (score["value"], score["pass_rate_1"], score["well_formed"]) == (0.5, 0.25, 0.75)
