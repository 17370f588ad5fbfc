"""Task sets of the package verifiers 0.4, which no extra of r1lit installs."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from r1lit.data import TasksetTasks
from r1lit.environments import Reply, Taskset, ToolCall

SHELVES = '''
import itertools
import verifiers.v1 as vf

__all__ = ["Shelves"]


class Shelf(vf.Toolset[vf.ToolsetConfig, vf.State]):
    async def setup_task(self, task):
        self.books = task.books

    @vf.tool
    async def count(self, title: str) -> int:
        """Count the copies of a book."""
        return self.books[title]


class Data(vf.TaskData):
    books: dict[str, int]
    answer: int


class Shelving(vf.Task[Data, vf.State, vf.TaskConfig]):
    @classmethod
    def toolsets(cls, config):
        return [Shelf(vf.ToolsetConfig())]

    @vf.reward(weight=0.75)
    async def right(self, trace) -> float:
        return float(trace.last_reply == str(self.data.answer))

    @vf.reward(weight=0.25)
    async def looked(self, trace) -> float:
        asked = [c.name for m in trace.assistant_messages for c in m.tool_calls or []]
        seen = [m.content for m in trace.tool_messages]
        return float(asked == ["shelf_count"] and seen == [str(self.data.answer)])


class Config(vf.TasksetConfig):
    endless: bool = False
    staged: bool = False


class Staged(Shelving):
    async def setup(self, trace, runtime):
        await runtime.run(["true"])


class Shelves(vf.Taskset[Shelving, Config]):
    def __init__(self, config):
        super().__init__(config)
        self.INFINITE = config.endless

    def load(self):
        kind = Staged if self.config.staged else Shelving
        for n in itertools.count() if self.config.endless else range(3):
            data = Data(prompt="How many of Emma?", system_prompt="Be brief.",
                        books={"Emma": n + 2}, answer=n + 2)
            yield kind(data)
'''


@pytest.fixture
def shelves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("verifiers.v1")
    (tmp_path / "r1lit_shelves.py").write_text(SHELVES)
    monkeypatch.syspath_prepend(tmp_path)
    yield "r1lit_shelves"
    sys.modules.pop("r1lit_shelves", None)


def count(title: str) -> Reply:
    return Reply(text="", calls=(ToolCall(name="shelf_count", arguments={"title": title}),))


def test_tools_run_in_process_and_the_rewards_of_the_trace_decide(shelves):
    problems = TasksetTasks(shelves).problems()
    environment = Taskset()
    assert len({p.uid for p in problems}) == 3 and problems[0].environment == "taskset"
    assert [m["role"] for m in environment.opening(problems[0]).messages] == ["system", "user"]
    (tool,) = environment.tools_of(problems[1])
    assert tool["function"]["name"] == "shelf_count"
    assert list(tool["function"]["parameters"]["properties"]) == ["title"]

    def play(*replies: Reply):
        episode = environment.begin(problems[1], 0)
        steps = [episode.step(reply) for reply in replies]
        episode.close()
        return steps

    asked, done = play(count("Emma"), Reply(text="3"))
    assert asked.messages[0]["content"] == "3" and not asked.invalid
    assert (done.verdict.status, done.verdict.value) == ("right", 1.0)
    (guessed,) = play(Reply(text="3"))
    assert (guessed.verdict.status, guessed.verdict.value) == ("wrong", 0.75)
    unknown, wrong = play(count("Ulysses"), Reply(text="4"))
    assert unknown.invalid and unknown.messages[0]["content"].startswith("error: ")
    assert wrong.verdict.value == 0.0
    missing, _ = play(
        Reply(text="", calls=(ToolCall(name="shelf_count", arguments={}),)), Reply(text="3")
    )
    assert "'title' is a required property" in missing.messages[0]["content"]


def test_what_cannot_be_scored_by_its_trace_is_refused_before_training(shelves):
    with pytest.raises(ValueError, match="needs setup, which a runtime of verifiers has"):
        TasksetTasks(shelves, {"staged": True}).problems()
    with pytest.raises(ValueError, match="num_problems: task set 'r1lit_shelves' has no end"):
        TasksetTasks(shelves, {"endless": True}).problems()
    assert len(TasksetTasks(shelves, {"endless": True}, num_problems=5).problems()) == 5
    with pytest.raises(ValueError, match="taskset: 'no_such_set' cannot be had"):
        TasksetTasks("no_such_set").problems()


@pytest.mark.skipif(
    any(found.name == "verifiers" for found in metadata.distributions()), reason="it is there"
)
def test_without_the_package_one_line_says_what_to_install():
    with pytest.raises(ValueError, match=r"cannot be had .*pip install 'verifiers>=0.4,<0.5'"):
        TasksetTasks("any").problems()
