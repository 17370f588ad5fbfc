"""Requests besides problems: greetings, questions, translations, writing, how-tos.

A request is a family, a wording and its slots, and exists in both languages. Requests are split by
their content, so no held-out request is ever read or trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from r1lit.worlds.lexicon import (
    ADJECTIVES,
    CAPITALS,
    HARMFUL,
    HARMLESS,
    NAMES,
    NOUNS,
    VERBS,
)
from r1lit.worlds.splits import Split, listed_split
from r1lit.worlds.voice import Language
from r1lit.worlds.writing import weighted

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


@dataclass(frozen=True, kw_only=True)
class Request:
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


def draw(
    rng: np.random.Generator,
    split: Split,
    chinese: float,
    shares: tuple[tuple[str, float], ...] = SHARES,
) -> Request:
    """Return a random request of ``split``; a share ``chinese`` of them is in Chinese."""
    family = weighted(rng, shares)
    entries = pool(family, split)
    wording, slots = entries[int(rng.integers(len(entries)))]
    language: Language = "zh" if rng.random() < chinese else "en"
    return Request(family=family, language=language, wording=wording, slots=slots)
