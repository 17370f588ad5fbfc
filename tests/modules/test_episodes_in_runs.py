"""Runs of episodes of several turns through the command line, on a small random policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from metrics_page import MEASURED
from tiny_distillation import on_policy

from r1lit.cli import main
from r1lit.environments import Environment, Episode, Reply, StepResult
from r1lit.problems import Problem


class Digits(Episode):
    """Answers with a number, and pays for digits; a run of it may be made to fail."""

    def __init__(self, number: int, fails: bool) -> None:
        self.number = number
        self.fails = fails

    def step(self, reply: Reply) -> StepResult:
        if self.fails:
            raise RuntimeError("the game is lost")
        digits = sum(c.isdigit() for c in reply.text)
        message = {"role": "tool", "content": str(self.number)}
        return StepResult(messages=(message,), reward=digits / 10, invalid=not digits)


class Game(Environment):
    """A game for the tests; episodes with seeds of 0 modulo ``fails_of`` fail."""

    def __init__(self, fails_of: int = 0) -> None:
        self.fails_of = fails_of

    def begin(self, problem: Problem, seed: int) -> Episode:
        return Digits(seed % 10, bool(self.fails_of) and seed % self.fails_of == 0)


def run(folder: Path, policy: Path, **changes: Any) -> tuple[list[Any], list[Any]]:
    """Run three iterations; return the lines of metrics and of responses."""
    change = tiny.merge(in_game(**changes.pop("game", {})), tiny.model(**changes))
    change = tiny.merge(tiny.model(sampling={"max_tokens": 96}), change)
    path = tiny.grpo_config(folder, policy, change)
    config = yaml.safe_load(path.read_text())
    for callback in config["trainer"]["callbacks"]:
        if callback["class_path"].endswith("IterationCheckpoint"):
            callback["init_args"]["keep_every_n_iterations"] = 1
    path.write_text(yaml.safe_dump(config))
    main(["fit", "-c", str(path)])
    return tuple(
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("metrics.jsonl", "responses.jsonl")
    )


def in_game(**options: Any) -> dict[str, Any]:
    """A change of the data into three iterations of games."""
    source = {"class_path": "r1lit.worlds.WorldCountdown", "init_args": {"num_problems": 12}}
    game = {"source": source, "environment": "game", "verifier": "none"}
    return tiny.data(
        num_iterations=3,
        validation=None,
        train=[{"class_path": "r1lit.data.InEnvironment", "init_args": game}],
        environments={
            "game": {
                "class_path": "test_episodes_in_runs.Game",
                "init_args": options,
            }
        },
        turns={
            "class_path": "r1lit.environments.InlineTurns",
            "init_args": {"call_open": "1", "call_close": "2"},
        },
        limits={"max_turns": 3, "max_failed": 1.0},
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tiny.save_policy(tmp_path_factory.mktemp("policy"))


@pytest.mark.long
def test_a_run_logs_its_episodes_and_trains_on_what_was_sampled(base, tmp_path):
    metrics, responses = run(tmp_path / "run", base)
    assert [line["iteration"] for line in metrics] == [0, 1, 2]
    for line in metrics:
        assert line["train/mismatch/max_abs"] < 1e-3
        assert line["train/environment/turns"] > 1 and line["train/environment/tokens"] > 1
        assert line["time/environment_s"] > 0 and line["time/wait_s"] == 0
        ended = [v for k, v in line.items() if k.startswith("train/environment/ended/")]
        assert sum(ended) == pytest.approx(1)
        total = line["train/length/mean"] * 16
        assert line["train/num_tokens"] == pytest.approx(total, abs=0.5), "sampled tokens alone"
    turns = [line["turns"] for line in responses if line["ended"] == "turns"]
    assert turns and [m["role"] for m in turns[0]] == ["assistant", "tool"] * 2 + ["assistant"]
    assert any(line["train/environment/reward"] > 0 for line in metrics)


@pytest.mark.long
def test_a_group_with_a_failed_episode_teaches_nothing(base, tmp_path):
    metrics, _ = run(tmp_path / "run", base, game={"fails_of": 1})
    for line in metrics:
        assert line["train/environment/ended/failed"] == 1 and line["train/verifier/error"] == 1
        assert line["train/grad_norm"] == 0 and line["train/reward"] == 0


def test_distillation_learns_nothing_of_failed_episodes(base, tmp_path):
    teacher = tiny.save_policy(tmp_path / "teacher", seed=9)
    change = tiny.merge(in_game(fails_of=1), tiny.data(num_iterations=1))
    named = {"class_path": "r1lit.policy.ModelTeacher", "init_args": {"model": str(teacher)}}
    main(["fit", "-c", str(on_policy(tmp_path / "run", base, change, teacher=named))])
    (line,) = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert line["train/environment/ended/failed"] == 1
    assert line["train/grad_norm"] == 0 and line["train/divergence"] == 0


@pytest.mark.long
def test_a_run_with_rollouts_ahead_goes_on_from_a_checkpoint_to_the_same_numbers(base, tmp_path):
    options = {"collector": tiny.ahead(1), "steps": [tiny.CORRECTION]}
    whole, _ = run(tmp_path / "whole", base, **options)
    kept = (tmp_path / "whole" / "checkpoints").glob("*.ckpt")
    first = min(path for path in kept if path.name != "last.ckpt")
    config = tmp_path / "whole.yaml"
    resumed = tmp_path / "resumed"
    text = config.read_text().replace(str(tmp_path / "whole"), str(resumed))
    (tmp_path / "resumed.yaml").write_text(text)
    main(["fit", "-c", str(tmp_path / "resumed.yaml"), "--ckpt_path", str(first)])
    again = [json.loads(line) for line in (resumed / "metrics.jsonl").read_text().splitlines()]

    def numbers(line: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in line.items() if not k.startswith((*MEASURED, "seconds"))}

    assert len(again) == 2 and [numbers(n) for n in again] == [numbers(n) for n in whole[1:]]


@pytest.mark.long
def test_rewards_of_steps_are_refused_for_episodes(base, tmp_path):
    rewards = [{"class_path": "test_step_rewards.HalfAndEnd"}]
    with pytest.raises(ValueError, match=r"^rewards: .*reward its turns by StepResult\.reward"):
        run(tmp_path / "run", base, rewards=rewards)
