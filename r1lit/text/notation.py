r"""Normalises written answers for the parser: signs, look-alikes, units, numbers in words.

Only how an answer is written changes here, never what it says. Words around a value are dropped
from a short list (``the answer is 5``, ``答案是5``, ``5 元``); any other word stays and makes the
answer unreadable, so that ``not 5``, ``maybe 5`` and ``不是5`` are no way to say 5.
"""

from __future__ import annotations

import re
import unicodedata

from r1lit.text.units import (
    DOUBTS,
    MAX_CHARACTERS,
    MAX_UNIT,
    NUMBER_WORDS,
    OTHER_VALUE,
    TIMES,
    is_unit,
    unmarked,
)

INVISIBLE = dict.fromkeys(
    map(ord, "\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\ufeff")
)
"""Characters that a reader cannot see; ``str.translate`` drops them."""

_SIGNS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-",
    "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "⁄": "/", "∕": "/",
    "∞": r"\infty ", "π": r"\pi ", "°": r"^\circ ", "±": r"\pm ", "∓": r"\mp ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}",
    "′": "'", "″": "''", "‴": "'''",
    "ℕ": r"\mathbb{N}", "ℂ": r"\mathbb{C}", "，": ",", "、": ",", "；": ";", "：": ":",
    "。": ".", "％": "%", "¥": "", "￥": "", "€": "", "£": "", "！": "",
}  # fmt: skip
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))
_RAISED = {ord(c): str(i) for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | {ord("⁻"): "-", ord("ⁿ"): "n"}
_RAISED_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ]+")
_LOWERED = {ord(c): str(i) for i, c in enumerate("₀₁₂₃₄₅₆₇₈₉")}
_LOWERED_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_ROOT = re.compile(r"√\s*(\d+|[A-Za-z]|\([^()]*\)|\{[^{}]*\})")
_VULGAR = re.compile("([0-9]?)([¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])")
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_ENGLISH = re.compile(
    r"^(?:(?:so|thus|hence|therefore)\b,?\s*)?(?:the|my|our)?\s*"
    r"(?:(?:final|correct|exact|numerical)\s+)?(?:answer|result|solution|value)"
    r"(?:\s*(?:is|equals|=|:)){1,2}\s*(?=\S)",
    re.IGNORECASE,
)
_THEREFORE = re.compile(r"^(?:so|thus|hence|therefore)\b,?\s*(?=\S)", re.IGNORECASE)
_HEADING = re.compile(
    r"^#{1,6}[ \t]+(?:(?:the\s+)?(?:final\s+)?answer\s*:?[ \t]*\n\s*)?(?=\S)", re.IGNORECASE
)
_BOLD_LEAD = re.compile(r"^(\*\*|__)([^*_\n]{1,40})\1(?=\s*:?\s*\S)")
_TEXT_LEAD = re.compile(r"^\\(?:text|textbf|mbox|mathrm)\s*\{([^{}]+)\}(?=.)")
_CHINESE = re.compile(
    r"^(?:(?:所以|因此|因而|故|则|于是|综上|综上所述),?\s*)?"
    r"(?:(?:最终|最后|正确)?的?(?:答案|结果|解|值)(?:应该?)?(?:是|为|等于|:|=)?:?\s*)?"
    r"(?:(?:一|总)?共(?:计|有|是)?|合计|有)?\s*"
    r"(?=[^\u4e00-\u9fff])"
)
_CHINESE_OR = re.compile(r"\s*(?:或者?|和|与|及|以及)\s*")
_CHINESE_UNIT = re.compile(
    r"(?<=[0-9}])\s*\(?(?:平方|立方)?(?:千米|厘米|毫米|分米|公里|米|千克|公斤|克|吨|升|毫升|元|美元"
    r"|角钱|块钱|个|人|天|年|月|周|小时|分钟|秒钟?|岁|本|只|张|次|件|条|支|辆|棵|页|箱|度|名|位|种|组)"
    r"(?:(?![或不非半多余几约近零倍十百千万亿内外上下左右])[\u4e00-\u9fff]){0,6}\)?$"
)
_THOUSANDS = re.compile(r"^([-+]?\d{1,3})((?:(?:\s|\\,|\\ )\d{3})+)$", re.ASCII)
_MIXED = re.compile(r"(?<![\d./^_}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d./!^])", re.ASCII)
_MIXED_LATEX = re.compile(r"(?<![\d.^_}])(\d+)\s+(?=\\[dt]?frac\{\d+\}\{\d+\}$)", re.ASCII)
_SCIENTIFIC = re.compile(r"^([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})$", re.ASCII)
_REALS = re.compile(
    r"^(?:\\text\{\s*)?(?:all|the|any)?\s*(?:set of\s+)?(?:all\s+)?real numbers?\s*\}?$",
    re.IGNORECASE,
)
_POWER = re.compile(r"(?<=[\w)}])\*\*(\d+|[A-Za-z])(?![\w*])", re.ASCII)
_BARE_INFINITY = re.compile(r"(?<![A-Za-z\\])oo(?![A-Za-z])")
_TEXT = re.compile(
    r"^\(?\\(?:text|mbox|textbf|textit|mathrm|textnormal|operatorname)\{([^{}$\\]*)\}\)?[.,]?$"
)
_WORDS = re.compile(r"[^\W\d_]+(?:[\s'’-]+(?:[^\W\d_]+|\d+))*")
_LETTERS = re.compile(
    r"^(?:\([A-Z]\)|[A-Z])(?:(?:\s*+,\s*+|\s++)(?:and\s++)?(?:\([A-Z]\)|[A-Z]))+$", re.IGNORECASE
)
_SIDE_BY_SIDE = re.compile(r"(?<![\^_])\d(?:\s|\\[ ,;:]|\\q?quad|~)+\d", re.ASCII)
_TEXT_PART = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|math(?:rm|bf|it|sf)|operatorname)\s*\{([^{}]*)\}"
)
_JOINS = ("", "and", "or")
_CHANGES = re.compile(
    r"\b(?:hundreds?|thousands?|[mbtr]+illions?|dozens?|hal(?:f|ves)|thirds?|fourths?|quarters?"
    r"|fifths?|tenths?|squared|cubed|factorial|plus|minus|over|mod|or|and|to|pi|not|if|is)\b"
    r"|[或不非半多余几约近零倍十百万亿]|千(?![米克瓦])",
    re.IGNORECASE,
)
_LABEL_AND_VALUE = re.compile(
    r"^\\text(?:bf)?\{\s*\(?([A-J])\)?[.:)]?\s*\}(?:\s|\\[ ,;:]|\\q?quad|~|:)*([^\s].*)$", re.DOTALL
)
_MORE_THAN_A_VALUE = re.compile(r"[A-Za-z]{2}|(?<![A-Za-z])[A-J](?![A-Za-z])|,(?!\d{3})|[;?或]")
_TAKES_TWO = re.compile(r"\\(?:[dt]?frac|[dt]?binom)")


