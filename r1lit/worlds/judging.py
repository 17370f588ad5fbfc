"""Replies of simulated judges and refiners that train a larger model; a refiner by rule.

Three tasks, each in r1lit's own prompt: is an answer right (``GenerativeVerifier``), which of
two answers is better (``GenerativePreference``), and rewrite a chain so that it reads well
(``EngineRefiner``). Replies have errors: labels are those of the noisy annotators of
``r1lit.worlds.grading``, and a few texts are rewritten carelessly. Only the train
split is read.

R1's cold-start chains were rewritten by a model and by people. Here a table translates every phrase
of the other language, so a rule rewrites them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from r1lit.batches import Problem
from r1lit.curation.refine import INSTRUCTION, refining_text
from r1lit.data.sources import Document, DocumentSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.text.extract import extract_answer, thinking_and_answer
from r1lit.verifiers.countdown import CountdownVerifier
from r1lit.verifiers.generative import comparison_prompt, judge_prompt
from r1lit.worlds.chain import draw_from, results
from r1lit.worlds.chain import question as chain_question
from r1lit.worlds.countdown import first_solution, number_sets, question, targets
from r1lit.worlds.grading import (
    MISLABELLED,
    compare,
    is_friendly,
    is_right,
    is_safe,
    is_tidy,
    summary_of,
)
from r1lit.worlds.language import PHRASES, Language, Voice, check_shares
from r1lit.worlds.requests import (
    Quality,
    WorldRequest,
    answer,
    befriend,
    draw,
    in_r1_template,
    problem_of,
    reference_answer,
    refuse,
    request_of,
)
from r1lit.worlds.writing import Work, calculate, pick, search, weighted

SUMMARIES = {
    "en": "The answer is <answer> {answer} </answer>.",
    "zh": "得到 <answer> {answer} </answer>。",
}
_POSTED = re.compile(r"\s*So <answer>")


def to_r1_template(problem: Problem, response: str) -> str | None:
    """Return a response in R1's template and in the problem's language; None without an answer.

    It takes R1-Zero's ``<think> … </think> <answer> … </answer>`` and the forum's
    ``… So <answer> … </answer>``. The summary of a request is its answer as it stands.

    Raises:
        ValueError: if the problem's language is neither English nor Chinese.
    """
    if extract_answer(response) is None:
        return None
    if "</think>" in response:
        thinking, _ = thinking_and_answer(response)
    else:
        thinking = _POSTED.split(response)[0]
    language = problem.meta["language"]
    if language not in SUMMARIES:
        raise ValueError(f"language: {language!r} cannot be refined, only en and zh")
    summary = summary_of(response)
    if request_of(problem) is None:
        thinking = translate(thinking, language)
        summary = SUMMARIES[language].format(answer=summary)
    return in_r1_template(thinking.strip(), summary)


def translate(text: str, language: str) -> str:
    """Return ``text`` with its phrases in the other language translated into ``language``.

    >>> translate("等等， 12 + 4 = 16 < 54. Try 9 * 5 = 45", "en")
    'Wait, 12 + 4 = 16 < 54. Try 9 * 5 = 45'
    """
    own = int(language == "zh")
    for phrases in sorted(PHRASES.values(), key=lambda pair: -len(pair[1 - own])):
        mine, other = phrases[own], phrases[1 - own]
        if "{target}" in other:
            before, after = (re.escape(part) for part in other.split("{target}"))
            text = re.sub(f"{before}(\\d+){after}", mine.replace("{target}", r"\1"), text)
        else:
            text = text.replace(other, mine)
    return text


TASKS = (("judge", 0.45), ("preference", 0.4), ("refine", 0.15))
VERDICTS = {True: "They agree.\nVERDICT: CORRECT", False: "They differ.\nVERDICT: INCORRECT"}
LABELS_FROM = ((1.5, "A>>B"), (0.5, "A>B"), (-0.5, "A=B"), (-1.5, "B>A"))
"""From how many points of difference on a label is given; below the last it is ``B>>A``."""
TRAITS = (("right", "wrong"), ("tidy", "untidy"), ("friendly", "cool"))
QUALITIES: tuple[tuple[Quality, float], ...] = (
    ("good", 0.26),
    ("plain", 0.26),
    ("rambling", 0.1),
    ("curt", 0.1),
    ("wrong", 0.2),
    ("foreign", 0.08),
)
REFUSED = 0.5
BEFRIENDED, SPOILED = 0.3, 0.15
REASONING = 0.4
FENCES = ((8, 0.35), (1, 0.65))
"""Bytes of a fence: r1lit's prompts have 8; most here are short, as digits teach nothing."""
ATTEMPTS = (20, 40)
MIXES = ((0.1, 0.3), (0.3, 0.3), (0.6, 0.2), (1.0, 0.2))


