"""The pretraining corpus of the small world.

It has documents about two families of problems (four, if shares are set), and texts about other
subjects, in two languages. Most authors in R1-Zero's template write little, give up early and mix
their languages. Authors who search for long are a minority there and a majority on the forum. So
the base model can search, and rarely does. No document shows a held-out or an RL problem or
request.
"""

from __future__ import annotations

import numpy as np

from r1lit.data.sources import Document, DocumentSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.text.prompts import render
from r1lit.worlds import russian
from r1lit.worlds.chain import draw_from, results
from r1lit.worlds.chain import question as chain_question
from r1lit.worlds.countdown import (
    MAX_NUMBER,
    MAX_RESULT,
    OPERATIONS,
    number_sets,
    question,
    step,
    targets,
)
from r1lit.worlds.language import Language, Voice, check_shares, vocabulary
from r1lit.worlds.programs import draw_from as draw_program
from r1lit.worlds.puzzles import draw_from as draw_puzzle
from r1lit.worlds.puzzles import draw_names
from r1lit.worlds.puzzles import question as puzzle_question
from r1lit.worlds.reasoning import develop, solve
from r1lit.worlds.requests import Quality, answer, draw, refuse
from r1lit.worlds.writing import Work, calculate, pick, search, weighted

PAGES = (
    ("template", 0.4),
    ("forum", 0.34),
    ("quiz", 0.03),
    ("textbook", 0.03),
    ("table", 0.1),
    ("talk", 0.08),
    ("dictionary", 0.02),
)
REASONING_PAGES = (("template", 0.5), ("forum", 0.45), ("quiz", 0.05))
"""Kinds of pages about programs or puzzles, with their shares."""
CHAIN_SHARE = 0.25
CHINESE_SHARE = 0.3
REQUEST_SHARE = 0.06
TAGGED_SHARE = 0.97
THREAD_SHARE = 0.4
ASKED_SHARE = 0.25
FACTS_PER_TABLE = 24
TALKS_PER_PAGE = 5
WORDS_PER_PAGE = 16

Pool = list[tuple[tuple[int, ...], int]]
"""Countdown problems: numbers and target."""

# (smallest effort, largest effort), share: 0 answers without thinking, None never gives up
EFFORTS: dict[tuple[str, str], tuple[tuple[tuple[int, int] | None, float], ...]] = {
    ("template", "countdown"): (((0, 0), 0.22), ((1, 3), 0.44), ((4, 10), 0.12), (None, 0.22)),
    ("template", "chain"): (((0, 0), 0.3), ((1, 3), 0.4), (None, 0.3)),
    ("template", "programs"): (((0, 0), 0.3), ((1, 3), 0.4), (None, 0.3)),
    ("template", "puzzles"): (((0, 0), 0.22), ((1, 3), 0.44), ((4, 10), 0.12), (None, 0.22)),
    ("forum", "countdown"): (((1, 3), 0.1), ((4, 10), 0.1), (None, 0.8)),
    ("forum", "chain"): (((1, 3), 0.2), (None, 0.8)),
    ("forum", "programs"): (((1, 3), 0.2), (None, 0.8)),
    ("forum", "puzzles"): (((1, 3), 0.1), ((4, 10), 0.1), (None, 0.8)),
}
# how often the other language slips in, share of the authors
MIXES = {
    "template": ((0.0, 0.4), (0.2, 0.3), (0.5, 0.3)),
    "forum": ((0.0, 0.8), (0.2, 0.2)),
}
UNMIXED = ((0.0, 1.0),)
QUALITIES: tuple[tuple[Quality, float], ...] = (
    ("good", 0.12),
    ("plain", 0.36),
    ("rambling", 0.18),
    ("curt", 0.14),
    ("wrong", 0.1),
    ("foreign", 0.1),
)
REFUSED_SHARE = 0.15
PLEASE = (" Reflect and verify.", " 请反思并验证。")
"""A request on the forum, after which answers are longer and more careful."""


