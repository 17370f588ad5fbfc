"""Tasks with a tool: look-up in two steps, guessing in five turns, and a calculator.

A call is plain text, ``<call> city of Anna</call>``, and its result follows it. The facts about
half of the people are the same in every document of the corpus, so a base can know them. The facts
about the others are made up for each problem, so only the tool knows them. For controls, results
can be made worthless on purpose (``results``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Literal, get_args

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.environments import Environment, Episode, Reply, StepResult
from r1lit.environments.tools import verdict_of
from r1lit.errors import check_at_least, check_one_of
from r1lit.seeding import generator
from r1lit.worlds.language import check_shares
from r1lit.worlds.splits import (
    SPLIT_SEED,
    Split,
    check_split,
    draw_distinct,
    hashed_split,
    listed_split,
)

KNOWN = (
    "Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Henry", "Irene", "Jacob",
    "Karin", "Lukas", "Maria", "Niels", "Olga", "Peter", "Quinn", "Rosa", "Simon", "Tanja",
    "Ulrich", "Vera", "Walter", "Xenia", "Yannis", "Zoe", "Adam", "Bella", "Carl", "Doris",
    "Emil", "Fiona",
)  # fmt: skip
"""People about whom every page agrees."""
UNKNOWN = (
    "Arjun", "Bo", "Chidi", "Dalia", "Emre", "Farah", "Gita", "Hiro", "Imani", "Jin", "Kofi",
    "Leila", "Mei", "Nadia", "Omar", "Priya", "Qing", "Ravi", "Sana", "Tariq", "Uma", "Viktor",
    "Wei", "Xiu", "Yusuf", "Zara", "Amir", "Bina", "Chen", "Diya", "Efe", "Fatou",
)  # fmt: skip
"""People whose facts are made up for each problem."""
CITIES = (
    "Rome", "Paris", "Cairo", "Lima", "Oslo", "Delhi", "Tokyo", "Quito", "Accra", "Seoul",
    "Berlin", "Havana",
)  # fmt: skip
RELATIONS = ("teacher", "friend")
CITY = "city"
NOTHING, FAULT = "nothing", "error"
"""Answers of a tool that finds nothing, and to a call that it cannot read."""
Results = Literal["true", "random", "empty", "shuffled"]
Respond = Callable[[str, int], str]
"""Returns the result of a call, from its text and its place among the episode's."""


class CallEpisode(Episode):
    """Calls are answered with short results; a reply without a call is the answer."""

    def __init__(self, respond: Respond, price: float = 0.0) -> None:
        self.respond = respond
        self.price = price
        self.num_calls = 0

    def step(self, reply: Reply) -> StepResult:
        """Return the result of the call."""
        if not reply.calls and not reply.error:
            return StepResult()
        text = reply.calls[0].arguments.get("", "") if reply.calls else ""
        content = self.respond(str(text), self.num_calls)
        self.num_calls += 1
        message = {"role": "tool", "content": content}
        return StepResult(messages=(message,), reward=-self.price, invalid=content == FAULT)


# look-up


@lru_cache(maxsize=4096)
def fact(world: int, relation: str, person: str) -> str:
    """Return a fact: of a known person in every ``world`` the same, of an unknown one by chance."""
    own = KNOWN if person in KNOWN else UNKNOWN
    rng = generator(SPLIT_SEED if own is KNOWN else world, "fact", relation, person)
    if relation == CITY:
        return CITIES[int(rng.integers(len(CITIES)))]
    others = [other for other in own if other != person]
    return others[int(rng.integers(len(others)))]


def call_of(text: str) -> tuple[str, str] | None:
    """Return the relation and the person of a call, None if it cannot be read.

    >>> call_of(" city of Anna"), call_of("city Anna")
    (('city', 'Anna'), None)
    """
    relation, _, person = text.strip().partition(" of ")
    readable = relation in (*RELATIONS, CITY) and person in (*KNOWN, *UNKNOWN)
    return (relation, person) if readable else None


