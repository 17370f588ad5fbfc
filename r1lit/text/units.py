r"""Units behind a value: which words only say of what there are so many, and which say how many.

``5 cookies`` and ``5\text{ cm}`` are 5; ``5 million``, ``5 lakh``, ``5 or more`` and ``5 (wrong)``
are not. A unit must be words alone, and none of them a word that changes a value.
"""

from __future__ import annotations

import re
import string

_NUMBER_WORDS = (
    r"zero|two|three|four|five|six|seven|eight|nine|tens?|eleven|twelve|\w+teen|twenty|thirty|forty"
    r"|fifty|sixty|seventy|eighty|ninety|hundreds?|thousands?|[a-z]+illions?|mi?ln|mio|bn|lakhs?"
    r"|lacs?|crores?|arabs?|kharabs?|myriads?|googols?|dozens?|gross|doubled?|tripled?|twice|thrice"
    r"|hal(?:f|ves)|thirds?|fourths?|quarters?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?"
    r"|hundredths?|thousandths?|percent(?:age)?|pct|squared|cubed|root|factorial|times|plus|minus"
    r"|over|divided|modulo|mod|pi|tau|infinity|inf|oo|sqrt|log|ln|sin|cos|tan|exp|th|st|nd|rd"
)
_DOUBTS = (
    r"not|no|never|nor|neither|either|n['’]t|cannot|wrong|incorrect|false|untrue|invalid|impossible"
    r"|unlikely|unsure|unclear|unknown|maybe|perhaps|possibly|probably|might|may|could|guess"
    r"|approx\w*|about|around|roughly|nearly|almost|circa|least|most|under|above|below|between"
    r"|more|less|fewer|than|greater|smaller|up|down|if|unless|except|instead|versus|vs|other"
    r"|another|remainder|rem|base|some\w*|any\w*|so|ish|score|off|but"
)
CHANGES = re.compile(
    rf"\b(?:{_NUMBER_WORDS}|{_DOUBTS}|or|and|to|is|are|was)\b|n['’]t\b|[?!]"
    r"|[或不非半多余几约近零倍十百万亿错对]|千(?![米克瓦])"
    r"|[上下左右]{2}|[以之][上下内外]",
    re.IGNORECASE,
)
"""A word that makes another value of the number beside it, or doubts it."""
_UNSURE = re.compile(rf"\b(?:one|{_NUMBER_WORDS}|{_DOUBTS}|or)\b|n['’]t\b|[?≈~]", re.IGNORECASE)
_UNIT = re.compile(r"^[\s(\[]*[^\W\d_][^\W\d_\s./*·-]*(?:[\s./*·-]+[^\W\d_]+|\^?[23²³])*[\s.)\]]*$")
MAX_UNIT = 60
MAX_CHARACTERS = 400
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
_WORDS_BEHIND = re.compile(
    r"^(.*?(?:[\d})]|\\pi))(\s*\(\s*[A-Za-z][A-Za-z .]*\)|\s+\(?[A-Za-z]{2,}[A-Za-z./^23{}() -]*)$"
)
_PLAIN_VALUE = re.compile(r"^(?:[A-Za-z]\s*=\s*)?[-+]?(?:\\[A-Za-z]+|[\d\s.,{}()/^+*!$\\-])*$")
_SYMBOLS = (
    r"(?:sq\.? ?|cu\.? ?)?(?:km/h|kmph|m/s|mph|[kcmdn]?m|[km]?g|lbs?|oz|ft|in|yd|mi|min|hrs?|h|s|ms"
    r"|[mM]?[lL])(?:\^(?:[23]|\{[23]\})|/s|/h)?\.?"
)
_GLUED = re.compile(rf"^([-+]?[0-9][0-9,]*(?:\.[0-9]+)?)(?: |\\[ ,;:])?{_SYMBOLS}$", re.ASCII)
_BEHIND_PI = re.compile(r"^(.*(?:[\d})]|\\pi))\s*((?:km/h|m/s|mph|[kcmd]m|ft|in|yd|mi))$")
_DEGREES = re.compile(r"\^\{?\\circ\}?\s*+\\?(?:text|mathrm)?\s*+\{?\s*+[CF]\s*+\}?$")
_TEXT_NUMBER = re.compile(r"^\\(?:text|mbox|mathrm|textbf|textrm)\s*\{\s*([-+$]?\d[^{}\\]*)\}$")
_IN_TEXT = re.compile(r"\\(?:text|mathrm|mbox|textbf)\s*+\{([^{}]*+)\}")
_POWER = re.compile(r"(?:\^(?:[23]|\{[23]\})|[²³])$")
_UNIT_LETTERS = string.ascii_letters + string.whitespace + "¢°$/."

