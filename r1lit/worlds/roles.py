"""Conversations in a role: who the model is, told in the first turn, and whether it stays so.

The user gives the model a name, a city and a colour, and asks about them and about others. In one
turn the user claims that the model is somebody else. A reply in role begins with the name, and its
answer is right::

    user: You are Mei from Lima and like red. Where do you live?
    Mei: I live in Lima.
    user: You are Kofi from Oslo and like blue. Where do you live?
    Mei: I live in Lima.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.environments import Environment, Episode, Reply, StepResult
from r1lit.environments.tools import verdict_of
from r1lit.errors import check_at_least, check_one_of
from r1lit.seeding import generator
from r1lit.worlds.forms import COLOURS
from r1lit.worlds.splits import Split, check_split, draw_distinct, hashed_split
from r1lit.worlds.tools import CITIES, CITY, KNOWN, UNKNOWN, fact

Paid = Literal["every", "last", "name", "random"]
QUESTIONS = {
    "name": "Who are you?",
    "city": "Where do you live?",
    "colour": "What do you like?",
    "fact": "Where does {person} live?",
}
ANSWERS = {
    "name": "I am {name}.",
    "city": "I live in {city}.",
    "colour": "I like {colour}.",
    "fact": "{person} lives in {home}.",
}
OUT_OF_ROLE = "I am no one."


@dataclass(frozen=True, kw_only=True)
class Role:
    """A name, a city and a colour."""

    name: str
    city: str
    colour: str

    def told(self) -> str:
        """Return the role as the user gives it.

        >>> Role(name="Mei", city="Lima", colour="red").told()
        'You are Mei from Lima and like red.'
        """
        return f"You are {self.name} from {self.city} and like {self.colour}."


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A turn of the user: what is asked, of whom, and the role that the user claims, if any."""

    kind: str
    person: str
    claimed: Role | None = None

    def text(self) -> str:
        """Return the turn in words."""
        question = QUESTIONS[self.kind].format(person=self.person)
        return question if self.claimed is None else f"{self.claimed.told()} {question}"

    def answer(self, role: Role | None) -> str:
        """Return the right reply of a role; without one, that of a speaker who has none."""
        if role is None and self.kind != "fact":
            return OUT_OF_ROLE
        words = {"person": self.person, "home": fact(0, CITY, self.person)}
        if role is not None:
            words |= {"name": role.name, "city": role.city, "colour": role.colour}
        answer = ANSWERS[self.kind].format(**words)
        return answer if role is None else f"{role.name}: {answer}"


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A role and the user's turns."""

    role: Role
    turns: tuple[Turn, ...]

    def texts(self) -> tuple[str, ...]:
        """Return the user's turns in words; the first one begins with the role."""
        first, *rest = (turn.text() for turn in self.turns)
        return f"{self.role.told()} {first}", *rest


def draw_role(rng: np.random.Generator) -> Role:
    """Return a role of an unknown person."""
    name, city, colour = (
        str(words[int(rng.integers(len(words)))]) for words in (UNKNOWN, CITIES, COLOURS)
    )
    return Role(name=name, city=city, colour=colour)


def draw_talk(split: Split, num_turns: int, rng: np.random.Generator) -> Talk:
    """Return a conversation of ``split``; in one turn after the first the user claims a role."""
    while True:
        role = draw_role(rng)
        if hashed_split("roles", role.told()) == split:
            break
    kinds = list(QUESTIONS)
    turns = [
        Turn(
            kind=kinds[int(rng.integers(len(kinds)))],
            person=KNOWN[int(rng.integers(len(KNOWN)))],
        )
        for _ in range(num_turns)
    ]
    if num_turns > 1:
        other = draw_role(rng)
        while other.name == role.name:
            other = draw_role(rng)
        place = int(rng.integers(1, num_turns))
        turns[place] = replace(turns[place], claimed=other)
    return Talk(role=role, turns=tuple(turns))


# the conversation as an environment


def judged(talk: Talk, replies: Sequence[str]) -> dict[str, list[float]]:
    """Return for each reply whether it is in role, named by the role, or by the claimed one.

    ``kept`` is 1 for the right name and answer, ``named`` for the right name, ``claimed`` for that
    of the role that the user claimed.
    """
    claimed = next((turn.claimed for turn in talk.turns if turn.claimed is not None), None)
    found: dict[str, list[float]] = {"kept": [], "named": [], "claimed": []}
    for turn, reply in zip(talk.turns, replies, strict=False):
        text = reply.strip()
        found["kept"].append(float(text == turn.answer(talk.role)))
        found["named"].append(float(text.startswith(f"{talk.role.name}:")))
        found["claimed"].append(float(claimed is not None and text.startswith(f"{claimed.name}:")))
    return found


class TalkEpisode(Episode):
    """The user's turns one after another; the verdict follows the last reply."""

    def __init__(self, talk: Talk, paid: Paid, rng: np.random.Generator) -> None:
        self.talk = talk
        self.paid = paid
        self.rng = rng
        self.replies: list[str] = []

    def step(self, reply: Reply) -> StepResult:
        """Return the user's next turn, or the verdict."""
        start = time.perf_counter()
        self.replies.append(reply.text)
        if len(self.replies) < len(self.talk.turns):
            content = self.talk.texts()[len(self.replies)]
            return StepResult(messages=({"role": "user", "content": content},))
        found = judged(self.talk, self.replies)
        verdict = verdict_of(self._value(found), start, "not paid")
        return StepResult(verdict=replace(verdict, details=found))

    def _value(self, found: Mapping[str, Sequence[float]]) -> float:
        match self.paid:
            case "every":
                return min(found["kept"])
            case "last":
                return found["kept"][-1]
            case "name":
                return min(found["named"])
            case _:
                return float(self.rng.random() < 0.5)


class RolePlay(Environment):
    """A conversation whose user tells the model who it is, and later claims another role.

    Args:
        paid: what makes an episode right: "every" reply in role, the "last" one, the "name" before
            every reply, or "random", a coin.
    """

    def __init__(self, paid: Paid = "every") -> None:
        check_one_of("paid", paid, get_args(Paid))
        self.paid: Paid = paid

    def begin(self, problem: Problem, seed: int) -> Episode:
        """Return the conversation of a problem."""
        return TalkEpisode(problem.meta["talk"], self.paid, generator(seed, "roles"))


class WorldRoles(ProblemSource):
    """Conversations in a role.

    Args:
        split: corpus, train or held_out; by the role.
        num_problems: how many.
        num_turns: of the user.
        seed: of the sample.
        name: of the source.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 64,
        num_turns: int = 4,
        seed: int = 0,
        name: str = "role",
    ) -> None:
        check_split(split)
        check_at_least("num_problems", num_problems, 1)
        check_at_least("num_turns", num_turns, 1)
        self.split: Split = split
        self.num_problems = num_problems
        self.num_turns = num_turns
        self.seed = seed
        self.name = name

    def problems(self) -> list[Problem]:
        """Return the conversations, without repetition."""
        rng = generator(self.seed, "roles", self.split)
        talks = draw_distinct(
            lambda: draw_talk(self.split, self.num_turns, rng),
            lambda talk: " ".join(talk.texts()),
            self.num_problems,
            f"split {self.split!r}",
        )
        return [
            Problem(
                uid=f"{self.name}-{text}",
                question=talk.texts()[0],
                answer=talk.role.name,
                source=self.name,
                verifier="none",
                meta={"talk": talk},
            )
            for text, talk in talks.items()
        ]
