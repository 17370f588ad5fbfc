"""TextArena's games of one player; needs the package, which no extra of r1lit installs."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace

import pytest

from r1lit.environments import Reply, StepEpisodes
from r1lit.environments.textarena import TextArenaGame
from r1lit.problems import Problem

PROBLEM = Problem(uid="p", question="Play.", answer="", source="s", meta={"seed": 3})


def games(**options) -> StepEpisodes:
    pytest.importorskip("textarena")
    return StepEpisodes(TextArenaGame, {"name": "GuessTheNumber-v0", **options})


def play(environment: StepEpisodes, guesses) -> list:
    episode = environment.begin(PROBLEM, 0)
    steps = []
    for guess in guesses:
        steps.append(episode.step(Reply(text=f"[{guess}]")))
        if steps[-1].verdict is not None:
            break
    episode.close()
    return steps


def test_a_game_is_right_when_it_is_won_and_wrong_when_it_is_lost():
    environment = games()
    assert "guess the number between 1 and 20" in environment.opening(PROBLEM)
    won = play(environment, range(1, 21))
    answers = [m["content"] for step in won for m in step.messages]
    if won[-1].verdict.status != "right":  # above 10, which ten guesses from 1 do not reach
        won = play(environment, range(20, 0, -1))
        answers = [m["content"] for step in won for m in step.messages]
    assert won[-1].verdict.status == "right" and all("target number" in a for a in answers)
    lost = play(environment, [1, 20] * 5)
    assert lost[-1].verdict.status == "wrong"
    assert lost[-1].reward > 0  # it pays losers


def test_games_leave_the_global_random_numbers_alone():
    environment = games()
    random.seed(5)
    before = random.getstate()
    one = [s.messages for s in play(environment, [10, 5, 15])]
    assert random.getstate() == before
    random.seed(6)
    assert [s.messages for s in play(environment, [10, 5, 15])] == one


def test_what_is_not_there_is_said_in_one_line(monkeypatch):
    if "textarena" in sys.modules or _installed():
        with pytest.raises(ValueError, match="TextArena makes no 'Nothing-v0'"):
            TextArenaGame("Nothing-v0")
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(ValueError, match=r"pip install 'textarena==0\.7\.4'") as error:
        StepEpisodes("r1lit.environments.textarena.TextArenaGame", {"name": "x"}).opening(PROBLEM)
    assert "\n" not in str(error.value)


def _installed() -> bool:
    try:
        import textarena  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (ModuleNotFoundError("No module named 'chess'", name="chess"), "pip install chess$"),
        (
            LookupError("\n****\n  Resource words not found.\n  >>> nltk.download('words')\n****"),
            r"reads NLTK's corpus 'words', .*; python -m nltk.downloader words$",
        ),
    ],
    ids=["a package", "a corpus"],
)
def test_a_game_without_what_it_needs_is_named_in_one_line(monkeypatch, fault, says):
    """The faults are those of TextArena's Chess and Hangman on a machine without both."""

    def make(name: str) -> None:
        raise fault

    monkeypatch.setitem(sys.modules, "textarena", SimpleNamespace(make=make))
    environment = StepEpisodes(TextArenaGame, {"name": "Chess-v0"})
    with pytest.raises(ValueError, match=says) as caught:
        environment.opening(PROBLEM)
    assert "\n" not in str(caught.value)


def test_a_library_that_is_not_installed_is_named_once():
    with pytest.raises(ValueError) as caught:
        StepEpisodes("no_such_library.make", {}).opening(PROBLEM)
    says = "make: 'no_such_library.make' cannot be imported: No module named 'no_such_library'"
    assert str(caught.value) == says
