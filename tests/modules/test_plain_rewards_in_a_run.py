"""A plain function as a reward of a whole run, through the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import data, model

from r1lit.batches import Response

SHORT = {"trainer": {"limit_val_batches": 0}, "data": {"init_args": {"num_iterations": 2}}}


def num_letters(responses: Sequence[Response], per: int = 1) -> list[float]:
    return [len(response.text) / per for response in responses]


GROUPS: list[list[int | str]] = []


def groups(responses: Sequence[Response]) -> list[float]:
    GROUPS.append([response.group_id for response in responses])
    return [0.0] * len(responses)


def forgetful(responses: Sequence[Response]) -> None:
    return None


def rewards(name: str, **init_args: Any) -> dict[str, Any]:
    return model(rewards=[{"class_path": f"{__name__}.{name}", "init_args": init_args}])


def test_a_plain_function_is_trained_on_logged_and_saved(fit, tmp_path: Path):
    cli = fit("run", rewards("num_letters", per=10, weight=0.5), SHORT)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2
    for line in map(json.loads, lines):
        assert line["train/reward/num_letters"] > 0
        assert line["train/reward"] == pytest.approx(line["train/reward/num_letters"] / 2)
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    (spec,) = saved["model"]["init_args"]["rewards"]
    assert spec["class_path"].endswith(".num_letters")
    assert spec["init_args"] == {"per": 10, "weight": 0.5}
    assert cli.model.rewards[0].weight == 0.5


def test_responses_know_their_group_although_problems_come_twice(fit):
    twice = SHORT | data(num_iterations=1, rollout={"prompts_per_iteration": 8, "group_size": 2})
    few = {"class_path": "r1lit.worlds.WorldCountdown", "init_args": {"num_problems": 4}}
    fit("run", rewards("groups"), twice, data(train=[few]), model(train_batch_size=4))
    *_, collected = GROUPS
    assert collected == [place // 2 for place in range(16)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rewards("forgetful"), "reward function 'forgetful' returned None, not a list of rewards"),
        (
            rewards("num_letters", pre=2, weight=0.5),
            "model.rewards.pre: test_plain_rewards_in_a_run.num_letters has no such key;"
            " did you mean per?",
        ),
        (rewards("num_words"), "num_words does not exist"),
        (
            model(rewards=[{"class_path": "r1lit.rewards.Format", "init_args": {"wieght": 1}}]),
            "model.rewards.wieght: Format has no such key; did you mean weight?",
        ),
    ],
)
def test_mistakes_are_told(fit, change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=r"(?s).*") as error:
        fit("run", change, SHORT)
    assert message in str(error.value)
    assert "\n" not in str(error.value).strip()
