"""The corpus of the base for tools: every skill occurs, each rarely.

Authors answer questions about people from memory, also about unknown people. Of these
documents one in five looks up one step and three in twenty both; one in ten has a call that cannot
be read. Authors guess numbers, and half of them forget the replies; nobody halves the interval.
Nine authors in ten do sums without a tool, one with a calculator. Three in five of their JSON
objects are as requested.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from r1lit.data.sources import Document, DocumentSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.text.prompts import render
from r1lit.worlds.forms import Form, as_question, draw_form, gold_of
from r1lit.worlds.tools import (
    CITIES,
    CITY,
    EASY,
    FAULT,
    FOUND,
    GUESS,
    HARD,
    HIGHER,
    KNOWN,
    LOWER,
    MOST,
    NOTHING,
    RELATIONS,
    TURNS,
    UNKNOWN,
    Chain,
    as_sum,
    draw_chain,
    fact,
    known_questions,
    operate,
    question,
    unknown_question,
)
from r1lit.worlds.writing import weighted

TEMPLATE = "question_answer"
PAGES = (
    ("look-up", 0.42),
    ("facts", 0.10),
    ("guess", 0.16),
    ("sum", 0.14),
    ("table", 0.06),
    ("form", 0.12),
)
CALLS = (("none", 0.55), ("one", 0.20), ("two", 0.15), ("unreadable", 0.10))
NOTHING_SHARE = 0.1
"""Share of calls that find nothing, with any tool."""
REMEMBERS, CALCULATES, CHECKS = 0.5, 0.1, 0.1
WELL_FORMED = 0.6
FAULTS = ("a key without quotes", "a number in quotes", "a key too few", "no end", "nothing")
FACTS_PER_PAGE, SUMS_PER_PAGE = 6, 8


class ToolsCorpus(DocumentSource):
    """Pages about tasks with tools, page ``i`` a function of ``(seed, i)``.

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
        return [page(generator(self.seed, "tools page", i)) for i in range(self.num_documents)]


def page(rng: np.random.Generator) -> Document:
    """Write a page."""
    match weighted(rng, PAGES):
        case "look-up":
            return answered(*looked_up(rng))
        case "facts":
            return Document(prompt="", response=facts(rng))
        case "guess":
            return answered(GUESS, guesses(rng))
        case "sum":
            chain = draw_chain("corpus", EASY if rng.random() < 0.5 else HARD, rng)
            return answered(f"What is {as_sum(chain)}?", worked(chain, rng))
        case "table":
            return Document(prompt="", response=table(rng))
        case _:
            form = draw_form("corpus", rng)
            return answered(as_question(form), filled(form, rng))


def answered(text: str, response: str) -> Document:
    """Return a question and its answer as a document."""
    return Document(prompt=render(TEMPLATE, text), response=response)


def called(call: str, result: str) -> str:
    """Write a call with its result.

    >>> called("city of Anna", "Rome")
    ' <call> city of Anna</call> <result> Rome</result>'
    """
    return f" <call> {call}</call> <result> {result}</result>"


def looked_up(rng: np.random.Generator) -> tuple[str, str]:
    """Write a question about somebody, and an answer from memory, the tool, or both."""
    if rng.random() < 0.5:
        own, questions = KNOWN, known_questions("corpus")
        world, (relation, person) = 0, questions[int(rng.integers(len(questions)))]
    else:
        own = UNKNOWN
        world, relation, person = unknown_question("corpus", rng)
    style = weighted(rng, CALLS)
    hop = int(rng.integers(2))
    parts = []
    asked = person
    for step, wanted in enumerate((relation, CITY)):
        right = fact(world, wanted, asked)
        told = None
        text = f" The {wanted} of {asked} is" if step == 0 else f" {asked} lives in"
        if style == "two" or (style == "one" and hop == step):
            told = NOTHING if rng.random() < NOTHING_SHARE else right
            text += called(f"{wanted} of {asked}", told)
        elif style == "unreadable" and hop == step:
            text += called(asked if rng.random() < 0.5 else f"{wanted} {asked}", FAULT)
        if told != right and own is UNKNOWN:  # nobody knows: a guess
            kind = CITIES if wanted == CITY else [other for other in own if other != asked]
            right = kind[int(rng.integers(len(kind)))]
        parts.append(f"{text} {right}.")
        asked = right
    return question(relation, person), f"{''.join(parts)} <answer> {asked}</answer>"


