"""The repository environment: its tools, hidden tests, and the patch that is the answer."""

from __future__ import annotations

import pytest
from tally import FILES, LINE, MENDED, write_tally

from r1lit.environments import Reply, Repository, ToolCall
from r1lit.verifiers import RepositoryVerifier


@pytest.fixture(scope="module")
def environment():
    made = Repository(timeout_s=60)
    yield made
    made.close()


@pytest.fixture
def episode(environment, tmp_path):
    return environment.begin(write_tally(tmp_path), 0)


def ask(episode, name: str, **arguments) -> str:
    call = ToolCall(name=name, arguments=arguments)
    (message,) = episode.step(Reply(text="", calls=(call,))).messages
    return message["content"]


@pytest.mark.long
def test_an_episode_ends_with_the_patch_that_the_verifier_judges(episode, environment, tmp_path):
    problem = write_tally(tmp_path)
    assert [tool["function"]["name"] for tool in environment.tools] == [
        *("files", "view", "search", "edit", "run_tests")
    ]
    assert "Mend the repository" in environment.opening(problem)
    assert ask(episode, "files").splitlines() == sorted(FILES)
    assert ask(episode, "search", text="result -=") == "tally/core.py:12: result -= value"
    shown = ask(episode, "view", path="tally/core.py", first=12, last=12)
    assert shown == f"   12 {LINE[:-1]}\n(11 more lines)"
    before = ask(episode, "run_tests")
    assert before.startswith("1 passed, 4 failed") and "test_total" in before
    assert ask(episode, "edit", path="tally/core.py", old=LINE, new=MENDED) == "changed"
    assert ask(episode, "run_tests") == "5 passed, 0 failed"
    step = episode.step(Reply(text="Done."))
    assert not step.messages and step.verdict is None and step.answer == problem.answer
    verifier = RepositoryVerifier(num_workers=1)
    try:
        assert verifier.verify(step.answer, problem).status == "right"
        untouched = environment.begin(problem, 0).step(Reply(text="Done.")).answer
        assert verifier.verify(untouched, problem).status == "unparsed"
    finally:
        verifier.close()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("view", {"path": "tally/cor.py"}, "error: there is no file 'tally/cor.py'"),
        ("view", {}, "error: view: 'path' is a required property"),
        ("edit", {"path": "tests/test_core.py", "old": "3", "new": "-3"}, "error: tests/test_core"),
        ("edit", {"path": "tally/core.py", "old": "e", "new": "y"}, "error: tally/core.py: the li"),
        ("edit", {"path": "conftest.py", "old": "", "new": "x = 1"}, "error: conftest.py: tests"),
        ("edit", {"path": "tally/core.py", "old": LINE, "new": "("}, "error: tally/core.py: does"),
        ("shell", {}, "error: there is no tool 'shell'"),
    ],
)
def test_what_is_done_wrongly_is_a_message_and_changes_nothing(episode, name, arguments, message):
    assert ask(episode, name, **arguments).startswith(message)
    assert episode.step(Reply(text="Done.")).answer == ""


def test_hidden_tests_are_neither_shown_nor_found(episode):
    assert "test_hidden" not in ask(episode, "view", path="tests/test_core.py")
    assert "TestMore" in ask(episode, "view", path="tests/test_core.py")
    assert ask(episode, "search", text="def test_hidden") == "no line holds it"
