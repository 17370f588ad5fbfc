"""Small repositories: one bug each, which their tests find; splits apart; pages as episodes are."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.environments import ChatTurns
from r1lit.environments.repository import Repository
from r1lit.problems import Problem
from r1lit.sandbox.repository import run_suite
from r1lit.text.patches import apply_edits, read_patch
from r1lit.text.prompts import Conversation
from r1lit.verifiers import RepositoryVerifier
from r1lit.verifiers.repository import files_of
from r1lit.worlds import RepairsCorpus, WorldRepairs, WorldRepository, WorldRepositoryVerifier
from r1lit.worlds.repairs import (
    MODULES,
    broken,
    functions_of,
    parts_of,
    split_of,
    value,
)
from r1lit.worlds.repairs_corpus import ASSISTANT, CALL, TOOL, USER, mends, report

TURNS = ChatTurns()


@pytest.fixture(scope="module")
def problem() -> Problem:
    return WorldRepairs("held_out", 1).problems()[0]


@pytest.fixture(scope="module")
def pages() -> list[str]:
    return [document.response for document in RepairsCorpus(400, seed=3).documents()]


@pytest.fixture
def environment(tmp_path):
    made = WorldRepository(cache=str(tmp_path / "tests.jsonl"), timeout_s=600)
    yield made
    made.close()


def source_of(text: str) -> str:
    return text.split("return ")[1].strip()


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_each_repository_has_one_bug_that_its_shown_test_finds(split):
    problems = WorldRepairs(split, 60).problems()
    assert problems == WorldRepairs(split, 60).problems() and len({p.uid for p in problems}) == 60
    assert WorldRepairs(split, 60, seed=1).problems() != problems
    for problem in problems:
        clean, buggy = problem.meta["repository"], files_of(problem)
        (path,) = [path for path in clean if clean[path] != buggy[path]]
        right, wrong = source_of(clean[path]), source_of(buggy[path])
        assert wrong in broken(right) and path.startswith("app/")
        shown = int(clean[f"tests/test_{path[4:]}"].split("(")[2].split(")")[0])
        assert value(wrong, shown) != value(right, shown)
        assert apply_edits(buggy, read_patch(problem.answer)) == {path: clean[path]}
        assert len([p for p in clean if p.startswith("app/")]) == MODULES + 1
        assert right in mends(wrong)


def test_functions_of_one_split_are_in_no_other_and_in_no_page(pages):
    pools = {split: {f.expression for f in functions_of(split)} for split in ("train", "held_out")}
    assert not pools["train"] & pools["held_out"]
    for split, pool in pools.items():
        assert {split_of(expression) for expression in pool} == {split}
        for problem in WorldRepairs(split, 30).problems():
            files = problem.meta["repository"]
            assert {source_of(files[p]) for p in files if "return" in files[p]} <= pool
    written = set()
    for page in pages:
        for line in page.replace('"', "\n").replace("<", "\n").splitlines():
            if "return " in line:
                written.add(source_of(line))
    assert len(written) > 100 and {split_of(expression) for expression in written} == {"corpus"}


def test_pytest_fails_before_the_patch_and_passes_after_it(problem, environment):
    files = files_of(problem)
    wanted = [*problem.meta["fail_to_pass"], *problem.meta["pass_to_pass"]]
    tests = sorted({test.partition("::")[0] for test in wanted})
    before = run_suite(environment.sandbox, files, tests, environment.limits)
    failed = {test for test, how in before.outcomes.items() if how != "passed"}
    assert failed == set(problem.meta["fail_to_pass"]) and set(before.outcomes) == set(wanted)
    after = apply_edits(files, read_patch(problem.answer))
    whole = run_suite(environment.sandbox, {**files, **after}, tests, environment.limits)
    assert set(whole.outcomes.values()) == {"passed"} and len(whole.outcomes) == 2 * MODULES


def test_verdicts_are_those_of_the_verifier_of_repositories_and_kept(problem, tmp_path):
    path = tmp_path / "verdicts.jsonl"
    files = files_of(problem)
    (bug,) = [p for p in files if files[p] != problem.meta["repository"][p]]
    line = files[bug].splitlines()[1]
    other = problem.answer.replace(f"+{line.split('return')[0]}return ", "+    return 1 + ")
    tests = f"tests/{bug[4:]}\n<<<<<<< SEARCH\nassert\n=======\n1\n>>>>>>> REPLACE\n"
    responses = [problem.answer, other, tests, "no patch", problem.answer]
    statuses = ["right", "wrong", "unparsed", "unparsed", "right"]
    verifiers = [
        RepositoryVerifier(timeout_s=600, num_workers=1),
        WorldRepositoryVerifier(cache=str(path), timeout_s=600),
    ]
    plain = verifiers[0].verify_batch(responses[:3], [problem] * 3)
    assert [v.status for v in plain] == statuses[:3], plain
    quick = verifiers[1].verify_batch(responses, [problem] * 5)
    assert [v.status for v in quick] == statuses, quick
    lines = path.read_text().splitlines()
    assert len(lines) == MODULES + 1 and len({json.loads(line)["key"] for line in lines}) == 5
    again = WorldRepositoryVerifier(cache=str(path))
    again.pool.run = None  # nothing is run
    assert [v.status for v in again.verify_batch(responses, [problem] * 5)] == statuses
    for verifier in verifiers:
        verifier.close()


def test_pages_show_what_the_environment_answers(environment):
    """Authors of pages read what tests and tools say, to the letter."""
    problem = WorldRepairs("train", 40, seed=2).problems()[7]
    files = files_of(problem)
    pool = {f.name: f for f in functions_of("train")}
    functions = [pool[path[4:-3]] for path in files if "return" in files[path]]
    now = {f.name: source_of(files[f.path]) for f in functions}
    (wrong,) = [f for f in functions if now[f.name] != f.expression]
    episode = environment.begin(problem, 0)

    def answer(call: str) -> str:
        return episode.step(TURNS.read(f"{CALL}{call}</tool_call>")).messages[0]["content"]

    ran = '{"name": "run_tests", "arguments": {}}'
    assert answer(ran) == report(functions, now)
    shown = f"    1 def {wrong.name}(x):\n    2     return {now[wrong.name]}"
    assert answer(json.dumps({"name": "view", "arguments": {"path": wrong.path}})) == shown
    edit = {
        "path": wrong.path,
        "old": f"return {now[wrong.name]}",
        "new": f"return {wrong.expression}",
    }
    change = json.dumps({"name": "edit", "arguments": edit})
    assert answer(change) == "changed"
    missing = f"error: {wrong.path}: the lines to replace are not in the file"
    assert answer(change) == missing
    assert answer('{"name": "view", "arguments": {"path": app/tax.py}}') == (
        "error: a call that is not JSON"
    )
    assert answer(ran) == report(functions, {f.name: f.expression for f in functions})
    assert report(functions, now).startswith("3 passed, 1 failed")


def test_pages_are_conversations_of_the_bases_template(pages, problem, environment):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models/repair")
    tools = list(environment.tools)
    start = Conversation.of([{"role": "user", "content": environment.opening(problem)}], tools)
    text = tokenizer.apply_chat_template(
        list(start.messages), tools=start.tools, tokenize=False, add_generation_prompt=True
    )
    end = text.index(" The package")
    assert all(page.startswith(text.removeprefix(tokenizer.bos_token)[: end - len("<|begin|>")])
               for page in pages)  # fmt: skip
    assert text.endswith(f"A test fails.{ASSISTANT}")
    TURNS.check(tokenizer, "chat", tools)
    result = TURNS.encode(tokenizer, [{"role": "tool", "name": "edit", "content": "changed"}])
    assert tokenizer.decode(result) == f"{TOOL}changed{ASSISTANT}"
    longest = max(len(tokenizer(page)["input_ids"]) for page in pages)
    assert longest < 768
    page = pages[0]
    assert tokenizer.decode(tokenizer(page, add_special_tokens=False)["input_ids"]) == page
    assert page.count(USER) == 1


def test_few_authors_run_the_tests_again(pages):
    calls = [[part.split('"')[0] for part in page.split('{"name": "')[1:]] for page in pages]
    first = Counter(names[0] for names in calls)
    again = sum("run_tests" in names[1:] for names in calls) / len(calls)
    assert 0.38 < first["run_tests"] / len(calls) < 0.56 and 0.1 < again < 0.2


def test_a_module_is_tested_alone():
    problem = WorldRepairs("train", 1).problems()[0]
    parts = parts_of(problem.meta["repository"], problem.meta["pass_to_pass"])
    assert all(len(files) == 3 and path in files for path, files in parts.items())
    assert len(parts) == MODULES - 1
    assert issubclass(WorldRepository, Repository)
    with pytest.raises(ValueError, match="split: 'all' is not one of corpus, train, held_out"):
        WorldRepairs("all")
