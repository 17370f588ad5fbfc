"""SWE-bench Verified: passes of three turns, the choice among patches, and its predictions."""

from __future__ import annotations

import json

import pytest
from suite_rows import write_rows

from r1lit.environments import Reply
from r1lit.evaluation.suites import build, load_suite
from r1lit.evaluation.suites.swe_bench import chosen, main, selected

BLOCK = "sums/add.py\n<<<<<<< SEARCH\n    return a - b\n=======\n    return {}\n>>>>>>> REPLACE\n"
RIGHT = BLOCK.format("a + b")


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    suite = load_suite("swe_bench_verified")
    folder = write_rows(tmp_path_factory.mktemp("data"), suite.name)
    [problem] = suite.read(str(folder / suite.file), limit=1)
    environment = build(suite.environment)
    yield problem, environment
    environment.close()


def last_turn(instance, *replies):
    """Return the step that follows the last of some replies."""
    problem, environment = instance
    episode = environment.begin(problem, 0)
    return [episode.step(Reply(text=text)) for text in replies][-1]


def content(step) -> str:
    [message] = step.messages
    return message["content"]


def test_a_pass_goes_from_files_to_places_to_edits(instance):
    problem, environment = instance
    opening = environment.opening(problem)
    text = opening if isinstance(opening, str) else opening.messages[-1]["content"]
    assert text.startswith("add() returns the difference.")
    assert "sums/add.py\nsums/other.py" in text and "test_add" not in text  # tests are not shown
    places = content(last_turn(instance, "<think>x</think>sums/add.py\nsums/other.py\nno/such.py"))
    assert "sums/add.py\n1-2 add" in places
    assert "sums/other.py\n1-3 Other\n2-3 Other.method" in places
    code = content(last_turn(instance, "sums/add.py", "sums/add.py: add"))
    assert "sums/add.py\n```python\ndef add(a, b):\n    return a - b\n```" in code
    by_lines = content(last_turn(instance, "sums/add.py", "`sums/add.py`: 2-2"))
    assert by_lines == code


@pytest.mark.long
@pytest.mark.parametrize(
    ("reply", "status", "regressions"),
    [
        (RIGHT, "right", 0),
        (BLOCK.format("a + b if b else a"), "right", 0),
        (BLOCK.format("a"), "wrong", 0),  # a near miss: what passed still passes
        (BLOCK.format("0"), "wrong", 1),
    ],
)
def test_known_verdicts_and_regressions(instance, reply, status, regressions):
    verdict = last_turn(instance, "sums/add.py", "sums/add.py: add", reply).verdict
    assert (verdict.status, verdict.details["regressions"]) == (status, regressions)
    assert verdict.details["patch"].startswith("--- a/sums/add.py\n+++ b/sums/add.py\n")


def test_a_refusal_is_given_back_twice(instance):
    step = last_turn(instance, "I cannot.")
    assert step.invalid and "names no file of the repository" in content(step)
    assert "names no place" in content(last_turn(instance, "sums/add.py", "sums/add.py: sub"))
    verdict = last_turn(instance, *["I cannot."] * 3).verdict
    assert (verdict.status, verdict.value) == ("unparsed", 0.0)
    misfit = "sums/add.py\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n"
    step = last_turn(instance, "sums/add.py", "sums/add.py: add", misfit)
    assert "the lines to replace are not in the file" in content(step)


def record(sample, value, patch, regressions):
    details = {"patch": patch, "regressions": regressions} if patch else {}
    status = "right" if value else "wrong"
    return {"uid": "own__sums-1", "sample": sample, "value": value, "status": status,
            "details": details}  # fmt: skip


GROUP = [
    record(0, 0.0, "+a", 1),
    record(1, 0.0, "+b", 0),
    record(2, 1.0, "+c  d", 0),
    record(3, 1.0, "+ c d", 0),
    record(4, 0.0, "+b", 2),
    record(5, 0.0, "", 0),
]


def test_a_patch_is_chosen_by_regressions_then_majority_then_order(tmp_path, capsys):
    assert chosen(GROUP)["sample"] == 2
    assert chosen(GROUP[:3])["sample"] == 1  # one vote each: the first
    assert chosen(GROUP[:1])["sample"] == 0 and chosen(GROUP[5:]) is None
    score = selected({"a": GROUP, "b": GROUP[:2], "c": GROUP[5:]})
    assert score["name"] == "resolved" and score["value"] == pytest.approx(1 / 3)
    assert (score["any"], score["without_patch"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    (tmp_path / "responses.jsonl").write_text("".join(json.dumps(r) + "\n" for r in GROUP))
    main([str(tmp_path), "--model", "mine"])
    assert "1 instances, 0 without a patch" in capsys.readouterr().out
    [line] = (tmp_path / "predictions.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "instance_id": "own__sums-1", "model_name_or_path": "mine", "model_patch": "+c  d"
    }  # fmt: skip
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none"), "--model", "mine"])
    assert "none" in capsys.readouterr().err


@pytest.mark.long
def test_a_repository_that_is_not_there_is_named(tmp_path):
    suite = load_suite("swe_bench_verified")
    folder = write_rows(tmp_path, suite.name)
    (folder / "repositories").rename(folder / "elsewhere")
    with pytest.raises(ValueError, match="has no folder 'own__sums-1' or 'own__sums'"):
        suite.read(str(folder / suite.file))
