"""The small world's web: what the base model reads before any RL.

Five kinds of page about two families of problems. Most people in R1-Zero's template write little
and give up early; patient people are a minority there and a majority on the forum. So the base
model knows how to search, and seldom does. No page shows a held-out or an RL problem.
"""

from __future__ import annotations

import numpy as np

from r1lit.data.base import Document, DocumentSource
from r1lit.data.world.chain import draw_from, results
from r1lit.data.world.chain import question as chain_question
from r1lit.data.world.countdown import (
    MAX_NUMBER,
    MAX_RESULT,
    OPERATIONS,
    number_sets,
    question,
    step,
    targets,
)
from r1lit.data.world.writing import Work, calculate, pick, search
from r1lit.seeding import generator
from r1lit.templates import render

PAGES = (("template", 0.4), ("forum", 0.38), ("quiz", 0.05), ("textbook", 0.04), ("table", 0.13))
CHAIN_SHARE = 0.25
TAGGED_SHARE = 0.97
THREAD_SHARE = 0.4
FACTS_PER_TABLE = 24

Pool = list[tuple[tuple[int, ...], int]]
"""Countdown problems: numbers and target."""

# (smallest effort, largest effort, share): 0 answers without thinking, None never gives up
EFFORTS = {
    ("template", "countdown"): ((0, 0, 0.22), (1, 3, 0.44), (4, 10, 0.12), (None, None, 0.22)),
    ("template", "chain"): ((0, 0, 0.3), (1, 3, 0.4), (None, None, 0.3)),
    ("forum", "countdown"): ((1, 3, 0.1), (4, 10, 0.1), (None, None, 0.8)),
    ("forum", "chain"): ((1, 3, 0.2), (None, None, 0.8)),
}


class WorldCorpus(DocumentSource):
    """``num_documents`` pages of the small world, page ``i`` a function of ``(seed, i)``."""

    def __init__(self, num_documents: int = 100_000, seed: int = 0) -> None:
        if num_documents < 1:
            raise ValueError(f"num_documents: {num_documents} is not at least 1")
        self.num_documents = num_documents
        self.seed = seed

    def documents(self) -> list[Document]:
        """Write the pages."""
        pool = [(n, t) for n in number_sets("corpus") for t in targets(n)]
        return [page(generator(self.seed, "page", i), pool) for i in range(self.num_documents)]


def page(rng: np.random.Generator, pool: Pool) -> Document:
    """Write one page about Countdown problems of ``pool`` or chains of the corpus split."""
    kind = draw_share(rng, PAGES)
    if kind == "table":
        return Document(prompt="", response=table(rng))
    if kind == "forum" and rng.random() < THREAD_SHARE:
        # A second search far from the page's beginning, with another problem's numbers before it
        first, second = problem_page(kind, rng, pool), problem_page(kind, rng, pool)
        return Document(prompt="", response=f"{first.response}\n{second.response}")
    return problem_page(kind, rng, pool)


def problem_page(kind: str, rng: np.random.Generator, pool: Pool) -> Document:
    """Write a page of ``kind`` about one problem."""
    family = "chain" if rng.random() < CHAIN_SHARE else "countdown"
    effort = None if kind in ("quiz", "textbook") else draw_effort(rng, kind, family)
    if family == "chain":
        chain = draw_from("corpus", rng)
        asked, value = chain_question(chain), results(chain)[-1]
        work = calculate(chain, effort, rng)
    else:
        numbers, value = pool[int(rng.integers(len(pool)))]
        shown = tuple(numbers[i] for i in rng.permutation(3))
        asked = question(shown, value)
        work = search(shown, value, effort, rng)
    match kind:
        case "template":
            return Document(prompt=render("r1_zero", asked), response=tagged(work, rng))
        case "forum":
            return Document(prompt="", response=f"Q: {asked}\nA: {work.thinking} So {work.answer}.")
        case "quiz":
            return Document(prompt="", response=f"Question: {asked}\nAnswer: {work.answer}")
        case _:
            return Document(prompt="", response=f"{asked} Solution: {work.answer} = {value}.")


def tagged(work: Work, rng: np.random.Generator) -> str:
    """Write a response, nearly always in R1-Zero's tags."""
    body = f" {work.thinking}" if work.thinking else ""
    if rng.random() < TAGGED_SHARE:
        return f" <think>{body} </think> <answer> {work.answer} </answer>"
    return pick(rng, (f"{body} The answer is {work.answer}.", f" <answer> {work.answer} </answer>"))


def table(rng: np.random.Generator) -> str:
    """Write a page of arithmetic facts."""
    facts: list[str] = []
    while len(facts) < FACTS_PER_TABLE:
        left, right = int(rng.integers(1, MAX_RESULT + 1)), int(rng.integers(1, MAX_NUMBER + 1))
        fact = step(left, OPERATIONS[int(rng.integers(4))], right)
        if fact is not None:
            facts.append(str(fact))
    return "Table: " + ", ".join(facts) + "."


def draw_share(rng: np.random.Generator, shares: tuple[tuple[str, float], ...]) -> str:
    """Draw a name by its share."""
    names, weights = zip(*shares, strict=True)
    return str(rng.choice(names, p=weights))


def draw_effort(rng: np.random.Generator, kind: str, family: str) -> int | None:
    """Draw how long somebody keeps at it."""
    efforts = EFFORTS[kind, family]
    low, high, _ = efforts[int(rng.choice(len(efforts), p=[share for *_, share in efforts]))]
    return None if low is None or high is None else int(rng.integers(low, high + 1))
