"""docs/REWARDS.md: its YAML parses, and it names every reward and every option."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from jsonargparse import ArgumentParser
from test_scoring_rewards import save_reward_model

import r1lit.rewards
from r1lit.batches import Problem, Response, Verdict
from r1lit.rewards import ConditionalReward, PlainReward, Reward, RewardFunction, score
from r1lit.verifiers import Grader

TEXT = (Path(__file__).parents[2] / "docs" / "REWARDS.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.S)
CLASSES = [
    kind
    for name in r1lit.rewards.__all__
    if inspect.isclass(kind := getattr(r1lit.rewards, name))
    and issubclass(kind, RewardFunction)
    and kind not in (RewardFunction, PlainReward)
]


@pytest.fixture
def my_rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rewards.py").write_text(PYTHON[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)


@pytest.fixture
def reward_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward model where the page's path leads."""
    made = save_reward_model(tmp_path)
    there = tmp_path / "runs" / "r1" / "helpful_rm" / "policy"
    there.parent.mkdir(parents=True)
    made.rename(there)
    shutil.copytree(there, tmp_path / "runs" / "process" / "policy")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("my_rewards", "reward_model")
def test_every_reward_of_the_page_can_be_built_and_scores():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--rewards", type=list[Reward])
    specs = [spec for block in BLOCKS[:-1] for spec in yaml.safe_load(block)]
    rewards = parser.instantiate(parser.parse_object({"rewards": specs})).rewards
    assert {type(reward) for reward in rewards} - {PlainReward} == set(CLASSES)
    row = Response(
        text="<think> two and two </think> <answer> 4 </answer>",
        problem=Problem(
            uid="", question="2 + 2?", answer="4", source="test", meta={"kind": "reasoning"}
        ),
        verdict=Verdict(value=1.0, status="right", canonical="4", reason=""),
        num_tokens=40,
        finished=True,
    )
    # GroupLength stands on the page twice, once within Only: two rewards of a name are refused
    alone = [r for r in rewards if not isinstance(r, ConditionalReward)]
    only = next(r for r in rewards if isinstance(r, ConditionalReward))
    assert only([row]) == only.reward([row])
    by_name, _ = score(alone, [row])
    assert by_name["language_consistency"] == [1.0] and by_name["brevity"] == [1.0]


def test_the_grader_of_the_page_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--grader", type=Grader)
    grader = parser.instantiate(parser.parse_string(BLOCKS[-1])).grader
    assert set(grader.verifiers) == {"math", "generative"}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_reward_has_a_section_that_names_its_options(kind: type[RewardFunction]):
    section = re.search(rf"^## {kind.__name__}\n(.*?)(?=^## )", TEXT, re.S | re.M)
    assert section
    options = set(inspect.signature(kind).parameters) - {"weight", "responses"}
    assert [option for option in options if option not in section[1]] == []
