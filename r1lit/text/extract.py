r"""Extraction of the thinking and the answer from a response.

Thinking has no answer: an ``<answer>`` or ``\boxed{}`` counts only outside
``<think>…</think>``, and thinking that never closes extends to the end of the response. A
``</think>`` that was never opened closes thinking that the prompt opened, so everything before it
is thinking. A response without think tags is all answer part.

Tags are case-sensitive. Every function here takes time linear in the response.
"""

from __future__ import annotations

import re

from r1lit.text.notation import INVISIBLE

MAX_NESTED = 5
_THINK = re.compile(r"</?think>")
_ANSWER = re.compile(r"</?answer>")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(  # TeX's box of what follows, without braces
    r"\\(?:boxed|fbox)(?:(?=\d)|\s+(?=[-+−]?[\d.]|\\[a-z]|[A-J](?![A-Za-z])))((?:(?!</answer>)[^$\n])*)"
)
_TAKES_BACK = re.compile(
    r"(?:</answer>|[\s$.*)\]}\\,;:!—–-]){0,20}(?:(?:but|oh|actually|sorry)\b[\s,]*){0,2}"
    r"(?:(?:wait|nope|hmm+|scratch\s+that|never\s*mind|correction|just\s+kidding"
    r"|no(?=\s*[,.!;:—–-]|\s*$|\s+wait)|not\s+(?:really|sure|correct|right|true)"
    r"|I\s*(?:am|['’]m|was)\s+(?:wrong|mistaken|not\s+sure|unsure|guessing)|I\s+made\s+a\s+mistake"
    r"|(?:that|this|it)(?:\s+(?:answer|result|value))?\s*(?:is|was|['’]s|seems|looks)\s*"
    r"(?:n['’]t|not|wrong|incorrect|false|a\s+guess|impossible)"
    r"|(?:is|was)\s+(?:n['’]t|not|wrong|incorrect|false|impossible))(?![\w'’])|不对|不是|等等)",
    re.IGNORECASE,
)
"""Words right behind an answer that take it back."""


def thinking_and_answer(response: str) -> tuple[str, str]:
    """Return the thinking and the answer part of a response, without think tags.

    >>> thinking_and_answer("<think> 3 + 4 </think> <answer> 7 </answer>")
    (' 3 + 4 ', ' <answer> 7 </answer>')
    >>> thinking_and_answer("3 + 4 </think> 7")
    ('3 + 4 ', ' 7')
    >>> thinking_and_answer("<think> 3 + 4 <answer> 7 </answer>")
    (' 3 + 4 <answer> 7 </answer>', '')
    """
    thinking: list[str] = []
    answer: list[str] = []
    inside = found_border = False
    start = 0
    for tag in _THINK.finditer(response):
        closes = tag.group() == "</think>"
        if closes and not found_border:
            inside = True  # if no tag opened it, the prompt did
        if closes != inside:
            continue  # thinking within thinking, or closed twice: no border
        (thinking if inside else answer).append(response[start : tag.start()])
        inside = not closes
        found_border = True
        start = tag.end()
    (thinking if inside else answer).append(response[start:])
    return "".join(thinking), "".join(answer)


def extract_answer(response: str) -> str | None:
    """Return the text of the last ``<answer>…</answer>`` outside thinking, or ``None``.

    Whitespace around it and zero-width characters anywhere in it are dropped: what a reader cannot
    see does not count. Of nested tags the innermost pair is taken.

    >>> extract_answer("<think> x </think> <answer> 1 </answer> or <answer> 2 </answer>")
    '2'
    """
    _, text = thinking_and_answer(response)
    span = _answer_span(text)
    return None if span is None else _visible(text, span)


def extract_final(response: str) -> str | None:
    r"""Return the last ``<answer>…</answer>`` or ``\boxed{…}`` outside thinking, or ``None``.

    The one that ends later counts. A box inside the answer tags is taken out of them. A box without
    braces, ``\boxed 5``, holds what follows to the end of its line or formula. An answer that the
    words right behind it take back is none.

    >>> extract_final(r"<answer> 1 </answer>, no: \boxed{2}")
    '2'
    >>> extract_final(r"\boxed{1} <answer> so it is \boxed{2} </answer>")
    '2'
    >>> extract_final("<answer> 2 </answer> Wait, no.") is None
    True
    """
    _, text = thinking_and_answer(response)
    answer, box = _answer_span(text), _box_span(text)
    last = max(filter(None, (answer, box)), key=lambda span: span[1], default=None)
    if last is None or taken_back(text, last[1]):
        return None
    found = _visible(text, last)
    for _ in range(MAX_NESTED):
        inner = _box_span(found)
        if inner is None:
            break
        found = found[slice(*inner)].strip()
    return found


def taken_back(text: str, end: int) -> bool:
    """Return whether the words of a text behind ``end`` take back what stands before it.

    >>> taken_back("Paris. Wait, no.", 5), taken_back("Paris. No other city fits.", 5)
    (True, False)
    """
    return bool(_TAKES_BACK.match(text, end))


def final_or_answer_part(response: str) -> str:
    """Return the final answer, or without one all that follows the thinking."""
    answer = extract_final(response)
    return thinking_and_answer(response)[1] if answer is None else answer


def _visible(text: str, span: tuple[int, int]) -> str:
    return text[slice(*span)].translate(INVISIBLE).strip()


def _answer_span(text: str) -> tuple[int, int] | None:
    answer, start = None, None
    for tag in _ANSWER.finditer(text):
        if tag.group() == "<answer>":
            start = tag.end()
        elif start is not None:
            answer = (start, tag.start())
            start = None
    return answer


def _box_span(text: str) -> tuple[int, int] | None:
    box = None
    open_braces: list[int | None] = []
    for token in _BOX.finditer(text):
        if token.group().startswith(("\\boxed", "\\fbox")):
            open_braces.append(token.end())
        elif token.group() == "{":
            open_braces.append(None)
        elif token.group() == "}" and open_braces:
            start = open_braces.pop()
            if start is not None:
                box = (start, token.start())
    bare = next(reversed(list(_BARE_BOX.finditer(text))), None)
    if bare is not None and (box is None or box[1] < bare.start()):
        box = bare.span(1)
    return box
