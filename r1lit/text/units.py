r"""Units: the words after a value, what they change, and whether two of them are the same.

``5 cookies`` and ``5\text{ cm}`` are 5; ``5 million``, ``5 lakh``, ``5 or more`` and ``5 (wrong)``
are not. A unit must be words alone, and none of them a word that changes a value. Where two texts
both name a unit of measure, ``other_measure`` compares them: kind, prefix and power. Where only the
gold answer's is one that is known, the other must share a word with it.
"""

from __future__ import annotations

import re
from functools import lru_cache

NUMBER_WORDS = (
    r"zero|two|three|four|five|six|seven|eight|nine|tens?|eleven|twelve|\w+teen|twenty|thirty|forty"
    r"|fifty|sixty|seventy|eighty|ninety|hundreds?|thousands?|[a-z]+illions?|mi?ln|mio|bn|lakhs?"
    r"|lacs?|crores?|arabs?|kharabs?|myriads?|googols?|dozens?|gross|doubled?|tripled?|twice|thrice"
    r"|hal(?:f|ves)|thirds?|fourths?|quarters?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?"
    r"|hundredths?|thousandths?|percent(?:age)?|pct|squared|cubed|root|factorial|plus|minus"
    r"|over|divided|modulo|mod|pi|tau|infinity|inf|oo|sqrt|log|ln|sin|cos|tan|exp|th|st|nd|rd"
)
DOUBTS = (
    r"not|no|never|nor|neither|either|n['’]t|cannot|wrong|incorrect|false|untrue|invalid|impossible"
    r"|unlikely|unsure|unclear|unknown|maybe|perhaps|possibly|probably|might|may|could|guess"
    r"|approx\w*|about|around|roughly|nearly|almost|circa|least|most|under|above|below|between"
    r"|more|less|fewer|than|greater|smaller|up|down|if|unless|except|instead|versus|vs|other"
    r"|another|negative|remainder|rem|base|some\w*|any\w*|so|ish|score|off|but"
)
OTHER_VALUE = (
    r"opposite|invers\w+|invert\w*|reciprocals?|negat\w+|conjugates?|complement\w*|revers\w+"
    r"|backwards?|mirrored|flipped|swapped|successor|predecessor|hex|hexadecimal|binary|octal"
    r"|roman|per\s*mill?e?|permill?e|mille|promille|ppm|ppb|ppt|basis|bps"
)
CHANGES = re.compile(
    rf"\b(?:{NUMBER_WORDS}|{DOUBTS}|{OTHER_VALUE}|or|and|to|is|are|was)\b|n['’]t\b|[?!]"
    r"|[或不非半多余几约近零倍十百万亿错对]|千(?![米克瓦])"
    r"|[上下左右]{2}|[以之][上下内外]",
    re.IGNORECASE,
)
"""A word that makes another value of the number beside it, or doubts it."""
TIMES = re.compile(r"\btimes\b(?!\W*$|\s+(?:per|an?|each|every)\b)", re.IGNORECASE)
"""18 times a day are 18; 3 times 6 and twice as many are not 3."""
_UNIT = re.compile(r"^[\s(\[]*[^\W\d_][^\W\d_\s./*·-]*(?:[\s./*·-]+[^\W\d_]+|\^?[23²³])*[\s.)\]]*$")
MAX_UNIT = 60
MAX_CHARACTERS = 2000
"""Longest text that is read: no answer is longer, and some patterns here are quadratic."""

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
_PERCENT = re.compile(r"per\s?cent|pct|percentage", re.IGNORECASE)
_MARKED_VALUE = re.compile(r"^\$([^$]+)\$\s*([^\W\d_][^$\\]*(?:\$\^\{?[23]\}?\$)?)$")
_RAISED_UNIT = re.compile(r"\$\^\{?([23])\}?\$")
_MARKED_UNIT = re.compile(
    r"^([-+]?\d[\d.,]*\s*)\$(\s*\\(?:text|mathrm|mbox)\s*\{[^{}]*\}(?:\^\{?[23]\}?)?)\s*\$$"
)
_TEX_PERCENT = re.compile(
    r"(\d[\s}]*|^)(?:\s*\\(?:text|mathrm|mbox)\s*\{\s*(?:per\s?cent|pct)\s*\}|(?<=\d)\s+(?:per\s?cent|pct))\s*$",
    re.IGNORECASE,
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
    "ml": "毫升", "s": "sec secs 秒 秒钟", "%": "percent percentage pct 百分",
    "ly": "lightyear", "nmi": "nauticalmile", "AU": "astronomicalunit", "parsec": "",
    "furlong": "", "league": "", "fathom": "", "Å": "angstrom", "hectare": "ha", "quart": "qt",
    "pint": "", "cup": "", "tbsp": "tablespoon", "tsp": "teaspoon", "stone": "", "carat": "",
    "decade": "", "century": "centuries", "fortnight": "", "floz": "fluidounce", "bar": "",
    "atm": "atmosphere", "torr": "", "mmHg": "", "psi": "", "hp": "horsepower", "Btu": "BTU",
    "knot": "", "basispoint": "", "percentagepoint": "", "‰": "permille", "ppm": "",
    "gradian": "", "revolution": "", "arcminute": "", "arcsecond": "", "molecule": "", "atom": "",
    "dB": "decibel", "shortton": "", "longton": "", "troyounce": "", "Mb": "", "Gb": "", "Tb": "",
    "kB": "kb", "MB": "mb", "GB": "gb", "TB": "tb", "KiB": "kibibyte",
    "MiB": "mebibyte", "GiB": "gibibyte", "TiB": "tebibyte",
}  # fmt: skip
_METRIC = {
    "m": "meter metre", "g": "gram gramme", "s": "second", "l": "L liter litre", "N": "newton",
    "J": "joule", "W": "watt", "Pa": "pascal", "Hz": "hertz", "V": "volt", "A": "ampere amp",
    "Ω": "ohm", "mol": "mole", "B": "byte", "bit": "bit", "cal": "calorie", "eV": "electronvolt",
    "K": "kelvin",
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
_RATES = {
    "sqft": "ft^2",
    "sqm": "m^2",
    "cc": "cm^3",
    "mpg": "mi/gal",
    "mph": "mi/h",
    "mps": "m/s",
    "kmph": "km/h",
    "kph": "km/h",
    "kmh": "km/h",
    "fps": "ft/s",
}
_RATE = re.compile(rf"\b({'|'.join(_RATES)})\b")
_COMPOUND = re.compile(
    r"\b(light|nautical|astronomical|fluid|fl\.?|basis|percentage|short|long|troy)[\s-]+"
    r"(year|mile|unit|ounce|oz|point|ton)s?\b"
    r"|\b(per)[\s-]*(mille?)\b|\b(per)\s+(cent)\b|\bmetric (ton)s?\b",
    re.IGNORECASE,
)
_GENERIC = frozenset({
    "unit", "units", "square", "cubic", "sq", "cu", "total", "in", "altogether", "each",
    "exactly", "long", "wide", "tall", "high", "deep", "away", "old", "later", "ago", "apart",
    "left", "remaining", "on", "average",
})  # fmt: skip
"""Words after a value that name no unit."""
_LOOSE = frozenset({
    "$", "¢", "€", "£", "¥", "yuan", "yen", "rupee", "°", "°C", "°F", "rad", "penny", "nickel",
    "dime", "am", "pm", "BC", "AD", "east", "west", "north", "south", "left", "right", "%",
})  # fmt: skip
"""Units that are often left out or written in words of another kind."""
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
    return bool(_UNIT.match(words)) and not (CHANGES.search(words) or TIMES.search(words))


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
    found = _unit_behind(text)
    if found is None:
        return None
    tail, money = found
    powers = _powers(tail)
    if powers is None:
        return None
    if money and not powers.get("$"):
        powers[money] = 1
    if len(powers) > 1 and powers.get("°") == 1:
        del powers["°"]
    if powers.get("%") == 1:
        return "%"
    named = sorted((unit, power) for unit, power in powers.items() if power)
    return " ".join(u if p == 1 else f"{u}^{p}" for u, p in named) or None


def _unit_behind(text: str) -> tuple[str, str] | None:
    """Return the text after a value, in plain signs, and the money named before the value."""
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
    text = text.replace(r"\%", " percent ").replace("%", " percent ").replace("‰", " permille ")
    text = _COMPOUND.sub(lambda words: "".join(filter(None, words.groups())).lower(), text)
    text = text.translate({ord("²"): "^2", ord("³"): "^3"})
    text = _KIND_OF_DEGREE.sub(
        lambda kind: f"° {'°C' if kind[1] else '°F'}", _CIRCLE.sub("°", text)
    )
    text = _RAISED_NUMBER.sub(r"^\1", text).rstrip()
    start = len(text) - len(_TAIL.match(text[::-1])[0])  # type: ignore[index]
    tail = text[start:]
    if text[:start].endswith("\\"):  # of \pi cm
        tail = tail.lstrip("abcdefghijklmnopqrstuvwxyz")
    if not start or (not in_text and _LONE.search(tail) and _LONE.search(text[:start])):
        return None  # the letters are unknowns
    return tail.strip(" ()."), _MONEY[money[1] or money[2]] if money else ""


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
    >>> other_measure("5 light years", "5 km"), other_measure("5 km away", "5 km")
    (True, False)
    """
    one, other = measure_of(unmarked(text)), measure_of(unmarked(gold))
    if other is None or one == other:
        return False
    if one is None:
        return _is_cousin(unmarked(text), other)
    return frozenset((one, other)) not in _COMPATIBLE


def _is_cousin(text: str, measure: str) -> bool:
    """Decide whether words behind a value are a unit without any part of a measure: 5 laps, km."""
    units = {part.partition("^")[0] for part in measure.split()}
    found = _unit_behind(text)
    if found is None or units & _LOOSE:
        return False
    words = [word.strip(".-").lower() for word in re.findall(r"[^\s/·*()^\d]+", found[0])]
    if not any(len(word) > 1 and word not in _GENERIC for word in words) or not is_unit(found[0]):
        return False
    return not units & {_MEASURE_OF.get(word) for word in words}


def unmarked(text: str) -> str:
    r"""Take the dollar signs from a value with its unit: ``$5$ km``, ``5 $\text{km}$``.

    >>> unmarked("$28$ percent"), unmarked(r"5 $\text{km}$"), unmarked(r"28\text{ percent}")
    ('28\\%', '5 \\text{km}', '28\\%')
    >>> unmarked("$5$ or 6"), unmarked("$5$ million")
    ('$5$ or 6', '$5$ million')
    """
    if (found := _MARKED_VALUE.match(text)) and _PLAIN_VALUE.match(found[1]):
        unit = found[2].strip()
        if _PERCENT.fullmatch(unit) or is_unit(_RAISED_UNIT.sub(r"^\1", unit)):
            text = f"{found[1].strip()} " + _RAISED_UNIT.sub(r"^{\1}", unit)
    elif found := _MARKED_UNIT.match(text):
        text = found[1] + found[2]
    return _TEX_PERCENT.sub(lambda percent: percent[1] + r"\%", text)
