"""The small world's refiner: chains in one language, followed by a summary.

R1's cold start had its chains rewritten by a model and by people. Here every phrase of the other
language has its counterpart in a table, so a rule does it.
"""

from __future__ import annotations

import re

from r1lit.batches import Problem
from r1lit.text.extract import extract_answer, thinking_and_answer
from r1lit.worlds.grading import summary_of
from r1lit.worlds.language import PHRASES
from r1lit.worlds.requests import in_r1_template, request_of

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