def look_up(world: int, text: str) -> str:
    """Return the true fact that a call asks for."""
    call = call_of(text)
    return FAULT if call is None else fact(world, *call)


def _result(results: Results, world: int, seed: int, text: str, index: int) -> str:
    """Return the tool's answer, which is true or one of the controls."""
    call = call_of(text)
    if call is None:
        return FAULT
    relation, person = call
    match results:
        case "true":
            return fact(world, relation, person)
        case "empty":
            return NOTHING
        case "random":
            rng = generator(seed, "random result", index)
        case _:  # those of another problem, the same for all responses to this one
            rng = generator(world, "shuffled result", relation, person)
    own = KNOWN if person in KNOWN else UNKNOWN
    kind = CITIES if relation == CITY else own
    return kind[int(rng.integers(len(kind)))]


class LookUp(Environment):
    """A tool that tells a person's teacher, friend or city.

    Args:
        results: "true"; "random", of the right kind; "empty"; or "shuffled", those of a problem
            about other people.
        price: what a call costs.
    """

    def __init__(self, results: Results = "true", price: float = 0.0) -> None:
        check_one_of("results", results, get_args(Results))
        check_at_least("price", price, 0)
        self.results: Results = results
        self.price = price

    def begin(self, problem: Problem, seed: int) -> Episode:
        """Return an episode with the facts of the problem's world."""
        world = int(problem.meta["world"])
        return CallEpisode(partial(_result, self.results, world, seed), self.price)


class WorldLookUp(ProblemSource):
    """Questions for the city of somebody's teacher or friend, of known and unknown people.

    Args:
        split: corpus, train or held_out (`known_questions`); of unknown people by the world.
        num_problems: how many; questions about known people recur, since they are few.
        unknown: the share about unknown people.
        seed: of the sample.
        name: of the source, before " known" and " unknown".
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 64,
        unknown: float = 0.5,
        seed: int = 0,
        name: str = "look-up",
    ) -> None:
        check_split(split)
        check_at_least("num_problems", num_problems, 1)
        check_shares(unknown=unknown)
        self.split: Split = split
        self.num_problems = num_problems
        self.num_unknown = round(num_problems * unknown)
        self.seed = seed
        self.name = name

    def problems(self) -> list[Problem]:
        """Return the problems; those about unknown people without repetition."""
        rng = generator(self.seed, "look-up", self.split)
        questions = known_questions(self.split)
        order = rng.permutation(len(questions))
        num_known = self.num_problems - self.num_unknown
        chosen = [(i, *questions[order[i % len(order)]]) for i in range(num_known)]
        made_up = draw_distinct(
            lambda: unknown_question(self.split, rng),
            str,
            self.num_unknown,
            f"split {self.split!r}",
        )
        return [
            *(self._problem("known", *question) for question in chosen),
            *(self._problem("unknown", *question) for question in made_up.values()),
        ]

    def _problem(self, kind: str, world: int, relation: str, person: str) -> Problem:
        return Problem(
            uid=f"{self.name}-{relation}-{person}-{world}",
            question=question(relation, person),
            answer=fact(world, CITY, fact(world, relation, person)),
            source=f"{self.name} {kind}",
            verifier="exact",
            meta={"world": world, "kind": kind},
        )


def question(relation: str, person: str) -> str:
    """Return a question in words."""
    return f"Where does the {relation} of {person} live?"


def known_questions(split: Split) -> list[tuple[str, str]]:
    """Return the questions about known people of a split: relation and person.

    A base knows what its corpus has answered, so those of RL and those held out are of the corpus,
    half of its questions each.
    """
    everything = [(relation, person) for relation in RELATIONS for person in KNOWN]
    asked = listed_split(everything, "corpus", "look-up")
    return {"corpus": asked, "train": asked[::2], "held_out": asked[1::2]}[split]


def unknown_question(split: Split, rng: np.random.Generator) -> tuple[int, str, str]:
    """Return a world of ``split``, a relation and an unknown person in it."""
    while True:
        world = int(rng.integers(1 << 40))
        if hashed_split("look-up", str(world)) == split:
            break
    relation = RELATIONS[int(rng.integers(len(RELATIONS)))]
    return world, relation, UNKNOWN[int(rng.integers(len(UNKNOWN)))]


# guessing

MOST, TURNS = 31, 5
"""A number from 1 to 31, in five turns: halving always finds it."""
HIGHER, LOWER, FOUND = "higher", "lower", "yes"


class GuessEpisode(Episode):
    """Guesses are answered with higher or lower; the right one, or the fifth, ends it."""

    def __init__(self, number: int, coin: np.random.Generator | None) -> None:
        self.number = number
        self.coin = coin
        self.num_guesses = 0

    def step(self, reply: Reply) -> StepResult:
        """Take a guess."""
        start = time.perf_counter()
        if not reply.calls and not reply.error:
            return StepResult(verdict=verdict_of(0.0, start, "no guess"))
        text = str(reply.calls[0].arguments.get("", "")).strip() if reply.calls else ""
        guess = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None
        self.num_guesses += 1
        if guess == self.number:
            return StepResult(verdict=verdict_of(1.0, start))
        if self.num_guesses == TURNS:
            return StepResult(
                verdict=verdict_of(0.0, start, f"not {self.number} in {TURNS} guesses")
            )
        if guess is None:
            content = FAULT
        elif self.coin is None:
            content = HIGHER if guess < self.number else LOWER
        else:
            content = HIGHER if self.coin.random() < 0.5 else LOWER
        return StepResult(messages=({"role": "tool", "content": content},), invalid=guess is None)


class Guessing(Environment):
    """The game: a number, and whether it is higher or lower than a guess.

    Args:
        coin: answer by chance, as a control.
    """

    def __init__(self, coin: bool = False) -> None:
        self.coin = coin

    def begin(self, problem: Problem, seed: int) -> Episode:
        """Return a game about the problem's number."""
        return GuessEpisode(
            int(problem.meta["number"]), generator(seed, "coin") if self.coin else None
        )