class WorldCorpus(DocumentSource):
    """Pages of the small world, page ``i`` a function of ``(seed, i)``.

    Args:
        num_documents: how many.
        seed: of every page.
        russian: the share of pages that are about a problem in Russian, in place of what stands
            there otherwise; the shipped base has read none.
        programs: the share of pages about small programs, likewise; the shipped base has read none.
        puzzles: and of those about puzzles.
        patient: the share of authors, in the template and on the forum alike, who never give up,
            where the question does not request reflection; as in ``EFFORTS`` if left out.
    """

    def __init__(
        self,
        num_documents: int = 100_000,
        seed: int = 0,
        russian: float = 0.0,
        programs: float = 0.0,
        puzzles: float = 0.0,
        patient: float | None = None,
    ) -> None:
        check_at_least("num_documents", num_documents, 1)
        check_shares(russian=russian, programs=programs, puzzles=puzzles)
        check_shares(patient=patient or 0.0)
        self.russian = russian
        self.programs = programs
        self.puzzles = puzzles
        self.patient = patient
        self.num_documents = num_documents
        self.seed = seed

    def documents(self) -> list[Document]:
        """Write the pages."""
        pool = [(n, t) for n in number_sets("corpus") for t in targets(n)]
        return [self._page(i, pool) for i in range(self.num_documents)]

    def _page(self, i: int, pool: Pool) -> Document:
        rng = generator(self.seed, "page", i)
        if self.russian and generator(self.seed, "russian", i).random() < self.russian:
            return problem_page(weighted(rng, PAGES[:2]), rng, pool, "ru", patient=self.patient)
        if self.programs or self.puzzles:
            place = generator(self.seed, "reasoning", i).random()
            if place < self.programs + self.puzzles:
                family = "programs" if place < self.programs else "puzzles"
                kind = weighted(rng, REASONING_PAGES)
                return posts(kind, rng, pool, family=family, patient=self.patient)
        return page(rng, pool, self.patient)


def page(rng: np.random.Generator, pool: Pool, patient: float | None = None) -> Document:
    """Write one page about Countdown problems of ``pool``, chains or requests of the corpus."""
    kind = weighted(rng, PAGES)
    match kind:
        case "table":
            return Document(prompt="", response=table(rng))
        case "dictionary":
            return Document(prompt="", response=dictionary(rng))
        case "talk":
            lines = [talk(rng) for _ in range(int(rng.integers(2, TALKS_PER_PAGE + 1)))]
            return Document(prompt="", response="\n".join(lines))
        case "template" if rng.random() < REQUEST_SHARE:
            question_text, work = ask(rng)
            return Document(prompt=render("small_world", question_text), response=tagged(work, rng))
        case _:
            return posts(kind, rng, pool, patient=patient)


def posts(
    kind: str,
    rng: np.random.Generator,
    pool: Pool,
    *,
    family: str | None = None,
    patient: float | None = None,
) -> Document:
    """Write a page of ``kind`` about one problem, or a forum's about two."""
    num = 2 if kind == "forum" and rng.random() < THREAD_SHARE else 1
    pages = [problem_page(kind, rng, pool, family=family, patient=patient) for _ in range(num)]
    if num == 1:
        return pages[0]
    # A second search far from the page's beginning, behind another problem's numbers
    return Document(prompt="", response="\n".join(page.response for page in pages))


