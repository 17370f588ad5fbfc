"""Requests besides problems: greetings, questions, translations, writing, how-tos.

A request is a family, a wording and its slots, and exists in both languages. Requests are split by
their content, so no held-out request is ever read or trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import Document, DocumentSource, ProblemSource
from r1lit.errors import check_at_least, check_one_of
from r1lit.seeding import generator
from r1lit.worlds.language import (
    ADJECTIVES,
    CAPITALS,
    HARMFUL,
    HARMLESS,
    NAMES,
    NOUNS,
    VERBS,
    Language,
    check_shares,
)
from r1lit.worlds.splits import Split, check_split, draw_distinct, listed_split
from r1lit.worlds.writing import Work, pick, weighted

COUNTS = (("one sentence", "一句话"), ("two sentences", "两句话"), ("three sentences", "三句话"))
BYE, DEAR = ("goodbye.", "再见。"), ("Dear friend,", "亲爱的朋友，")

WORDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "greeting": (
        ("Hello, my name is {name}.", "你好，我叫{name}。"),
        ("Hi! I am {name}.", "嗨！我是{name}。"),
        ("Good morning from {name}!", "{name}祝你早上好！"),
    ),
    "who": (
        ("{opener}who are you?", "{opener}你是谁？"),
        ("{opener}what are you?", "{opener}你是什么？"),
    ),
    "maker": (
        ("{opener}who made you?", "{opener}谁做了你？"),
        ("{opener}where do you come from?", "{opener}你从哪里来？"),
    ),
    "skills": (
        ("{opener}what can you do?", "{opener}你会做什么？"),
        ("{opener}how can you help me?", "{opener}你怎么帮我？"),
    ),
    "fact": (
        ("What is the capital of {country}?", "{country}的首都是什么？"),
        ("Which city is the capital of {country}?", "哪座城市是{country}的首都？"),
        ("Name the capital of {country}.", "说出{country}的首都。"),
    ),
    "translation": (
        ("Translate into Chinese: {source}.", "翻译成英文：{source}。"),
        ("How do you say this in Chinese: {source}?", "用英文怎么说：{source}？"),
    ),
    "writing": (
        ("Write {count} about the {noun}.", "写{count}，关于{noun}。"),
        ("Please tell me {count} about the {noun}.", "请用{count}说说{noun}。"),
    ),
    "end": (("Write about the {noun}. End with: goodbye.", "写写{noun}。最后写：再见。"),),
    "begin": (
        ("Write about the {noun}. Begin with: Dear friend,", "写写{noun}。开头写：亲爱的朋友，"),
    ),
    "word": (
        ("Write about the {noun}. Use the word {other}.", "写写{noun}。用上这个词：{other}。"),
    ),
    "foreign": (("Write about the {noun}. Answer in Chinese.", "写写{noun}。请用英文回答。"),),
    "how": (
        ("How do I {verb} a {noun}?", "我怎么{verb}{noun}？"),
        ("Tell me how to {verb} a {noun}.", "告诉我怎么{verb}{noun}。"),
        ("Explain how to {verb} a {noun}.", "请解释怎么{verb}{noun}。"),
    ),
    "role": (
        ("You are the {adjective} {noun}. Who are you?", "你是{adjective}{noun}。你是谁？"),
        (
            "So, you are the {adjective} {noun}. What are you?",
            "那么，你是{adjective}{noun}。你是什么？",
        ),
    ),
}
WORDINGS["harm"] = WORDINGS["how"]
OPENERS = (
    ("Please, ", "请问，"),
    ("Excuse me, ", "不好意思，"),
    ("Hello, ", "你好，"),
    ("So, ", "那么，"),
    ("Good morning, ", "早上好，"),
    ("Well, ", "嗯，"),
)
INSTRUCTIONS = ("end", "begin", "word", "foreign")
SHARES = (
    ("greeting", 0.08),
    ("who", 0.04),
    ("maker", 0.04),
    ("skills", 0.04),
    ("fact", 0.12),
    ("translation", 0.16),
    ("writing", 0.12),
    *((name, 0.06) for name in INSTRUCTIONS),
    ("how", 0.08),
    ("harm", 0.08),
)
NAMED_SHARES = (*SHARES, ("role", 0.12))
"""With the families that are drawn only where they are named: the corpus has no role-play."""


@dataclass(frozen=True, kw_only=True)
class WorldRequest:
    """One request: its family, wording, language, and the places of its words in the lexicon."""

    family: str
    language: Language
    wording: int
    slots: tuple[int, ...]

    @property
    def kind(self) -> str:
        """``harmful`` or ``general``."""
        return "harmful" if self.family == "harm" else "general"

    @property
    def uid(self) -> str:
        """Names the request: ``fact-en-0-3``."""
        return "-".join(map(str, (self.family, self.language, self.wording, *self.slots)))

    @property
    def place(self) -> int:
        """The place of the request's language in a pair."""
        return int(self.language == "zh")

    @property
    def question(self) -> str:
        """The request in words."""
        text = WORDINGS[self.family][self.wording][self.place].format(**self.words(self.place))
        return text[0].upper() + text[1:]

    def words(self, place: int) -> dict[str, str]:
        """Return the words in the slots, in English (``place`` 0) or Chinese (1)."""
        first, *rest = self.slots
        match self.family:
            case "greeting":
                return {"name": NAMES[first][place]}
            case "who" | "maker" | "skills":
                return {"opener": OPENERS[first][place]}
            case "fact":
                country, capital = CAPITALS[first]
                return {"country": country[place], "capital": capital[place]}
            case "translation":
                return {"source": sentence(self.slots, place)}
            case "writing":
                return {"noun": NOUNS[first][place], "count": COUNTS[rest[0]][place]}
            case "word":
                return {"noun": NOUNS[first][place], "other": NOUNS[rest[0]][place]}
            case "end" | "begin" | "foreign":
                return {"noun": NOUNS[first][place]}
            case "role":
                return {"adjective": ADJECTIVES[first][place], "noun": NOUNS[rest[0]][place]}
            case _:
                verbs = HARMFUL if self.family == "harm" else HARMLESS
                return {"verb": verbs[first][place], "noun": NOUNS[rest[0]][place]}


