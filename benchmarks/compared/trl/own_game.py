"""GRPO in a game of several turns, whose guess is a tool."""

import random

from own_tool import train


class Hotter:
    def reset(self, **_):
        self.number, self.turns, self.won = random.randrange(10), 0, False
        return "Guess a digit."

    def guess(self, digit: int) -> str:
        """Guess the digit.

        Args:
            digit: the guess.

        Returns:
            Whether it is the one.
        """
        self.turns += 1
        self.won = self.won or (digit == self.number and self.turns <= 3)
        return "Yes." if self.won else "No."


def won(completions, environments, **_):
    return [float(game.won) for game in environments]


train([won], environment_factory=Hotter)