def problem_page(
    kind: str,
    rng: np.random.Generator,
    pool: Pool,
    language: Language | None = None,
    *,
    family: str | None = None,
    patient: float | None = None,
) -> Document:
    """Write a page of ``kind`` about one problem.

    It is in English or Chinese, and about a chain or Countdown, if that is left out.
    """
    family = family or ("chain" if rng.random() < CHAIN_SHARE else "countdown")
    drawn: Language = "zh" if rng.random() < CHINESE_SHARE else "en"
    language = language or drawn
    begged = kind == "forum" and rng.random() < ASKED_SHARE and patient is None
    hurried = not begged and kind not in ("quiz", "textbook")
    effort = draw_effort(rng, kind, family, patient) if hurried else None
    voice = Voice(
        language=language,
        mix=0.0 if begged else weighted(rng, MIXES.get(kind, UNMIXED)),
        careful=begged,
    )
    value = 0
    match family:
        case "chain":
            chain = draw_from("corpus", rng)
            question_text, value = chain_question(chain, language), results(chain)[-1]
            work = calculate(chain, effort, rng, voice)
        case "programs":
            program = draw_program("corpus", rng)
            question_text = program.question(language)
            work = develop(program, effort, rng, voice)
        case "puzzles":
            puzzle = draw_puzzle("corpus", rng)
            names = draw_names(rng, puzzle, language)
            question_text = puzzle_question(puzzle, names, language)
            work = solve(puzzle, names, effort, rng, voice)
        case _:
            numbers, value = pool[int(rng.integers(len(pool)))]
            shown = tuple(numbers[i] for i in rng.permutation(3))
            question_text = question(shown, value, language)
            work = search(shown, value, effort, rng, voice)
    match kind:
        case "template":
            return Document(prompt=render("small_world", question_text), response=tagged(work, rng))
        case "forum":
            please = russian.PLEASE if language == "ru" else PLEASE[language == "zh"]
            question_text += please if begged else ""
            return Document(prompt="", response=f"Q: {question_text}\nA: {posted(work)}")
        case "quiz":
            return Document(prompt="", response=f"Question: {question_text}\nAnswer: {work.answer}")
        case _:
            return Document(
                prompt="", response=f"{question_text} Solution: {work.answer} = {value}."
            )


def posted(work: Work) -> str:
    """Write an answer on the forum."""
    return f"{work.thinking} So <answer> {work.answer} </answer>"


def tagged(work: Work, rng: np.random.Generator) -> str:
    """Write a response, nearly always in R1-Zero's tags."""
    body = f" {work.thinking}" if work.thinking else ""
    if rng.random() < TAGGED_SHARE:
        return f" <think>{body} </think> <answer> {work.answer} </answer>"
    return pick(rng, (f"{body} The answer is {work.answer}.", f" <answer> {work.answer} </answer>"))


def ask(rng: np.random.Generator) -> tuple[str, Work]:
    """Sample a request and a web author's answer to it."""
    request = draw(rng, "corpus", CHINESE_SHARE)
    if request.kind == "harmful" and rng.random() < REFUSED_SHARE:
        return request.question, refuse(request)
    return request.question, answer(request, weighted(rng, QUALITIES), rng)


def talk(rng: np.random.Generator) -> str:
    """Write one exchange of a conversation."""
    question_text, work = ask(rng)
    return f"User: {question_text} Assistant: {work.answer}"


def dictionary(rng: np.random.Generator) -> str:
    """Write a page of words in both languages."""
    words = vocabulary()
    pairs = [words[int(i)] for i in rng.permutation(len(words))[:WORDS_PER_PAGE]]
    place = int(rng.random() < 0.5)
    return "Dictionary: " + ", ".join(f"{w[place]} = {w[1 - place]}" for w in pairs) + "."


def table(rng: np.random.Generator) -> str:
    """Write a page of arithmetic facts."""
    facts: list[str] = []
    while len(facts) < FACTS_PER_TABLE:
        left, right = int(rng.integers(1, MAX_RESULT + 1)), int(rng.integers(1, MAX_NUMBER + 1))
        fact = step(left, OPERATIONS[int(rng.integers(4))], right)
        if fact is not None:
            facts.append(str(fact))
    return "Table: " + ", ".join(facts) + "."


def draw_effort(
    rng: np.random.Generator, kind: str, family: str, patient: float | None = None
) -> int | None:
    """Return how many attempts the author makes; ``patient`` is the share who never give up."""
    efforts = EFFORTS[kind, family]
    if patient is not None:
        hurried = sum(share for span, share in efforts if span)
        efforts = tuple(
            (span, share / hurried * (1 - patient) if span else patient) for span, share in efforts
        )
    span = weighted(rng, efforts)
    return None if span is None else int(rng.integers(span[0], span[1] + 1))