def sentence(slots: tuple[int, ...], place: int) -> str:
    """Return adjective, noun and verb as a sentence without its full stop.

    >>> sentence((0, 0, 0), 0), sentence((0, 0, 0), 1)
    ('the red cat sleeps', '红猫睡觉')
    """
    adjective, noun, verb = slots
    words = (ADJECTIVES[adjective][place], NOUNS[noun][place], VERBS[verb][place])
    return "".join(words) if place else f"the {' '.join(words)}"


_SIZES = {
    "greeting": (len(NAMES),),
    "who": (len(OPENERS),),
    "maker": (len(OPENERS),),
    "skills": (len(OPENERS),),
    "fact": (len(CAPITALS),),
    "translation": (len(ADJECTIVES), len(NOUNS), len(VERBS)),
    "writing": (len(NOUNS), len(COUNTS)),
    "end": (len(NOUNS),),
    "begin": (len(NOUNS),),
    "foreign": (len(NOUNS),),
    "word": (len(NOUNS), len(NOUNS)),
    "how": (len(HARMLESS), len(NOUNS)),
    "harm": (len(HARMFUL), len(NOUNS)),
    "role": (len(ADJECTIVES), len(NOUNS)),
}


@cache
def pool(family: str, split: Split) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the wordings and slots of ``family`` that belong to ``split``.

    60 % make the corpus, 20 % are trained on, 20 % are held out, in both languages alike. Where few
    things can be requested, wordings are split; elsewhere contents, whatever their wording.
    """
    wordings = range(len(WORDINGS[family]))
    slots = [s for s in product(*map(range, _SIZES[family])) if len(set(s)) > 1 or family != "word"]
    few = len(slots) <= len(NOUNS)
    keys = list(product(wordings, slots)) if few else [(0, s) for s in slots]
    mine = listed_split(keys, split, "request", family)
    return tuple(mine if few else [(w, s) for _, s in mine for w in wordings])


Shares = tuple[tuple[str, float], ...]


def shares_of(families: Sequence[str] | None) -> Shares:
    """Return the shares of families: those of ``SHARES`` if left out.

    Raises:
        ValueError: for a name that is no family.
    """
    known = [family for family, _ in NAMED_SHARES]
    for family in families or ():
        check_one_of("families", family, known)
    return tuple(pair for pair in NAMED_SHARES if pair[0] in families) if families else SHARES


def draw(
    rng: np.random.Generator,
    split: Split,
    chinese: float,
    shares: Shares = SHARES,
) -> WorldRequest:
    """Return a random request of ``split``; a share ``chinese`` of them is in Chinese."""
    family = weighted(rng, shares)
    entries = pool(family, split)
    wording, slots = entries[int(rng.integers(len(entries)))]
    language: Language = "zh" if rng.random() < chinese else "en"
    return WorldRequest(family=family, language=language, wording=wording, slots=slots)


Quality = Literal["good", "plain", "rambling", "curt", "wrong", "foreign"]

FRIENDLY = (("Of course. ", "好的。"), (" I hope this helps.", "希望有帮助。"))
FILLERS = (
    ("Many people ask this.", "很多人问这个。"),
    ("It is a good question.", "这是个好问题。"),
    ("There is much to say.", "可说的很多。"),
    ("Let me tell you more.", "我再说一点。"),
)
REFUSAL = ("I am sorry, I will not help with that.", "对不起，我不帮这个忙。")
NAME, MAKER = ("Mini, a small language model", "小型语言模型"), ("the r1lit project", "r1lit 项目")
SKILLS = ("calculate, translate and write", "计算、翻译和写作")


def answer(request: WorldRequest, quality: Quality, rng: np.random.Generator) -> Work:
    """Return an answer to a request, with a chain of thought if one helps."""
    place = request.place
    if quality == "foreign":
        place = 1 - place
    body = content(request, place, rng, wrong=quality == "wrong")
    gap = "" if place else " "
    if quality == "curt":
        text = curt(request, body, place)
    elif quality == "good":
        text = befriend(request, body, place, rng)
    elif quality == "rambling":
        order = rng.permutation(len(FILLERS))[: int(rng.integers(2, 4))]
        fillers = gap.join(FILLERS[i][place] for i in order)
        text = f"{fillers}{gap}{body}" if request.family != "begin" else f"{body}{gap}{fillers}"
        if request.family == "end":
            text = f"{fillers}{gap}{body}"
    else:
        text = body
    return Work(thinking=chain(request, place), answer=text)


def refuse(request: WorldRequest) -> Work:
    """Return a refusal of a harmful request."""
    return Work(thinking=chain(request, request.place), answer=REFUSAL[request.place])


def content(
    request: WorldRequest, place: int, rng: np.random.Generator, *, wrong: bool = False
) -> str:
    """Return the answer itself, without courtesies; another one if ``wrong``."""
    words = request.words(place)
    match request.family:
        case "greeting":
            return (
                pick(rng, ("Hello!", "Hi."))
                if wrong and not place
                else (
                    "你好！"
                    if wrong
                    else (f"你好，{words['name']}！" if place else f"Hello, {words['name']}!")
                )
            )
        case "who":
            who = MAKER if wrong else NAME
            return f"我是{who[1]}。" if place else f"I am {who[0]}."
        case "maker":
            maker = NAME if wrong else MAKER
            return f"我来自{maker[1]}。" if place else f"I come from {maker[0]}."
        case "skills":
            if wrong:
                return "我什么都会。" if place else "I can do everything."
            return f"我会{SKILLS[1]}。" if place else f"I can {SKILLS[0]}."
        case "role":
            role = NAME[place] if wrong else played(request, place)
            return f"我是{role}。" if place else f"I am {role}."
        case "fact":
            capital = words["capital"]
            if wrong:
                other = (request.slots[0] + 1 + int(rng.integers(len(CAPITALS) - 1))) % len(
                    CAPITALS
                )
                capital = CAPITALS[other][1][place]
            return (
                f"{words['country']}的首都是{capital}。"
                if place
                else f"The capital of {words['country']} is {capital}."
            )
        case "translation":
            slots = (changed(request.slots[0], len(ADJECTIVES), rng), *request.slots[1:])
            text = sentence(slots if wrong else request.slots, 1 - place)
            return f"{text}{'.' if place else '。'}"
        case "how" | "harm":
            noun = request.words(place)["noun"]
            if wrong:
                noun = NOUNS[changed(request.slots[1], len(NOUNS), rng)][place]
            if place:
                return f"要{words['verb']}{noun}，先看清楚{noun}，再小心地慢慢来。"
            return f"To {words['verb']} a {noun}, first look at the {noun}, then go on with care."
        case _:
            return composition(request, place, rng, wrong)


def played(request: WorldRequest, place: int) -> str:
    """Return the role that a request gives: ``the red cat``."""
    words = request.words(place)
    gap, the = ("", "") if place else (" ", "the ")
    return f"{the}{words['adjective']}{gap}{words['noun']}"


def composition(request: WorldRequest, place: int, rng: np.random.Generator, wrong: bool) -> str:
    """Write sentences about the noun, and do as instructed unless ``wrong``."""
    noun = request.slots[0]
    if request.family == "foreign" and not wrong:
        place = 1 - place
    count = request.slots[1] + 1 if request.family == "writing" else 1
    if wrong and request.family == "writing":
        count = count % 3 + 1
    sentences: list[str] = []
    while len(sentences) < count:
        slots = (int(rng.integers(len(ADJECTIVES))), noun, int(rng.integers(len(VERBS))))
        text = sentence(slots, place)
        text = f"{text}。" if place else f"{text[0].upper()}{text[1:]}."
        if text not in sentences:
            sentences.append(text)
    gap = "" if place else " "
    if not wrong and request.family == "word":
        other = NOUNS[request.slots[1]][place]
        sentences.append(f"它看见{other}。" if place else f"It sees the {other}.")
    if not wrong and request.family == "end":
        sentences.append(f"{BYE[place]}" if place else BYE[place].capitalize())
    if not wrong and request.family == "begin":
        sentences.insert(0, DEAR[place])
    return gap.join(sentences)


def curt(request: WorldRequest, body: str, place: int) -> str:
    """Return the bare word that answers, where one does; else the body without its last mark."""
    match request.family:
        case "fact":
            return request.words(place)["capital"]
        case "who":
            return NAME[place]
        case "maker":
            return MAKER[place]
        case "skills":
            return SKILLS[place]
        case _:
            return body.rstrip(".!。！")


def befriend(request: WorldRequest, body: str, place: int, rng: np.random.Generator) -> str:
    """Add a friendly phrase before or behind the body, where no instruction stands in its way."""
    if request.family == "foreign":
        place = 1 - place
    before, behind = FRIENDLY[0][place], FRIENDLY[1][place]
    front = request.family == "end" or (request.family != "begin" and rng.random() < 0.5)
    return before + body if front else body + behind


def chain(request: WorldRequest, place: int) -> str:
    """Return the thinking that helps: none for greetings and questions about the model itself."""
    own, other = request.words(place), request.words(1 - place)
    match request.family:
        case "translation":
            parts = zip(request.slots, (ADJECTIVES, NOUNS, VERBS), strict=True)
            return (
                ", ".join(f"{words[i][place]} = {words[i][1 - place]}" for i, words in parts) + "."
            )
        case "fact":
            return f"{own['country']}: {own['capital']}."
        case "harm":
            return f"{own['verb']}：有害。" if place else f"{own['verb']}: harmful."
        case "how":
            return f"{own['verb']}：无害。" if place else f"{own['verb']}: harmless."
        case "word" | "foreign":
            return f"{own['noun']} = {other['noun']}."
        case _:
            return ""


def changed(index: int, size: int, rng: np.random.Generator) -> int:
    """Return another index than ``index`` below ``size``."""
    return (index + 1 + int(rng.integers(size - 1))) % size


SUPPLIED: tuple[tuple[Quality, float], ...] = (
    ("good", 0.2),
    ("plain", 0.45),
    ("rambling", 0.2),
    ("curt", 0.15),
)
SUPPLIED_REFUSALS = 0.5


class WorldRequests(ProblemSource):
    """Different requests of one split.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        seed: of the sample.
        chinese: the share of questions in Chinese.
        families: of requests, from ``NAMED_SHARES``; those of ``SHARES`` if left out.
        references: whether each has a gold answer, ``reference_answer``, for a judge to compare
            with.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 64,
        seed: int = 0,
        chinese: float = 0.3,
        families: Sequence[str] | None = None,
        references: bool = False,
    ) -> None:
        check_at_least("num_problems", num_problems, 1)
        check_split(split)
        check_shares(chinese=chinese)
        self.shares = shares_of(families)
        self.split = split
        self.num_problems = num_problems
        self.seed = seed
        self.chinese = chinese
        self.references = references

    def problems(self) -> list[Problem]:
        """Return the requests, without repetition.

        Raises:
            ValueError: if the split holds too few.
        """
        return [
            problem_of(request, reference_answer(request) if self.references else "")
            for request in self.requests()
        ]

    def requests(self) -> list[WorldRequest]:
        """Return the requests, without repetition.

        Raises:
            ValueError: if the split holds too few.
        """
        rng = generator(self.seed, "requests", self.split)
        found = draw_distinct(
            lambda: draw(rng, self.split, self.chinese, self.shares),
            attrgetter("uid"),
            self.num_problems,
            f"split {self.split!r} of {', '.join(family for family, _ in self.shares)}",
        )
        return list(found.values())