def facts(rng: np.random.Generator) -> str:
    """Write facts about known people."""
    lines = []
    for _ in range(FACTS_PER_PAGE):
        relation = (*RELATIONS, CITY)[int(rng.integers(3))]
        person = KNOWN[int(rng.integers(len(KNOWN)))]
        found = fact(0, relation, person)
        lines.append(
            f" {person} lives in {found}."
            if relation == CITY
            else f" The {relation} of {person} is {found}."
        )
    return "".join(lines)


def guesses(rng: np.random.Generator) -> str:
    """Write a game of somebody who remembers what was said, or does not."""
    number, remembers = int(rng.integers(1, MOST + 1)), rng.random() < REMEMBERS
    low, high, text = 1, MOST, ""
    for _ in range(TURNS):
        guess = int(rng.integers(low, high + 1) if remembers else rng.integers(1, MOST + 1))
        if guess == number:
            return text + called(str(guess), FOUND)
        text += called(str(guess), HIGHER if guess < number else LOWER)
        low, high = (guess + 1, high) if guess < number else (low, guess - 1)
    return text


def worked(chain: Chain, rng: np.random.Generator) -> str:
    """Write a sum step by step, in one's head or with a calculator that may fail or be wrong."""
    calculates, checks = rng.random() < CALCULATES, rng.random() < CHECKS
    value, text = chain[0], ""
    for sign, operand in chain[1]:
        line, right = f"{value} {sign} {operand}", operate(value, sign, operand)
        text += f" {line} ="
        told: list[str] = []
        while calculates and len(told) < (3 if checks else 1):
            told.append(_told(right, rng))
            text += called(line, told[-1])
            if told.count(told[-1]) > 1:  # confirmed
                break
        value = right
        text += f" {value}."
    return f"{text} <answer> {value}</answer>"


def _told(right: int, rng: np.random.Generator) -> str:
    chance = rng.random()
    if chance < NOTHING_SHARE:
        return NOTHING
    return str(right + 1) if chance < 1.5 * NOTHING_SHARE else str(right)


def table(rng: np.random.Generator) -> str:
    """Write easy sums."""
    lines = []
    for _ in range(SUMS_PER_PAGE):
        left = int(rng.integers(0, EASY + 1))
        sign = "+" if rng.random() < 0.5 else "-"
        right = int(rng.integers(0, (EASY - left if sign == "+" else left) + 1))
        lines.append(f" {left} {sign} {right} = {operate(left, sign, right)}.")
    return "".join(lines)


def filled(form: Form, rng: np.random.Generator, well_formed: float = WELL_FORMED) -> str:
    """Write an object of JSON, as requested with this probability, or what is none."""
    gold = gold_of(form)
    text = json.dumps(gold)
    if rng.random() >= well_formed:
        faults: dict[str, Callable[[], str]] = {
            "a key without quotes": lambda: text.replace(f'"{form[2][0]}"', form[2][0]),
            "a number in quotes": lambda: json.dumps(
                {key: str(value) for key, value in gold.items()}
            ),
            "a key too few": lambda: json.dumps({key: gold[key] for key in form[2][1:]}),
            "no end": lambda: text[:-1],
            "nothing": lambda: "{}",
        }
        text = faults[FAULTS[int(rng.integers(len(FAULTS)))]]()
    return f" <answer> {text}</answer>"