class WorldOpinions(DocumentSource):
    """Judge's, preference and refiner's prompts, each with the reply of somebody who may err.

    A judge is wrong in 3 of 100 answers; before the verdict it quotes reference and answer, and
    says whether they agree. Who compares two answers quotes each and names its traits
    (right, tidy, friendly: each wrongly in 3 of 100), and then gives a label, of the points of
    ``preference.compare`` with its noise and its liking for what is shown first. A refined chain is
    in one language, but in 3 of 100. Two thirds of the fences are shorter than those of r1lit's
    prompts.

    Args:
        num_documents: how many.
        seed: of every document; document ``i`` is a function of ``(seed, i)``.
        chinese: the share of questions in Chinese.
    """

    def __init__(self, num_documents: int = 8000, seed: int = 0, chinese: float = 0.3) -> None:
        check_at_least("num_documents", num_documents, 1)
        check_shares(chinese=chinese)
        self.num_documents = num_documents
        self.seed = seed
        self.chinese = chinese

    def documents(self) -> list[Document]:
        """Return the documents; their prompts are the chat template's."""
        write: dict[str, Callable[[np.random.Generator], Document]] = {
            "judge": self._judgement,
            "preference": self._comparison,
            "refine": self._refinement,
        }
        made = []
        for index in range(self.num_documents):
            rng = generator(self.seed, "opinion", index)
            made.append(write[weighted(rng, TASKS)](rng))
        return made

    def _judgement(self, rng: np.random.Generator) -> Document:
        if rng.random() < REASONING:
            problem, text, is_correct = self._solved(rng)
        else:
            request = draw(rng, "train", self.chinese)
            problem, text = problem_of(request, reference_answer(request)), answered(request, rng)
            is_correct = (is_safe if request.kind == "harmful" else is_right)(request, text)
        said = is_correct != (rng.random() < MISLABELLED)
        return _document(
            judge_prompt(problem, text, fence(rng)),
            f"{quoted(problem.answer)} and {quoted(text)}. {VERDICTS[said]}",
        )

    def _solved(self, rng: np.random.Generator) -> tuple[Problem, str, bool]:
        """Return a problem, an answer to it, right or not, and whether it is."""
        problem, work = self._worked(rng, None if rng.random() < 0.5 else 0)
        if problem.source == "chain":
            text = work.answer
            if rng.random() < 0.3:
                text = str(max(1, int(problem.answer) + int(rng.integers(-3, 4))))
            return problem, text, text == problem.answer
        verdict = CountdownVerifier().verify(f"<answer> {work.answer} </answer>", problem)
        return problem, work.answer, verdict.status == "right"

    def _worked(
        self, rng: np.random.Generator, effort: int | None, mix: float = 0.0
    ) -> tuple[Problem, Work]:
        """Return a reasoning problem and somebody's work on it."""
        language: Language = "zh" if rng.random() < self.chinese else "en"
        voice = Voice(language=language, mix=mix)
        meta: dict[str, Any] = {"kind": "reasoning", "language": language}
        if rng.random() < 0.5:
            chain = draw_from("train", rng)
            asked, source = chain_question(chain, language), "chain"
            value = str(results(chain)[-1])
            work = calculate(chain, effort, rng, voice)
        else:
            pool = _countdowns()
            numbers, target = pool[int(rng.integers(len(pool)))]
            shown = tuple(numbers[i] for i in rng.permutation(3))
            asked, source = question(shown, target, language), "countdown"
            value = first_solution(numbers, target)
            work = search(shown, target, effort, rng, voice)
            meta |= {"numbers": list(shown), "target": target}
        problem = Problem(
            uid=source, question=asked, answer=value, source=source, verifier=source, meta=meta
        )
        return problem, work

    def _comparison(self, rng: np.random.Generator) -> Document:
        request = draw(rng, "train", self.chinese)
        first, second = answered(request, rng), answered(request, rng)
        points = compare(request.question, first, second, int(rng.integers(1 << 30)))
        seen = " ".join(
            f"{name}: {quoted(text)} is {', '.join(traits_seen(request, text, rng))}."
            for name, text in (("A", first), ("B", second))
        )
        prompt = comparison_prompt(request.question, first, second, fence(rng))
        return _document(prompt, f"{seen}\nLABEL: {label_of(points)}")

    def _refinement(self, rng: np.random.Generator) -> Document:
        problem, work = self._worked(rng, None, weighted(rng, MIXES))
        language = problem.meta["language"]
        response = f"<think> {work.thinking} </think> <answer> {work.answer} </answer>"
        careless = rng.random() < MISLABELLED
        thinking = work.thinking if careless else translate(work.thinking, language)
        summary = SUMMARIES[language].format(answer=work.answer)
        reply = f"<reasoning> {thinking.strip()} </reasoning>\n<summary> {summary} </summary>"
        return _document(refining_text(INSTRUCTION, problem, response), reply)


