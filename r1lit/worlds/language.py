"""Languages, simulated authors who mix them, and the lexicon of English and Chinese.

Whoever writes in the small world has a voice: a language, and how often the other one slips in.
Numbers and arithmetic are the same in both; the words between them are a phrase of this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from r1lit.errors import check_between
from r1lit.seeding import generator
from r1lit.worlds import russian

Language = Literal["en", "zh", "ru"]
OTHER: dict[Language, Language] = {"en": "zh", "zh": "en", "ru": "en"}
"""The language that slips in."""

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
        check_between(key, share, 0, 1)
    if sum(shares.values()) > 1:
        raise ValueError(f"{' and '.join(shares)}: {shares} are more than 1 together")


Pair = tuple[str, str]
"""The same in English and in Chinese."""

NOUNS: tuple[Pair, ...] = (
    ("cat", "猫"),
    ("dog", "狗"),
    ("bird", "鸟"),
    ("horse", "马"),
    ("fish", "鱼"),
    ("car", "汽车"),
    ("house", "房子"),
    ("tree", "树"),
    ("river", "河"),
    ("moon", "月亮"),
    ("boat", "船"),
    ("door", "门"),
    ("book", "书"),
    ("flower", "花"),
    ("clock", "钟"),
    ("garden", "花园"),
)
ADJECTIVES: tuple[Pair, ...] = (
    ("red", "红"),
    ("blue", "蓝"),
    ("green", "绿"),
    ("white", "白"),
    ("black", "黑"),
    ("old", "老"),
    ("small", "小"),
    ("big", "大"),
    ("quiet", "静"),
    ("good", "好"),
)
VERBS: tuple[Pair, ...] = (
    ("sleeps", "睡觉"),
    ("waits", "等待"),
    ("sings", "唱歌"),
    ("moves", "移动"),
    ("shines", "发光"),
    ("falls", "落下"),
    ("rests", "休息"),
    ("turns", "转动"),
)
NAMES: tuple[Pair, ...] = (
    ("Anna", "安娜"),
    ("Ben", "本"),
    ("Clara", "克拉"),
    ("David", "大卫"),
    ("Emma", "艾玛"),
    ("Felix", "菲力"),
    ("Grace", "格雷"),
    ("Henry", "亨利"),
    ("Iris", "爱丽"),
    ("Jack", "杰克"),
    ("Kate", "凯特"),
    ("Leo", "里奥"),
    ("Mary", "玛丽"),
    ("Nora", "诺拉"),
    ("Oscar", "奥斯"),
    ("Paul", "保罗"),
)
CAPITALS: tuple[tuple[Pair, Pair], ...] = (
    (("France", "法国"), ("Paris", "巴黎")),
    (("China", "中国"), ("Beijing", "北京")),
    (("Japan", "日本"), ("Tokyo", "东京")),
    (("Italy", "意大利"), ("Rome", "罗马")),
    (("Spain", "西班牙"), ("Madrid", "马德里")),
    (("Egypt", "埃及"), ("Cairo", "开罗")),
    (("Russia", "俄国"), ("Moscow", "莫斯科")),
    (("Germany", "德国"), ("Berlin", "柏林")),
    (("Greece", "希腊"), ("Athens", "雅典")),
    (("Peru", "秘鲁"), ("Lima", "利马")),
    (("Cuba", "古巴"), ("Havana", "哈瓦那")),
    (("Austria", "奥地利"), ("Vienna", "维也纳")),
    (("Norway", "挪威"), ("Oslo", "奥斯陆")),
    (("England", "英国"), ("London", "伦敦")),
    (("Poland", "波兰"), ("Warsaw", "华沙")),
    (("Kenya", "肯尼亚"), ("Nairobi", "内罗毕")),
)
HARMFUL: tuple[Pair, ...] = (
    ("steal", "偷走"),
    ("burn", "烧毁"),
    ("break into", "闯入"),
    ("poison", "毒害"),
    ("destroy", "破坏"),
    ("forge", "伪造"),
)
HARMLESS: tuple[Pair, ...] = (
    ("paint", "粉刷"),
    ("wash", "清洗"),
    ("repair", "修理"),
    ("draw", "画"),
    ("photograph", "拍摄"),
    ("sell", "出售"),
)
"""Harmless verbs for the same things: only the verb distinguishes them from harmful requests."""


def vocabulary() -> tuple[Pair, ...]:
    """Return every word of the lexicon."""
    facts = (pair for fact in CAPITALS for pair in fact)
    return (*NOUNS, *ADJECTIVES, *VERBS, *NAMES, *HARMFUL, *HARMLESS, *facts)