class WorldGuessing(ProblemSource):
    """A game for each number from 1 to 31; the question does not tell which.

    Args:
        name: of the source.
    """

    def __init__(self, name: str = "guess") -> None:
        self.name = name

    def problems(self) -> list[Problem]:
        """Return the games."""
        return [
            Problem(
                uid=f"{self.name}-{number}",
                question=GUESS,
                answer=str(number),
                source=self.name,
                verifier="none",
                meta={"number": number},
            )
            for number in range(1, MOST + 1)
        ]


GUESS = f"Guess a number from 1 to {MOST}."


def success_by_chance(consistent: bool) -> float:
    """Return the chance of finding the number in five uniform guesses, exactly.

    Guesses are of any number, or, if ``consistent``, of those that the answers leave. Halving
    always finds it, and five different numbers with answers by chance 5 in 31.

    >>> round(success_by_chance(False), 3), round(success_by_chance(True), 3)
    (0.151, 0.543)
    """
    if not consistent:
        return 1 - (1 - 1 / MOST) ** TURNS
    return _found(MOST, TURNS)


@cache
def _found(size: int, turns: int) -> float:
    """Return the chance of finding one of ``size`` numbers, each as likely, in so many turns."""
    if not turns or not size:
        return 0.0
    below = sum(guess * _found(guess, turns - 1) for guess in range(size))  # numbers below a guess
    return (1 + 2 * below / size) / size


# the calculator

EASY, HARD = 19, 199
"""The largest numbers of easy chains, whose facts the corpus repeats, and of hard ones."""
Chain = tuple[int, tuple[tuple[str, int], ...]]


def operate(left: int, sign: str, right: int) -> int:
    """Return a sum or a difference."""
    return left + right if sign == "+" else left - right