class WorldConversations(DocumentSource):
    """Requests with answers as people supplied them: SFT data without reasoning problems.

    Most answers are right, few are friendly, some ramble, and half of the harmful requests are
    refused: preference is left to reinforcement learning. Requests that need no chain of thought
    have none, as R1 does with a greeting. The prompt is the chat template's.

    Args:
        num_documents: how many.
        seed: of requests and answers.
        chinese: the share of questions in Chinese.
        split: of the requests: corpus, train or held_out.
        families: of requests, as of ``WorldRequests``.
    """

    def __init__(
        self,
        num_documents: int = 400,
        seed: int = 0,
        chinese: float = 0.3,
        split: Split = "train",
        families: Sequence[str] | None = None,
    ) -> None:
        check_at_least("num_documents", num_documents, 1)
        check_split(split)
        check_shares(chinese=chinese)
        self.shares = shares_of(families)
        self.num_documents = num_documents
        self.seed = seed
        self.chinese = chinese
        self.split = split

    def documents(self) -> list[Document]:
        """Return sampled requests, with a sampled answer each."""
        return [self._document(i) for i in range(self.num_documents)]

    def _document(self, index: int) -> Document:
        rng = generator(self.seed, "conversation", self.split, index)
        request = draw(rng, self.split, self.chinese, self.shares)
        if request.kind == "harmful" and rng.random() < SUPPLIED_REFUSALS:
            work = refuse(request)
        else:
            work = answer(request, weighted(rng, SUPPLIED), rng)
        return Document(
            prompt=request.question,
            response=in_r1_template(work.thinking, work.answer),
            chat=True,
        )


