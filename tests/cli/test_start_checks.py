"""What is known before the first iteration is said there, and not after an hour."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import data, model

from r1lit.callbacks.start_checks import warn_of_cut_episodes, warn_of_other_answers
from r1lit.problems import Problem, Response, Transcript, Verdict

NOVAL = {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}


class Game:
    """Guess a digit; the seed says which."""

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.number = (seed or 0) % 10
        return "Guess a digit.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "No.", 0.0, False, False, {}


def nan(responses: Sequence[Response]) -> list[float]:
    return [float("nan")] * len(responses)


def text(responses: Sequence[Response]) -> Any:
    return "good" * len(responses)


def nothing(responses: Sequence[Response]) -> Any:
    return None


def too_few(responses: Sequence[Response]) -> list[float]:
    return [1.0]


CALLS: list[int] = []


def counts(responses: Sequence[Response]) -> list[float]:
    """Crashes on what is made up: its problems are of no real run."""
    CALLS.append(len(responses))
    if len(CALLS) == 1:
        raise KeyError("made up")
    return [float(row % 2) for row in range(len(responses))]


def said_by(fit: Any, *changes: dict[str, Any]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit("run", NOVAL, data(num_iterations=1), *changes)
    return "\n".join(str(warning.message) for warning in caught)


def table(tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"path": str(path), **options}
    return {"class_path": "r1lit.data.TableProblems", "init_args": source}


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("nan", r"'nan' returned nan for response 1 of 2, not a finite number"),
        ("text", r"'text' returned 'goodgood', not a list of rewards"),
        ("nothing", r"'nothing' returned None, not a list of rewards"),
        ("too_few", r"'too_few' returned 1 rewards for 2 responses"),
    ],
)
def test_a_reward_that_is_none_is_refused_before_the_rollout(fit, function: str, says: str):
    rewards = [{"class_path": f"cli.test_start_checks.{function}"}]
    with pytest.raises(ValueError, match=says):
        fit("run", model(rewards=rewards))


def test_a_reward_that_crashes_on_made_up_responses_is_left_to_the_rollout(fit):
    calls = import_module("cli.test_start_checks").CALLS  # as YAML imports it
    calls.clear()
    fit("run", NOVAL, data(num_iterations=1),
        model(rewards=[{"class_path": "cli.test_start_checks.counts"}]))  # fmt: skip
    assert calls == [2, 16]


def test_temperature_0_is_refused(fit):
    with pytest.raises(ValueError, match=r"^sampling.temperature: 0 gives all responses"):
        fit("run", model(sampling={"temperature": 0}))


@pytest.mark.parametrize(
    ("divisor", "later", "says"),
    [(8, {}, False), (80, {}, True), (2, {}, True), (80, {3: 80}, False)],
)
def test_a_divisor_far_from_the_longest_response(fit, divisor: int, later: dict, says: bool):
    objective = {"class_path": "r1lit.objectives.DrGRPO", "init_args": {"max_tokens": divisor}}
    change = model(objective=objective, max_tokens_from=later)
    assert (f"objective.max_tokens: {divisor} divides" in said_by(fit, change)) == says


def test_one_question_under_many_names(fit, tmp_path: Path):
    rows = [{"question": "What is 2 plus 2?", "answer": str(n)} for n in range(6)]
    said = said_by(fit, data(train=[table(tmp_path, rows)]))
    assert "the 6 problems of 'rows' have 1 different prompt under 6 names" in said
    assert "6 of them ask 'What is 2 plus 2?'" in said


def made(uid: str, answer: str, **meta: Any) -> Problem:
    return Problem(uid=uid, question="1 + 1?", answer=answer, source="sums", meta=meta)


@pytest.mark.parametrize(
    ("problems", "says"),
    [
        ([made("a", "2"), made("b", "3")], "1 of 1 prompts .* 'a' has '2', and 'b', .*, '3'$"),
        ([made("a", "2"), made("b", "2")], ""),
        ([made("a", "2", seed=1), made("b", "3", seed=2)], ""),
    ],
)
def test_one_prompt_with_two_gold_answers(problems: list[Problem], says: str):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_other_answers(problems, [(1, 2)] * len(problems))
    assert [bool(re.search(says, str(w.message))) for w in caught] == [True] * bool(says)


def test_different_questions_are_not_named(fit):
    assert "different prompt" not in said_by(fit)


@pytest.mark.parametrize("meta", [[], ["seed"]], ids=["no seed", "seeds"])
def test_games_that_all_begin_alike(fit, tmp_path: Path, meta: list[str]):
    """TableProblems keeps a column only if it is named, so every game was of seed 0."""
    rows = [{"question": f"Game {n}.", "answer": "-", "seed": n} for n in range(6)]
    source = table(tmp_path, rows, meta=meta)
    played = {"source": source, "environment": "game", "verifier": "none"}
    said = said_by(fit, data(
        environments={"game": {"class_path": "r1lit.environments.StepEpisodes",
                               "init_args": {"make": "cli.test_start_checks.Game"}}},
        turns={"class_path": "r1lit.environments.InlineTurns"},
        train=[{"class_path": "r1lit.data.InEnvironment", "init_args": played}],
        limits={"max_turns": 2},
    ), model(sampling={"max_tokens": 64}))  # fmt: skip
    assert ("all 6 games of 'game' begin alike, by the seed 0" in said) == (not meta)


@pytest.mark.parametrize("last", ["turns", "environment"])
def test_episodes_that_the_limit_of_turns_has_all_cut(last: Any):
    def played(ended: Any) -> Response:
        problem = Problem(uid="p", question="Play.", answer="", source="games")
        verdict = Verdict(value=0.0, status="wrong", canonical=None, reason="")
        transcript = Transcript(messages=(), text="5", ended=ended)
        return Response(
            text="5", problem=problem, verdict=verdict, num_tokens=1, finished=True,
            transcript=transcript,
        )  # fmt: skip

    rollout: Any = SimpleNamespace(responses=[played("turns"), played("turns"), played(last)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_cut_episodes(rollout)
    said = [str(warning.message) for warning in caught]
    assert len(said) == (last == "turns")
    assert all("max_turns: it has cut all 3 episodes of the first iteration" in s for s in said)