def answered(request: WorldRequest, rng: np.random.Generator) -> str:
    """Return somebody's answer to a request: of any quality, now and then cut or said twice."""
    if rng.random() < (REFUSED if request.kind == "harmful" else 0.03):
        return refuse(request).answer
    quality = weighted(rng, QUALITIES)
    text = answer(request, quality, rng).answer
    if quality != "good" and rng.random() < BEFRIENDED:
        text = befriend(request, text, request.place, rng)
    if rng.random() < SPOILED:
        other = answer(request, weighted(rng, QUALITIES), rng).answer
        text = pick(rng, (text[: 1 + len(text) * 2 // 3], f"{text} {text}", f"{text} {other}"))
    return text


def traits_seen(request: WorldRequest, text: str, rng: np.random.Generator) -> list[str]:
    """Return the traits of an answer as an annotator labels them, each wrongly in 3 of 100."""
    true = (is_right(request, text), is_tidy(request, text), is_friendly(request, text))
    return [
        names[int(is_so == (rng.random() < MISLABELLED))]
        for names, is_so in zip(TRAITS, true, strict=True)
    ]


def quoted(text: str) -> str:
    """Return a text as replies quote it: whoever copies it has it before them when they decide."""
    return f'" {" ".join(text.split())} "'


def label_of(points: float) -> str:
    """Return the label of a difference in points of ten.

    >>> [label_of(points) for points in (9.0, 1.0, 0.0, -1.0, -2.0)]
    ['A>>B', 'A>B', 'A=B', 'B>A', 'B>>A']
    """
    return next((label for least, label in LABELS_FROM if points >= least), "B>>A")


def fence(rng: np.random.Generator) -> str:
    """Return a code of hexadecimal digits: 16, as judges' prompts have, or 2."""
    return rng.bytes(weighted(rng, FENCES)).hex()


@cache
def _countdowns() -> list[tuple[tuple[int, ...], int]]:
    return [(n, t) for n in number_sets("train") for t in targets(n, *ATTEMPTS)]


def _document(prompt: str, reply: str) -> Document:
    return Document(prompt=prompt, response=f" {reply}", chat=True)
