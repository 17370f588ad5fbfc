"""An adapter for TextArena's games of one player, as a game that `StepEpisodes` plays."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PIN = "textarena==0.7.4"


class TextArenaGame:
    """A game of one player, by steps of text.

    TextArena draws from Python's global random numbers, so a game has a state of them of its own,
    which stands in for the global one during its steps: games do not disturb one another. Some
    games pay losers (GuessTheNumber up to 0.9), so only the full reward of 1 is a success.

    Args:
        name: the game's, such as ``GuessTheNumber-v0``.
        options: of the game.
    """

    def __init__(self, name: str, **options: Any) -> None:
        try:
            import textarena
        except ImportError as error:
            raise ValueError(
                f"make: TextArenaGame needs the package textarena ({error}); pip install '{PIN}'"
            ) from error
        self.name = name
        with self._whole():
            self.game = textarena.make(f"{name.removesuffix('-raw')}-raw", **options)
        self._random: Any = None

    def reset(self, seed: int = 0) -> tuple[str, dict[str, Any]]:
        """Begin a game, and return its rules."""
        self._random = random.Random(seed).getstate()
        with self._own_random(), self._whole():
            self.game.reset(num_players=1, seed=seed)
        return self._observation(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take a turn; return what the game says, and at its end the reward."""
        with self._own_random():
            done, _ = self.game.step(action)
        if not done:
            return self._observation(), 0.0, False, False, {}
        rewards, info = self.game.close()
        reward = float((rewards or {}).get(0, 0.0))
        return "", reward, True, False, {**info.get(0, {}), "success": reward >= 1}

    def _observation(self) -> str:
        """Return the game's words since the last turn, without the player's own."""
        player, messages = self.game.get_observation()
        return "\n".join(str(text) for sender, text, *_ in messages if sender != player)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Say in one line what a game lacks: a package, or a corpus of NLTK's."""
        try:
            yield
        except ImportError as error:
            raise ValueError(
                f"options.name: TextArena's {self.name!r} needs a package that is not installed"
                f" ({error}); pip install {error.name or 'it'}"
            ) from error
        except (LookupError, ValueError, TypeError) as error:
            corpus = re.search(r"nltk\.download\('([\w-]+)'\)", str(error))
            if corpus is not None:
                raise ValueError(
                    f"options.name: TextArena's {self.name!r} reads NLTK's corpus {corpus[1]!r},"
                    f" which is not on this machine; python -m nltk.downloader {corpus[1]}"
                ) from error
            raise ValueError(f"options.name: TextArena makes no {self.name!r}: {error}") from error

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        outside = random.getstate()
        random.setstate(self._random)
        try:
            yield
        finally:
            self._random = random.getstate()
            random.setstate(outside)