_LOOKS = re.compile(
    r"\\(?:(?:normal|footnote|script)?size|tiny|small|(?:text|display|script)style|[lL]arge|LARGE"
    r"|[hH]uge|bf|it|rm|boldmath|bfseries|itshape|limits|nolimits|hfill|noindent|centering"
    r"|strut|mathstrut|null)(?![A-Za-z])\s*|\\color\s*\{\w*\}|\\(?:small|med|big)skip\b"
)
_WRAPS = re.compile(
    r"\\(?:(?:textcolor|colorbox|fcolorbox\s*\{\w*\})\s*\{\w*\}|boldsymbol|bm|pmb|mathbf|mathit"
    r"|mathsf|mathtt|mathnormal|bold|texttt|underline|uline|underbar|emph|ensuremath|fbox|displaystyle)\s*(?=\{)"
)
_LETTER = re.compile(r"\\(?:mathrm|operatorname|text|textit)\s*\{\s*(e|i|\d[\d,.]*)\s*\}")
_PRIMES = re.compile(r"\^?\s*(?:\{\s*((?:\\prime\s*)+)\}|((?:\\prime(?![A-Za-z])\s*)+))")
_CALCULATOR = re.compile(r"<<[^<>]*>>")


def without_looks(text: str) -> str:
    r"""Drop LaTeX's mere looks: size, weight, colour, and GSM8K's calculator marks.

    >>> without_looks(r"{\large \textcolor{red}{\frac{1}{2}}}"), without_looks(r"\boldsymbol{x}^2")
    ('\\frac{1}{2}', 'x^2')
    >>> without_looks("$20+$10=$<<20+10=30>>30")
    '$20+$10=$30'
    """
    if "<<" in text:
        text = _CALCULATOR.sub("", text)
    if "\\" not in text:
        return text
    text = _LETTER.sub(r"\1", _LOOKS.sub("", text))
    if "prime" in text:
        text = _PRIMES.sub(lambda run: "'" * run[0].count("prime"), text)
    while match := _WRAPS.search(text):
        end = _closing(text, match.end())
        if end is None:
            break
        inside = text[match.end() + 1 : end]
        braces = "{%s}" if text[: match.start()].endswith(("^", "_")) else "%s"
        text = text[: match.start()] + braces % inside.strip() + text[end + 1 :]
    while text.startswith("{") and _closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closing(text: str, start: int) -> int | None:
    """Return the place of the brace that closes the one at ``start``."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if not depth:
            return place
    return None


def plain_signs(text: str) -> str:
    r"""Write signs and look-alikes as LaTeX or ASCII, and drop what cannot be seen.

    >>> plain_signs("２π ≤ 1½ − 5²"), plain_signs("√2")
    ('2\\pi  \\le  1 1/2 - 5^{2}', '\\sqrt{2}')
    """
    text = text.translate(INVISIBLE)
    if text.isascii():
        return text
    text = _VULGAR.sub(_vulgar, text)
    text = _RAISED_RUN.sub(lambda run: "^{" + run[0].translate(_RAISED) + "}", text)
    text = _LOWERED_RUN.sub(lambda run: "_{" + run[0].translate(_LOWERED) + "}", text)
    text = _ROOT.sub(lambda root: r"\sqrt{" + root[1].strip("(){}") + "}", text)
    return unicodedata.normalize("NFKC", _SIGN.sub(lambda sign: _SIGNS[sign[0]], text))


def _vulgar(match: re.Match[str]) -> str:
    fraction = unicodedata.normalize("NFKC", match[2]).replace("⁄", "/")
    return f"{match[1]} {fraction}" if match[1] else fraction


def plain_answer(text: str) -> str:
    r"""Rewrite an answer so that what is left is its value.

    >>> plain_answer("The final answer is $1 1/2$."), plain_answer("答案是 5 元。")
    ('(1+1/2)', '5')
    >>> plain_answer("1 000 000"), plain_answer("2.5e3"), plain_answer("不是5")
    ('1000000', '2.5 \\times 10^{3}', '不是5')
    """
    text = unmarked(without_looks(without_lead(without_looks(plain_signs(text)))))
    if not text.isascii():
        text = _CHINESE_UNIT.sub("", text)
        text = _CHINESE_OR.sub(" or ", text)
    if _REALS.match(text):
        return r"\mathbb{R}"
    if match := _THOUSANDS.match(text):
        return match[1] + re.sub(r"[^0-9]", "", match[2])
    if match := _SCIENTIFIC.match(text):
        return rf"{match[1]} \times 10^{{{int(match[2])}}}"
    text = _POWER.sub(r"^{\1}", _BARE_INFINITY.sub(r"\\infty ", text))
    return _MIXED_LATEX.sub(r"\1", _MIXED.sub(r"(\1+\2/\3)", text))


def without_lead(text: str) -> str:
    """Drop ``the answer is`` and its like, marks around the whole, and full stops at the end.

    >>> without_lead("So the answer is: **Paris**."), without_lead("not Paris")
    ('Paris', 'not Paris')
    >>> without_lead("#### 18"), without_lead("**Final Answer:** 18")
    ('18', '18')
    """
    text = text.strip()
    for _ in range(3):
        before = text
        text = _unwrapped(text.rstrip(".").rstrip()).removeprefix("=").lstrip()
        text = _HEADING.sub("", text)
        if (bold := _BOLD_LEAD.match(text)) and _ENGLISH.match(bold[2].rstrip(" :") + ": x"):
            text = text[bold.end() :].lstrip(" :\t\n")
        if (said := _TEXT_LEAD.match(text)) and _ENGLISH.sub("", said[1] + "x") == "x":
            text = text[said.end() :]
        for lead in (_ENGLISH, _THEREFORE, _CHINESE):
            text = lead.sub("", text, count=1)
        if text == before:
            break
    return text


def _unwrapped(text: str) -> str:
    """Drop one pair of math or markdown marks around the whole of ``text``."""
    for left, right in _WRAPPERS:
        inside = text[len(left) : len(text) - len(right)]
        if (
            len(text) > len(left) + len(right)
            and text.startswith(left)
            and text.endswith(right)
            and left not in inside
            and right not in inside
            and not (left == "$" and text.startswith(r"\$"))
        ):
            return inside.strip()
    return text


def words_of(text: str, *, wrapped: bool = False) -> str | None:
    r"""Return an answer that is words, lower-case and without LaTeX's wrapper, or ``None``.

    A list of letters is sorted. With ``wrapped`` only a text in ``\text{…}`` is words.

    >>> words_of(r"\text{(C)}"), words_of("Evelyn"), words_of(r"\text{B, A}"), words_of("x + 1")
    ('c', 'evelyn', 'a,b', None)
    """
    match = _TEXT.match(text.strip())
    if match:
        text = match[1]
    elif wrapped:
        return None
    text = text.strip().rstrip(".,")
    if _LETTERS.match(text):
        return ",".join(sorted(set(re.findall(r"(?<![a-z])[a-z](?![a-z])", text.casefold()))))
    text = text.removeprefix("(").removesuffix(")").strip()
    return " ".join(text.casefold().split()) if _WORDS.fullmatch(text) else None


def side_by_side(text: str) -> bool:
    r"""Return whether two numbers stand side by side with nothing between them.

    Such text has no one reading; math-verify adds them up.

    >>> side_by_side("5 6"), side_by_side(r"5 \quad 6"), side_by_side(r"\dfrac 3 8")
    (True, True, False)
    """
    return bool(_SIDE_BY_SIDE.search(text)) and not _TAKES_TWO.search(text)


def other_words(text: str, gold: str) -> str | None:
    r"""Return text beside a value that may change it, or ``None``; the gold answer may say it too.

    math-verify takes whatever stands in ``\text{…}`` behind a number for its unit.

    >>> other_words(r"5\text{ or 6}", "5"), other_words(r"5\text{ million}", "5")
    (' or 6', ' million')
    >>> other_words(r"5\text{ cm}", "5"), other_words(r"5 \text{ or } 6", "5, 6")
    (None, None)
    """
    parts = _TEXT_PART.findall(text) if "\\" in text else []
    if not parts or (len(parts) == 1 and not _TEXT_PART.sub("", text).strip(" $.,()")):
        return None  # a text that is the whole answer
    known = _TEXT_PART.findall(gold)
    for part in parts:
        if part in known or part.strip(" ,").casefold() in _JOINS:
            continue
        if _CHANGES.search(part) or any(c.isdigit() for c in part):
            return str(part)
    return None


def label_and_value(text: str) -> tuple[str, str] | None:
    r"""Split an answer that names an option and its value and says no more, or return ``None``.

    >>> label_and_value(r"\textbf{(C)}\ 42"), label_and_value(r"\text{(C)}")
    (('C', '42'), None)
    """
    match = _LABEL_AND_VALUE.match(text.strip())
    if not match or _MORE_THAN_A_VALUE.search(re.sub(r"\\[A-Za-z]+", " ", match[2])):
        return None
    return match[1], match[2].strip()


_ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = [
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
    "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SPELLED = (
    {word: number for number, word in enumerate(_ONES + _TEENS, start=1)}
    | {word: 10 * number for number, word in enumerate(_TENS, start=2)}
    | {"zero": 0, "a": 1}
)
_BELOW_100 = rf"(?:(?:{'|'.join(_TENS)})(?:[-\s](?:{'|'.join(_ONES)}))?|{'|'.join(_TEENS + _ONES)})"
_BELOW_1000 = (
    rf"(?:(?:a|{'|'.join(_ONES)})\s+hundred(?:\s+(?:and\s+)?{_BELOW_100})?|{_BELOW_100})(?![a-z])"
)
_NUMBER = re.compile(
    rf"^(?:(?:({_BELOW_1000}|a)\s+thousand(?:,?\s+(?:and\s+)?({_BELOW_1000}))?)"
    rf"|({_BELOW_1000})|zero)(?![a-z-])(.*)$",
    re.IGNORECASE,
)
_WRAPPED_WORDS = re.compile(r"^\\(?:text|mbox|textbf|mathrm)\s*\{([^{}\\]*)\}$")


def spelled_number(text: str) -> str | None:
    """Return a number in English words as digits, without the unit after it, or ``None``.

    >>> spelled_number("Twenty-one apples"), spelled_number("a hundred and five")
    ('21', '105')
    >>> spelled_number("three or four"), spelled_number("three million"), spelled_number("third")
    (None, None, None)
    """
    if match := _WRAPPED_WORDS.match(text):
        text = match[1].strip()
    if not text[:1].isalpha() or len(text) > MAX_UNIT:
        return None
    match = _NUMBER.match(text)
    if not match or (match[4].strip(" .") and not is_unit(match[4].strip(" ."))):
        return None
    thousands, rest, whole = (_below_1000(part) for part in match.groups()[:3])
    return str(1000 * thousands + rest + whole)


def _below_1000(words: str | None) -> int:
    number = 0
    for word in re.findall(r"[a-z]+", (words or "").lower()):
        number = 100 * number if word == "hundred" else number + _SPELLED.get(word, 0)
    return number


_UNSURE = re.compile(
    rf"\b(?:one|{NUMBER_WORDS}|{DOUBTS}|{OTHER_VALUE}|or)\b|n['’]t\b|[?≈~‰]", re.IGNORECASE
)
_OF_NUMBER = re.compile(
    r"\b(\w+)\s+of\s+(?:(?:the|a|an|only|exactly|just|number|value)\s+)*[-$\\]*\d"
    r"|\b(after|before|following|preceding|past|beyond|without|from|multipl\w+\s+by"
    r"|rais\w+\s+(?:by|to))\s+(?:the\s+)?[-$\\]*\d",
    re.IGNORECASE,
)
_AMOUNTS = frozenset({
    "total", "sum", "amount", "answer", "result", "value", "cost", "price", "profit", "loss",
    "average", "mean", "median", "mode", "distance", "length", "width", "height", "depth",
    "area", "volume", "perimeter", "weight", "mass", "speed", "rate", "age", "salary", "bill",
    "fee", "revenue", "income", "balance", "maximum", "minimum", "count", "number",
    "population", "score", "gain", "increase", "decrease", "difference", "consists", "it",
    "them", "paid", "sold", "pay",
})  # fmt: skip
"""Words that may stand before ``of 42``: a total of 42 is 42, the square of 42 is not."""


def only_number(text: str) -> str | None:
    """Return the one number of a sentence that has no other and does not waver, or ``None``.

    >>> only_number("Janet makes $18 every day"), only_number("She makes 18 or so, she says")
    ('18', None)
    >>> only_number("a total of 42 dollars"), only_number("the square of 42")
    ('42', None)
    """
    if (
        len(text) > MAX_CHARACTERS
        or _UNSURE.search(text)
        or TIMES.search(text)
        or len(re.findall(r"[A-Za-z]{2,}", text)) < 3
    ):
        return None
    if any(of[2] or of[1].lower() not in _AMOUNTS for of in _OF_NUMBER.finditer(text)):
        return None
    numbers = re.findall(r"(?<![\w.])-?\$?\d[\d,]*(?:\.\d+)?(?![\w^/*+=%-])", text, re.ASCII)
    digits = re.findall(r"\d[\d,.]*", text)
    if len(numbers) != 1 or len(digits) != 1 or re.search(r"[\\^=+*/<>{}_]", text):
        return None
    return str(numbers[0]).replace("$", "").rstrip(",")