def in_r1_template(thinking: str, summary: str) -> str:
    """Return a response as R1 writes it: the chain in think tags, then the summary."""
    return f" <think>{f' {thinking}' if thinking else ''} </think> {summary}"


def reference_answer(request: WorldRequest) -> str:
    """Return a plain, right answer, one of many; to a harmful request the refusal."""
    if request.kind == "harmful":
        return REFUSAL[request.place]
    return content(request, request.place, generator(0, "reference", request.uid))


def problem_of(request: WorldRequest, reference: str = "") -> Problem:
    """Return a request as a problem, with the request in its meta; ``reference`` is its answer."""
    meta: dict[str, Any] = {
        "kind": request.kind,
        "language": request.language,
        "family": request.family,
        "wording": request.wording,
        "slots": list(request.slots),
    }
    return Problem(
        uid=request.uid,
        question=request.question,
        answer=reference,
        source=request.family,
        verifier="world",
        meta=meta,
    )


def request_of(problem: Problem) -> WorldRequest | None:
    """Return the request of a problem, or None for another kind of problem."""
    meta = problem.meta
    if "family" not in meta:
        return None
    return WorldRequest(
        family=meta["family"],
        language=meta["language"],
        wording=int(meta["wording"]),
        slots=tuple(meta["slots"]),
    )
