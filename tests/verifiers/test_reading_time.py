"""No response can hang what reads it: time grows with the length of a run of any character.

What worker processes read is left out: they are killed when they are late (``test_pool``).
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import reading_time

import r1lit.rewards
from r1lit.text import extract, json_answer, notation, scored_text, units
from r1lit.verifiers import DefaultVerifiers

LIMIT_S = 60  # of CPU time for all cases of one reader, which take about 4
READERS = reading_time.readers()
OTHER_REWARDS = {
    "Accuracy", "ConditionalReward", "CosineLength", "GroupLength", "Overlong", "PlainReward",
    "ProcessReward", "Reward", "RewardFunction", "RewardModel", "StepRewards",
}  # fmt: skip
"""Rewards that read verdict, length, another reward's text, or what ``scored_part`` returns."""
OF_TOKENS = {"encode_scored", "pieces", "token_places"}
"""Functions of a response's tokens, or of places in its text."""


@pytest.fixture(scope="module")
def last_lines() -> Iterator[Callable[[str], list[str]]]:
    script = subprocess.Popen(
        [sys.executable, reading_time.__file__],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def timed(name: str, limit_s: int = LIMIT_S) -> list[str]:
        print(limit_s, name, file=script.stdin, flush=True)
        return list(iter(script.stdout.readline, "over\n"))[-2:]

    yield timed
    script.kill()
    script.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_time_grows_with_the_length(last_lines: Callable[[str], list[str]], name: str):
    case, end = last_lines(name)
    assert end == "fine\n", (case, end)


@pytest.mark.slow
@pytest.mark.parametrize("name", reading_time.BAD)
def test_what_is_not_linear_is_found(last_lines: Callable[..., list[str]], name: str):
    assert last_lines(name, limit_s=5)[-1] != "fine\n"


def test_every_reader_of_a_response_is_timed():
    assert all(
        f"verifier {name}" in READERS for name in DefaultVerifiers() if name != "reasoning_gym"
    )
    rewards = {name for name in r1lit.rewards.__all__ if name[0].isupper()} - OTHER_REWARDS
    names = {f"reward {getattr(r1lit.rewards, name).name}" for name in rewards}
    assert names == {name.partition(",")[0] for name in READERS if name.startswith("reward")}
    for module in (extract, json_answer, notation, scored_text, units):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            public = function.__module__ == module.__name__ and not name.startswith("_")
            assert not public or name in READERS or name in OF_TOKENS, name
