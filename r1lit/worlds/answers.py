"""How people answer requests: well, plainly, at length, curtly, wrongly, or in the other language.

A good answer is right, friendly and no longer than it need be. That is the true preference, which
``r1lit.worlds.preference`` measures; here answers of every quality are written.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from r1lit.worlds.lexicon import ADJECTIVES, CAPITALS, NOUNS, VERBS
from r1lit.worlds.requests import BYE, DEAR, Request, sentence
from r1lit.worlds.writing import Work, pick

Quality = Literal["good", "plain", "rambling", "curt", "wrong", "foreign"]
Shares = tuple[tuple[Quality, float], ...]

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


def answer(request: Request, quality: Quality, rng: np.random.Generator) -> Work:
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


def refuse(request: Request) -> Work:
    """Return a refusal of a harmful request."""
    return Work(thinking=chain(request, request.place), answer=REFUSAL[request.place])


def content(request: Request, place: int, rng: np.random.Generator, *, wrong: bool = False) -> str:
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


def composition(request: Request, place: int, rng: np.random.Generator, wrong: bool) -> str:
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


def curt(request: Request, body: str, place: int) -> str:
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


def befriend(request: Request, body: str, place: int, rng: np.random.Generator) -> str:
    """Add a friendly phrase before or behind the body, where no instruction stands in its way."""
    if request.family == "foreign":
        place = 1 - place
    before, behind = FRIENDLY[0][place], FRIENDLY[1][place]
    front = request.family == "end" or (request.family != "begin" and rng.random() < 0.5)
    return before + body if front else body + behind


def chain(request: Request, place: int) -> str:
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
