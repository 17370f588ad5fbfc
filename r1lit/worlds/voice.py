"""Languages, and authors who mix them.

Whoever writes in the small world has a voice: a language, and how often the other one slips in.
Numbers and arithmetic are the same in both; the words between them are a phrase of this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from r1lit.seeding import generator
from r1lit.worlds import russian

Language = Literal["en", "zh", "ru"]
OTHER: dict[Language, Language] = {"en": "zh", "zh": "en", "ru": "en"}
"""What slips in."""

PHRASES: dict[str, tuple[str, str]] = {
    # how a search opens
    "let me try": ("Let me try. ", "让我试试。 "),
    "let me think": ("Let me think. ", "让我想想。 "),
    "i look for": ("I look for {target}. ", "我要找 {target}。 "),
    "try": ("Try ", "试 "),
    # a change of mind
    "wait": ("Wait, ", "等等， "),
    "but": ("But ", "但是 "),
    "however": ("However, ", "不过， "),
    "wrong": ("Wrong. ", "错误。 "),
    "retry": ("Let me retry: ", "重试： "),
    # its end
    "yes": (", yes.", "，对了。"),
    "give up": (". I give up.", "。我放弃。"),
    "guess": ("I guess.", "我猜。"),
    "verify": ("Let me verify: ", "验证： "),
    "check": ("Check: ", "检查： "),
    # slips in a calculation
    "mistake": ("wait, mistake: ", "等等，有错： "),
    "error": ("wait, an error: ", "等等，错误： "),
    "was wrong": (", wait, I was wrong", "，等等，我错了"),
}


@dataclass(frozen=True, kw_only=True)
class Voice:
    """Somebody's ``language``, and the probability ``mix`` that a phrase is in the other one.

    Who is ``careful`` always checks what was found.
    """

    language: Language = "en"
    mix: float = 0.0
    careful: bool = False

    def say(self, phrase: str, rng: np.random.Generator) -> str:
        """Return a phrase in this voice; "" stays "". ``rng`` is used only if mixed."""
        if not phrase:
            return ""
        other = self.mix > 0 and rng.random() < self.mix
        language = OTHER[self.language] if other else self.language
        return russian.PHRASES[phrase] if language == "ru" else PHRASES[phrase][language == "zh"]


def language_of(uid: str, chinese: float, russian_share: float = 0.0) -> Language:
    """Return the language of problem ``uid``: these shares of problems are not in English."""
    if not chinese + russian_share:
        return "en"
    place = generator(0, "language", uid).random()
    return "zh" if place < chinese else "ru" if place < chinese + russian_share else "en"


def check_shares(**shares: float) -> None:
    """Raise a ``ValueError`` that names the key unless each share is 0 to 1, all together too."""
    for key, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{key}: {share} is not a share, 0 to 1")
    if sum(shares.values()) > 1:
        raise ValueError(f"{' and '.join(shares)}: {shares} are more than 1 together")
