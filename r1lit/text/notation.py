r"""Normalises written answers for the parser: signs, look-alikes, units, numbers in words.

Only how an answer is written changes here, never what it says. Words around a value are dropped
from a short list (``the answer is 5``, ``答案是5``, ``5 元``); any other word stays and makes the
answer unreadable, so that ``not 5``, ``maybe 5`` and ``不是5`` are no way to say 5.

``5 cookies`` and ``5\text{ cm}`` are 5; ``5 million``, ``5 lakh``, ``5 or more`` and ``5 (wrong)``
are not. A unit must be words alone, and none of them a word that changes a value. Where two texts
both name a unit of measure, ``other_measure`` compares them: kind, prefix and power.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

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
    r"""Drop what changes only how LaTeX looks: size, weight, colour, and GSM8K's calculator marks.

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
    text = without_looks(without_lead(without_looks(plain_signs(text))))
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
    """
    text = text.strip()
    for _ in range(3):
        before = text
        text = _unwrapped(text.rstrip(".").rstrip()).removeprefix("=").lstrip()
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


_NUMBER_WORDS = (
    r"zero|two|three|four|five|six|seven|eight|nine|tens?|eleven|twelve|\w+teen|twenty|thirty|forty"
    r"|fifty|sixty|seventy|eighty|ninety|hundreds?|thousands?|[a-z]+illions?|mi?ln|mio|bn|lakhs?"
    r"|lacs?|crores?|arabs?|kharabs?|myriads?|googols?|dozens?|gross|doubled?|tripled?|twice|thrice"
    r"|hal(?:f|ves)|thirds?|fourths?|quarters?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?"
    r"|hundredths?|thousandths?|percent(?:age)?|pct|squared|cubed|root|factorial|plus|minus"
    r"|over|divided|modulo|mod|pi|tau|infinity|inf|oo|sqrt|log|ln|sin|cos|tan|exp|th|st|nd|rd"
)
_DOUBTS = (
    r"not|no|never|nor|neither|either|n['’]t|cannot|wrong|incorrect|false|untrue|invalid|impossible"
    r"|unlikely|unsure|unclear|unknown|maybe|perhaps|possibly|probably|might|may|could|guess"
    r"|approx\w*|about|around|roughly|nearly|almost|circa|least|most|under|above|below|between"
    r"|more|less|fewer|than|greater|smaller|up|down|if|unless|except|instead|versus|vs|other"
    r"|another|negative|remainder|rem|base|some\w*|any\w*|so|ish|score|off|but"
)
CHANGES = re.compile(
    rf"\b(?:{_NUMBER_WORDS}|{_DOUBTS}|or|and|to|is|are|was)\b|n['’]t\b|[?!]"
    r"|[或不非半多余几约近零倍十百万亿错对]|千(?![米克瓦])"
    r"|[上下左右]{2}|[以之][上下内外]",
    re.IGNORECASE,
)
"""A word that makes another value of the number beside it, or doubts it."""
_UNSURE = re.compile(rf"\b(?:one|{_NUMBER_WORDS}|{_DOUBTS}|or)\b|n['’]t\b|[?≈~]", re.IGNORECASE)
_TIMES = re.compile(r"\btimes\b(?!\W*$|\s+(?:per|an?|each|every)\b)", re.IGNORECASE)
"""18 times a day are 18; 3 times 6 and twice as many are not 3."""
_UNIT = re.compile(r"^[\s(\[]*[^\W\d_][^\W\d_\s./*·-]*(?:[\s./*·-]+[^\W\d_]+|\^?[23²³])*[\s.)\]]*$")
MAX_UNIT = 60
MAX_CHARACTERS = 2000
"""What is longer stays as it is: no answer is, and some patterns here are quadratic."""

_TEX_UNIT = re.compile(
    r"(?<![\s~])(?>(?:\\[ ,;:!]|\\q?quad|[\s~])*)"
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|[mh]box|math(?:rm|bf|it|sf)|operatorname|rm)\s*\{([^{}]*)\}(?:\^(?:\d|\{\d\}))?[.]?"
    r"(?=\s*(?:$|[,;)\]]|\\\}|\\?%|and\b|or\b))"
)
_SPACE = re.compile(r"\\[ ,;:!]|~")
_TEX_PER = re.compile(r"\}\s*/\s*\\(?:text|mathrm|mbox|operatorname)\s*\{")
_VALUE = re.compile(r"(?:[\d})!%]|\\pi|(?:^|[^A-Za-z])[A-Za-z])$")
_ENDS_IN_TEXT = re.compile(r"\\(?:text|mbox|math|operator)[a-z]*\s*\{[^{}]*[^\d{}][^{}]*\}$")
_SYMBOLS = (
    r"(?:sq\.? ?|cu\.? ?)?(?:km/h|kmph|m/s|mph|[kcmdn]?m|[km]?g|lbs?|oz|ft|in|yd|mi|min|hrs?|h|s|ms"
    r"|[mM]?[lL]|[kMG]?(?:N|J|W|V|Pa|Hz)|[kMGT]B)(?:\^(?:[23]|\{[23]\})|/s|/h)?\.?"
)
_WORDS_BEHIND = re.compile(
    r"^(.*?(?:[\d})]|\\pi))"
    rf"(\s*\(\s*(?:[A-Za-z]{{5}}[A-Za-z .]*|{_SYMBOLS})\s*\)|\s+\([A-Za-z]{{3}}[A-Za-z .]*\)"
    r"|\s+\(?[A-Za-z]{2,}[A-Za-z./^23{}() -]*)$"
)
_PLAIN_VALUE = re.compile(
    r"^(?:[A-Za-z]\s*=\s*)?[-+]?"
    r"(?:\\(?!arc|sin|cos|tan|cot|sec|csc|log|ln|exp)[A-Za-z]+|[\d\s.,{}()/^+*!$\\-])*$"
)
_GLUED = re.compile(rf"^([-+]?[0-9][0-9,]*(?:\.[0-9]+)?)(?: |\\[ ,;:])?{_SYMBOLS}$", re.ASCII)
_BEHIND_PI = re.compile(r"^(.*(?:[\d})]|\\pi))\s*((?:km/h|m/s|mph|[kcmd]m|ft|in|yd|mi))$")
_DEGREES = re.compile(r"\^\{?\\circ\}?\s*+\\?(?:text|mathrm)?\s*+\{?\s*+[CF]\s*+\}?$")
_TEXT_NUMBER = re.compile(r"^\\(?:text|mbox|mathrm|textbf|textrm)\s*\{\s*([-+$]?\d[^{}\\]*)\}$")
_IN_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textbf)\s*+\{([^{}]*+)\}")

_MEASURES = {
    "in": "inch inches", "ft": "foot feet", "yd": "yard", "mi": "mile", "lb": "lbs pound",
    "oz": "ounce", "gal": "gallon", "acre": "", "min": "minute 分钟", "h": "hr hrs hour 小时",
    "day": "天", "week": "周", "month": "月", "yr": "year 年", "$": "dollar USD usd buck 美元",
    "¢": "cent", "€": "euro EUR 欧元", "£": "GBP quid", "¥": "", "yuan": "RMB CNY 元 块钱",
    "yen": "JPY 日元", "rupee": "Rs", "°": "degree 度", "°C": "celsius", "°F": "fahrenheit",
    "rad": "radian", "penny": "pennies", "nickel": "", "dime": "", "am": "AM a.m A.M",
    "pm": "PM p.m P.M", "BC": "BCE", "AD": "CE", "east": "", "west": "", "north": "", "south": "",
    "left": "", "right": "", "mm": "毫米", "cm": "厘米", "dm": "分米", "m": "米",
    "km": "公里 千米", "kg": "公斤 千克", "g": "克", "t": "tonne 吨", "ton": "", "l": "升",
    "ml": "毫升", "s": "sec secs 秒 秒钟",
}  # fmt: skip
_METRIC = {
    "m": "meter metre", "g": "gram gramme", "s": "second", "l": "L liter litre", "N": "newton",
    "J": "joule", "W": "watt", "Pa": "pascal", "Hz": "hertz", "V": "volt", "A": "ampere amp",
    "Ω": "ohm", "mol": "mole", "B": "byte", "bit": "", "cal": "calorie", "eV": "", "K": "kelvin",
}  # fmt: skip
_PREFIXES = {
    "": "", "n": "nano", "µ": "micro", "m": "milli", "c": "centi", "d": "deci", "k": "kilo",
    "M": "mega", "G": "giga", "T": "tera",
}  # fmt: skip


def _measures() -> dict[str, str]:
    """Return symbol by name, for all names, plurals and prefixes of units of measure."""
    found: dict[str, str] = {}
    for unit, names in _METRIC.items():
        for letter, prefix in _PREFIXES.items():
            for name in names.split():
                found[(letter if len(name) == 1 else prefix) + name] = letter + unit
            found[letter + unit] = letter + unit
    for symbol, names in _MEASURES.items():
        found |= dict.fromkeys((symbol, *names.split()), symbol)
    plurals = {name + "s": symbol for name, symbol in found.items() if len(name) > 1}
    return plurals | found


_MEASURE_OF = _measures()
_RATES = {"mph": "mi/h", "mps": "m/s", "kmph": "km/h", "kph": "km/h", "kmh": "km/h", "fps": "ft/s"}
_RATE = re.compile(rf"\b({'|'.join(_RATES)})\b")
_COMPATIBLE = {frozenset(pair.split()) for pair in ("° °C", "° °F", "¥ yuan", "¥ yen")}
_WORDS_OF_POWER = {
    "square": 2, "sq": 2, "cubic": 3, "cu": 3, "平方": 2, "立方": 3,
}  # fmt: skip
_SPACING = re.compile(r"\\[ ,;:!]|\\q?quad|~")
_CIRCLE = re.compile(r"\s*\^?\s*\{?\s*(?:\\circ|°|º)\s*\}?|\\degree|℃|℉")
_KIND_OF_DEGREE = re.compile(
    r"(?:°|(?:°|\bdegrees?)\s+)(?:(C|celsius|centigrade)|(F|fahrenheit))\b", re.IGNORECASE
)
_RAISED_NUMBER = re.compile(r"\^\{\s*(-?\d+)\s*\}")
_CURRENCY = re.compile(r"(?:(\\\$|\$|€|£|¥|￥)|\\(euro|pounds|yen))\s*[-+]?\.?\d")
_MONEY = {"\\$": "$", "$": "$", "€": "€", "£": "£", "¥": "¥", "￥": "¥", "euro": "€", "pounds": "£",
          "yen": "yen"}  # fmt: skip
_ENDS_IN_UNIT = re.compile(
    r"\\(?:text|mathrm|mbox|textbf)\s*\{([^{}]*)\}((?:\^(?:\d|\{\d\}))?)[\s.$]*$"
)
_LONE = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
_TAIL = re.compile(r"(?:[0-9]{1,2}-?\^|[^\W\d_]|[°¢$€£¥/·*.\s()-])*")
_ONE = re.compile(r"^(平方|立方)?(.+?)(?:\^?(-?\d+))?$")


def is_unit(words: str) -> bool:
    """Decide whether words after a value only say of what there are so many.

    >>> [is_unit(words) for words in ("cm", "miles per hour", "(apples)", "lakh", "or 6", "wrong")]
    [True, True, True, False, False, False]
    """
    words = words.strip(" ()[]")
    if len(words) > MAX_UNIT or words in ("k", "K", "M", "B", "T", "e2", "e3", "E2", "E3"):
        return False
    if len(words) == 1 and words.isascii() and words not in _MEASURE_OF:
        return False
    return bool(_UNIT.match(words)) and not (CHANGES.search(words) or _TIMES.search(words))


def without_units(text: str) -> str:
    r"""Drop the units after the values of an answer; all else stays.

    >>> without_units("70 miles per hour"), without_units(r"12\pi cm^{2}"), without_units("5 dozen")
    ('70', '12\\pi', '5 dozen')
    >>> without_units(r"5\text{ cm}, 6\text{ cm}"), without_units(r"\text{6 ways}")
    ('5, 6', '6')
    """
    if len(text) > MAX_CHARACTERS:
        return text
    text = _TEX_PER.sub("/", _DEGREES.sub(r"^\\circ", text))
    if match := _TEXT_NUMBER.match(text):
        text = match[1].strip()
    text = _TEX_UNIT.sub(lambda unit: "" if _behind_value(unit) else unit[0], text).strip()
    match = _WORDS_BEHIND.match(text)
    if match and _PLAIN_VALUE.match(match[1]) and is_unit(re.sub(r"[{}^]", "", match[2])):
        return match[1].rstrip()
    match = _BEHIND_PI.match(text)
    if match and _PLAIN_VALUE.match(match[1]) and "\\" in match[1]:
        return match[1].rstrip()
    return text


def _behind_value(unit: re.Match[str]) -> bool:
    before = unit.string[: unit.start()].rstrip()
    if not _VALUE.search(before) or _ENDS_IN_TEXT.search(before):
        return False
    words = _SPACE.sub(" ", unit[1])
    unknown = before[-1].isalpha() and not before.endswith(
        r"\pi"
    )  # n, of which a word may tell more
    return is_unit(words) and not (unknown and _powers(words.strip(" .")) is None)


def without_symbol(text: str) -> str:
    """Drop the symbol of a unit after a plain number, which may be one letter.

    Only for a number that is compared with a number: ``5m`` may also be a product.

    >>> without_symbol("12.5kg"), without_symbol("5 m/s"), without_symbol("5x")
    ('12.5', '5', '5x')
    """
    return _GLUED.sub(r"\1", text)


def without_long_symbol(text: str) -> str:
    """Drop a symbol of two characters or more: ``5 m/s``, but not the ``m`` of ``5m``.

    >>> without_long_symbol("5 m/s"), without_long_symbol("5m")
    ('5', '5m')
    """
    short = without_symbol(text)
    return short if len(text) - len(short.rstrip()) > 2 - (" " not in text) else text


@lru_cache(maxsize=1024)
def measure_of(text: str) -> str | None:
    r"""Return the unit of measure that an answer names, by symbols and powers, or ``None``.

    >>> measure_of("5 km"), measure_of("70 miles per hour"), measure_of("9 cats")
    ('km', 'h^-1 mi', None)
    >>> measure_of(r"5\text{ yd}^2"), measure_of("5 square yards"), measure_of("€5")
    ('yd^2', 'yd^2', '€')
    """
    if len(text) > MAX_CHARACTERS:
        return None
    money = _CURRENCY.search(text)
    if money and money[1] == "$" and "$" in text[money.end() :]:
        money = None  # it is LaTeX's
    in_text = _ENDS_IN_UNIT.search(_TEX_PER.sub("/", text))
    if in_text and not money and _VALUE.search(text[: in_text.start()].rstrip(" ~\\,;:!")):
        text = "1 " + in_text[1] + in_text[2]
    text = text.rstrip(" .") if text.endswith(r"\$") else text.rstrip(" .$")
    text = _SPACING.sub(" ", _IN_TEXT.sub(r" \1 ", _TEX_PER.sub("/", text))).replace(" ^", "^")
    text = text.replace("℃", "°C").replace("℉", "°F").replace(r"\cdot", "·")
    text = text.translate({ord("²"): "^2", ord("³"): "^3"})
    text = _KIND_OF_DEGREE.sub(
        lambda kind: f"° {'°C' if kind[1] else '°F'}", _CIRCLE.sub("°", text)
    )
    text = _RAISED_NUMBER.sub(r"^\1", text)
    start = len(text) - len(_TAIL.match(text[::-1])[0])  # type: ignore[index]
    tail = text[start:]
    if text[:start].endswith("\\"):  # of \pi cm
        tail = tail.lstrip("abcdefghijklmnopqrstuvwxyz")
    if not start or (not in_text and _LONE.search(tail) and _LONE.search(text[:start])):
        return None  # the letters are unknowns
    powers = _powers(tail.strip(" ()."))
    if powers is None:
        return None
    if money and not powers.get("$"):
        powers[_MONEY[money[1] or money[2]]] = 1
    if len(powers) > 1 and powers.get("°") == 1:
        del powers["°"]
    named = sorted((unit, power) for unit, power in powers.items() if power)
    return " ".join(u if p == 1 else f"{u}^{p}" for u, p in named) or None


def _powers(unit: str) -> dict[str, int] | None:
    """Return power by symbol, or ``None`` if there is a word that is no unit of measure."""
    unit = _RATE.sub(lambda rate: _RATES[rate[1]], unit.replace("$", " $ "))
    powers: dict[str, int] = {}
    over, raised = 1, 1
    for word in re.findall(r"/|[^\s/·*()]+", unit):
        bare = word.strip(".-").removesuffix("\\")
        if word == "/" or bare == "per":
            over = -1
        elif bare.lower() in _WORDS_OF_POWER:
            raised = _WORDS_OF_POWER[bare.lower()]
        elif bare:
            one = _ONE.match(bare)
            assert one is not None
            symbol = _MEASURE_OF.get(one[2]) or _MEASURE_OF.get(one[2].lower())
            if symbol is None:
                return None
            power = int(one[3] or 1) * raised * _WORDS_OF_POWER.get(one[1] or "", 1)
            powers[symbol] = powers.get(symbol, 0) + over * power
            raised = 1
    return powers if raised == 1 else None


def other_measure(text: str, gold: str) -> bool:
    r"""Return whether two answers name different units of measure.

    >>> other_measure("5 cm", "5 cm^2"), other_measure("5 square cm", r"5\text{ cm}^2")
    (True, False)
    >>> other_measure("5 cm", "5"), other_measure("30°C", "30°F"), other_measure("30°C", "30°")
    (False, True, False)
    """
    one, other = measure_of(text), measure_of(gold)
    if one is None or other is None or one == other:
        return False
    return frozenset((one, other)) not in _COMPATIBLE


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


def only_number(text: str) -> str | None:
    """Return the one number of a sentence that has no other and does not waver, or ``None``.

    >>> only_number("Janet makes $18 every day"), only_number("She makes 18 or so, she says")
    ('18', None)
    """
    if (
        len(text) > MAX_CHARACTERS
        or _UNSURE.search(text)
        or _TIMES.search(text)
        or len(re.findall(r"[A-Za-z]{2,}", text)) < 3
    ):
        return None
    numbers = re.findall(r"(?<![\w.])-?\$?\d[\d,]*(?:\.\d+)?(?![\w^/*+=%-])", text, re.ASCII)
    digits = re.findall(r"\d[\d,.]*", text)
    if len(numbers) != 1 or len(digits) != 1 or re.search(r"[\\^=+*/<>{}_]", text):
        return None
    return str(numbers[0]).replace("$", "").rstrip(",")
