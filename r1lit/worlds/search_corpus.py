"""The pretraining corpus of the base that earns its length.

Responses in R1-Zero's template by people of little patience, who seldom check; and threads of the
forum, in which one takes up where another stopped. So the base has seen every stage of a search,
far from the question too, but no author who goes through a long one. No page shows a held-out or an
RL problem.
"""

from __future__ import annotations

import numpy as np

from r1lit.data.base import Document, DocumentSource
from r1lit.seeding import generator
from r1lit.settings import check_at_least
from r1lit.text.templates import render
from r1lit.worlds.corpus import FACTS_PER_TABLE, posted, tagged
from r1lit.worlds.countdown import MAX_NUMBER, MAX_RESULT, MIN_TARGET, OPERATIONS, number_sets, step
from r1lit.worlds.habits import Habits, Post, about, branch, write
from r1lit.worlds.long_search import LEVELS, Place, needed_attempts, places, question
from r1lit.worlds.writing import Work, weighted

PAGES = (("response", 0.5), ("thread", 0.35), ("table", 0.15))
SIZES = ((3, 0.6), (4, 0.4))
TRIED_SHARE = {"response": 0.2, "thread": 0.5}
"""Pages whose question says how far somebody has come."""
OVERLOOKED_SHARE = 0.15
"""Of those, how many may have come past the solution."""
MAX_PLACES = 110
"""Attempts after which a thread ends unsolved."""

Sets = dict[int, list[tuple[int, ...]]]
"""Sets of numbers by their size."""


class SearchCorpus(DocumentSource):
    """Pages about searches, page ``i`` a function of ``(seed, i)``.

    Args:
        num_documents: how many.
        seed: of every page.
    """

    def __init__(self, num_documents: int = 60_000, seed: int = 0) -> None:
        check_at_least("num_documents", num_documents, 1)
        self.num_documents = num_documents
        self.seed = seed

    def documents(self) -> list[Document]:
        """Write the pages."""
        sets: Sets = {size: number_sets("corpus", size) for size, _ in SIZES}
        return [
            page(generator(self.seed, "search page", i), sets) for i in range(self.num_documents)
        ]


def page(rng: np.random.Generator, sets: Sets) -> Document:
    """Write one page about numbers of ``sets``, or of arithmetic."""
    kind = weighted(rng, PAGES)
    if kind == "table":
        return Document(prompt="", response=table(rng))
    numbers, search, target, needed = draw(rng, sets)
    asked, start = question(numbers, target), 0
    if rng.random() < TRIED_SHARE[kind]:
        overlooked = rng.random() < OVERLOOKED_SHARE
        start = int(rng.integers(len(search) if overlooked else needed))
        asked += tried(search[start - 1]) if start else ""
    if kind == "thread":
        lines = [f"Q: {asked}", *(f"A: {text}" for text in thread(search, target, start, rng))]
        return Document(prompt="", response="\n".join(lines))
    own = write(search, target, Habits.draw(rng), rng, start=start)
    claimed = own.claimed or search[int(rng.integers(len(search)))]
    work = Work(thinking=own.text, answer=claimed.attempt.expression)
    return Document(prompt=render("small_world", asked), response=tagged(work, rng))


def draw(rng: np.random.Generator, sets: Sets) -> tuple[tuple[int, ...], list[Place], int, int]:
    """Draw numbers in an order, their search, a target of any level, and what it needs."""
    while True:
        own = sets[weighted(rng, SIZES)]
        numbers = tuple(int(n) for n in rng.permutation(own[int(rng.integers(len(own)))]))
        search = places(numbers)
        needed = {
            target: attempts
            for target, attempts in needed_attempts(search).items()
            if target >= MIN_TARGET and target not in numbers
        }
        low, high = LEVELS[int(rng.integers(len(LEVELS)))]
        fitting = [target for target, attempts in needed.items() if low <= attempts <= high]
        if fitting:
            target = fitting[int(rng.integers(len(fitting)))]
            return numbers, search, target, needed[target]


def thread(search: list[Place], target: int, start: int, rng: np.random.Generator) -> list[str]:
    """Write posts by one author after the other, until one is right or nobody is left."""
    posts: list[str] = []
    last = Post(text="", stop=start, claimed=None)
    while last.stop < start + MAX_PLACES:
        last = write(search, target, Habits.draw(rng), rng, start=last.stop, doubted=last.claimed)
        if last.claimed is None:
            posts.append(last.text)
            continue
        posts.append(posted(Work(thinking=last.text, answer=last.claimed.attempt.expression)))
        if last.claimed.attempt.second.result == target:
            break
    return posts


def tried(place: Place) -> str:
    """Write how far somebody has come."""
    second = place.attempt.second
    return f" Tried up to {branch(place)}: {second.left} {second.operation} {second.right}."


def table(rng: np.random.Generator) -> str:
    """Write a page of arithmetic facts, exact and to the nearest five."""
    facts: list[str] = []
    while len(facts) < FACTS_PER_TABLE:
        left, right = int(rng.integers(1, MAX_RESULT + 1)), int(rng.integers(1, MAX_NUMBER + 1))
        fact = step(left, OPERATIONS[int(rng.integers(4))], right)
        if fact is None:
            continue
        exact = rng.random() < 0.5
        value = f"= {fact.result}" if exact else f"~ {about(fact.result)}"
        facts.append(f"{fact.left} {fact.operation} {fact.right} {value}")
    return "Table: " + ", ".join(facts) + "."