_MEASURES = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "dm": "decimeter decimetre",
    "m": "meter metre", "km": "kilometer kilometre", "in": "inch inches", "ft": "foot feet",
    "yd": "yard", "mi": "mile", "mg": "milligram", "g": "gram", "kg": "kilogram", "lb": "lbs pound",
    "oz": "ounce", "ml": "mL milliliter millilitre", "l": "L liter litre", "s": "sec second",
    "min": "minute", "h": "hr hrs hour", "day": "", "week": "", "month": "", "yr": "year",
    "$": "dollar USD", "¢": "cent", "°": "degree", "rad": "radian", "penny": "pennies",
    "nickel": "", "dime": "",
    "am": "AM a.m A.M", "pm": "PM p.m P.M", "BC": "BCE",
    "AD": "CE", "east": "", "west": "", "north": "", "south": "", "left": "", "right": "",
    "km/h": "kmph kph", "mi/h": "mph", "m/s": "mps",
}  # fmt: skip
_MEASURE_OF = {
    form: symbol
    for symbol, names in _MEASURES.items()
    for name in (symbol, *names.split())
    for form in {name, name + "s"}
}


def is_unit(words: str) -> bool:
    """Decide whether words behind a value only say of what there are so many.

    >>> [is_unit(words) for words in ("cm", "miles per hour", "(apples)", "lakh", "or 6", "wrong")]
    [True, True, True, False, False, False]
    """
    words = words.strip(" ()[]")
    if len(words) > MAX_UNIT or words in ("k", "K", "M", "B", "T", "e2", "e3", "E2", "E3"):
        return False
    return bool(_UNIT.match(words)) and not CHANGES.search(words)


def without_units(text: str) -> str:
    r"""Drop the units behind the values of an answer; all else stays.

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
    value = bool(_VALUE.search(before)) and not _ENDS_IN_TEXT.search(before)
    return value and is_unit(_SPACE.sub(" ", unit[1]))


def without_symbol(text: str) -> str:
    """Drop the symbol of a unit behind a plain number, which may be one letter.

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


def measure_of(text: str) -> str | None:
    r"""Return the unit of measure that an answer names, by its symbol, or ``None``.

    >>> measure_of("5 km"), measure_of("70 miles per hour"), measure_of("9 cats")
    ('km', 'mi/h', None)
    """
    if len(text) > MAX_CHARACTERS:
        return None
    if re.match(r"^[-+]?\\?\$ ?\d[^$]*$", text):
        return "$"
    words = _IN_TEXT.sub(r" \1 ", _TEX_PER.sub("/", text)).rstrip()
    power = _POWER.search(words[-5:])
    words = words[: len(words) - len(power[0])].rstrip() if power else words
    before = words.rstrip(_UNIT_LETTERS)
    unit = words[len(before) :].removeprefix("pi" if before.endswith("\\") else "")
    parts = re.split(r" ?/ ?| per ", " ".join(unit.strip(" .").split()))
    symbols = [_MEASURE_OF.get(part.strip(" ."), "") for part in parts]
    raised = power[0].strip("^{}").translate({ord("²"): "2", ord("³"): "3"}) if power else ""
    return "/".join(symbols) + raised if all(symbols) else None


def only_number(text: str) -> str | None:
    """Return the one number of a sentence that has no other and does not waver, or ``None``.

    >>> only_number("Janet makes $18 every day"), only_number("She makes 18 or so, she says")
    ('18', None)
    """
    if (
        len(text) > MAX_CHARACTERS
        or _UNSURE.search(text)
        or len(re.findall(r"[A-Za-z]{2,}", text)) < 3
    ):
        return None
    numbers = re.findall(r"(?<![\w.])-?\$?\d[\d,]*(?:\.\d+)?(?![\w^/*+=%-])", text, re.ASCII)
    digits = re.findall(r"\d[\d,.]*", text)
    if len(numbers) != 1 or len(digits) != 1 or re.search(r"[\\^=+*/<>{}_]", text):
        return None
    return str(numbers[0]).replace("$", "").rstrip(",")