def calculate(text: str) -> int | None:
    """Return a call's result, None if it cannot be read.

    >>> calculate(" 12 + 30"), calculate("12 +")
    (42, None)
    """
    parts = text.split()
    if len(parts) != 3 or parts[1] not in "+-" or not (parts[0] + parts[2]).isdigit():
        return None
    return operate(int(parts[0][:6]), parts[1], int(parts[2][:6]))


def _computed(wrong: float, failing: float, seed: int, text: str, index: int) -> str:
    result = calculate(text)
    if result is None:
        return FAULT
    rng = generator(seed, "calculator", index)
    if rng.random() < failing:
        return NOTHING
    if rng.random() < wrong:
        result += 1 if rng.random() < 0.5 else -1
    return str(max(0, result))


class Calculator(Environment):
    """A calculator of one operation a call.

    Args:
        wrong: the share of results that are off by one.
        failing: the share of calls that come to nothing.
        price: what a call costs.
    """

    def __init__(self, wrong: float = 0.0, failing: float = 0.0, price: float = 0.0) -> None:
        check_shares(wrong=wrong, failing=failing)
        check_at_least("price", price, 0)
        self.wrong, self.failing, self.price = wrong, failing, price

    def begin(self, problem: Problem, seed: int) -> Episode:
        """Return an episode with the calculator."""
        return CallEpisode(partial(_computed, self.wrong, self.failing, seed), self.price)


def draw_chain(split: Split, largest: int, rng: np.random.Generator) -> Chain:
    """Return two or three operations of ``split`` whose numbers are at most ``largest``."""
    while True:
        start = value = int(rng.integers(1, largest + 1))
        steps: list[tuple[str, int]] = []
        for _ in range(int(rng.integers(2, 4))):
            plus = rng.random() < 0.5 if 0 < value < largest else value == 0
            most = largest - value if plus else value
            operand = int(rng.integers(1, most + 1))
            value = operate(value, "+" if plus else "-", operand)
            steps.append(("+" if plus else "-", operand))
        chain = start, tuple(steps)
        if hashed_split("calculator", as_sum(chain)) == split:
            return chain


def as_sum(chain: Chain) -> str:
    """Return a chain as it is written.

    >>> as_sum((7, (("+", 5), ("-", 8))))
    '7 + 5 - 8'
    """
    return f"{chain[0]}" + "".join(f" {sign} {operand}" for sign, operand in chain[1])


def value_of(chain: Chain) -> int:
    """Return a chain's result."""
    value, steps = chain
    for sign, operand in steps:
        value = operate(value, sign, operand)
    return value


class WorldSums(ProblemSource):
    """Chains of sums and differences, easy ones to 19 and hard ones to 199.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        hard: the share of hard ones.
        seed: of the sample.
        name: of the source, before " easy" and " hard".
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 64,
        hard: float = 0.5,
        seed: int = 0,
        name: str = "sum",
    ) -> None:
        check_split(split)
        check_at_least("num_problems", num_problems, 1)
        check_shares(hard=hard)
        self.split: Split = split
        self.num_hard = round(num_problems * hard)
        self.num_easy = num_problems - self.num_hard
        self.seed = seed
        self.name = name

    def problems(self) -> list[Problem]:
        """Return the problems, without repetition."""
        rng = generator(self.seed, "sums", self.split)
        found = []
        for kind, largest, num in (("easy", EASY, self.num_easy), ("hard", HARD, self.num_hard)):
            draw = partial(draw_chain, self.split, largest, rng)
            chains = draw_distinct(draw, as_sum, num, f"split {self.split!r}")
            found += [
                Problem(
                    uid=f"{self.name}-{text}",
                    question=f"What is {text}?",
                    answer=str(value_of(chain)),
                    source=f"{self.name} {kind}",
                    verifier="exact",
                    meta={"kind": kind},
                )
                for text, chain in chains.items()
            ]
        return found
