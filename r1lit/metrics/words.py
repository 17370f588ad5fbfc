r"""The words of a text by script, without what belongs to no language.

Left out are fenced code, inline code, formulas in LaTeX, names of LaTeX commands, URLs, mail
addresses, tags, numbers, and names with a digit or an underscore in them (``x1``, ``max_len``). An
opening mark that is never closed opens nothing, so a text cannot hide behind one. Every function
here takes time linear in the text.

A word follows the default word boundaries of Unicode (UAX #29) where they are defined. It is a run
of letters in scripts that put spaces between words, one Han character, one Hiragana character, or a
run of Katakana. Thai, Lao, Khmer and Burmese put no spaces: there it is a letter with its marks.
"""

from __future__ import annotations

import re
from collections import Counter

import regex

SPACED = (
    "Latin",
    "Cyrillic",
    "Greek",
    "Arabic",
    "Hebrew",
    "Devanagari",
    "Bengali",
    "Gurmukhi",
    "Gujarati",
    "Tamil",
    "Telugu",
    "Kannada",
    "Malayalam",
    "Sinhala",
    "Armenian",
    "Georgian",
    "Ethiopic",
    "Hangul",
)
"""Scripts in which a word is a run of letters."""

UNSPACED = ("Han", "Hiragana", "Thai", "Lao", "Khmer", "Myanmar")
"""Scripts in which a letter with its marks counts as a word."""

SCRIPTS = (*SPACED, *UNSPACED, "Katakana", "Other")
"""Every script that words are counted for; ``Other`` is all the rest."""

_LONGEST_ACRONYM = 5
_FUNCTIONS = re.compile(
    r"sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|log|ln|lg|lim|exp|sqrt|abs|max"
    r"|min|mod|gcd|lcm|det|dim|arg|inf|sup|deg|cm|mm|km|kg|mg|ml"
)
_CLOSERS = {"```": "```", "~~~": "~~~", "`": "`", "$$": "$$", "$": "$", r"\[": r"\]", r"\(": r"\)"}
_ENVIRONMENTS = (
    "align|alignat|aligned|array|bmatrix|cases|displaymath|eqnarray|equation|gather|gathered|math"
    "|matrix|multline|pmatrix|split|tabular|vmatrix"
)
_OPENER = re.compile(
    r"```|~~~|`|\\\$|\$\$|\$|\\\\|\\\[|\\\(|\\begin\{(?:" + _ENVIRONMENTS + r")\*?\}"
)
_NO_WORD = {
    "\\": re.compile(r"\\[A-Za-z]++"),
    "<": re.compile(r"</?[A-Za-z][^<>\n]{0,80}+>"),
    ".": re.compile(r"(?<!\w)(?:https?://|www\.)\S++"),
    "@": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}+@[\w.-]++"),
    "": re.compile(r"(?<![A-Za-z0-9_])[A-Za-z]*+[0-9][A-Za-z0-9]*+"),
    "_": re.compile(r"(?<![A-Za-z0-9_])[A-Za-z]++(?>(?:_[A-Za-z0-9]++)+)"),
}
"""Patterns of text in no language, by a character that they must contain; in this order."""

_ASCII_WORD = re.compile(r"[A-Za-z]++(?>(?:'[A-Za-z]++)*)")
_NOT_LATIN = regex.compile(r"[\p{L}--\p{Script=Latin}]", regex.V1)
_PATTERNS = {s: rf"[\p{{Script={s}}}--\p{{M}}][\p{{Script={s}}}\p{{M}}'’]*+" for s in SPACED}
_PATTERNS |= {s: rf"[\p{{Script={s}}}--\p{{M}}]\p{{M}}*+" for s in UNSPACED}
_PATTERNS["Katakana"] = r"\p{Katakana}[\p{Katakana}\u30fc\uff70]*+"
_PATTERNS["Other"] = r"\p{L}[\p{L}\p{M}]*+"
_LATIN_WORD = regex.compile(_PATTERNS["Latin"], regex.V1)
_WORD = regex.compile("|".join(f"(?P<{s}>{p})" for s, p in _PATTERNS.items()), regex.V1)


def prose(text: str) -> str:
    r"""Return ``text`` with a space in place of code, formulas and what else is in no language.

    A dollar sign opens a formula by pandoc's rule: no space after it, none before the closing
    one, no digit after that. So prices stay apart from formulas.

    >>> prose("We pay $5 or $6; then $x + y$ is `len(a)`, see https://a.org/b").split()
    ['We', 'pay', '$', 'or', '$', ';', 'then', 'is', ',', 'see']
    """
    kept: list[str] = []
    start = at = 0
    last = {closer: text.rfind(closer) for closer in _CLOSERS.values()}
    while opener := _OPENER.search(text, at):
        at = opener.end()
        end = _closed(text, opener.group(), at, last)
        if end is not None:
            kept.append(text[start : opener.start()])
            start = at = end
    kept.append(text[start:])
    text = " ".join(kept)
    for character, pattern in _NO_WORD.items():
        if character in text:
            text = pattern.sub(" ", text)
    return text


def _closed(text: str, opener: str, at: int, last: dict[str, int]) -> int | None:
    """Return where what ``opener`` opened before ``at`` ends, or ``None``."""
    if opener in (r"\$", r"\\"):
        return None
    closer = _CLOSERS.get(opener) or opener.replace("begin", "end")
    if closer not in last:
        last[closer] = text.rfind(closer)
    if last[closer] < at:
        return None
    end = text.index(closer, at)
    if opener in ("`", "$") and (end == at or "\n\n" in text[at:end]):
        return None
    if opener == "$":
        behind = text[end + 1 : end + 2]
        if text[at].isspace() or text[end - 1].isspace() or behind.isdigit():
            return None
    return end + len(closer)


def count_words(text: str, symbols_are_words: bool) -> Counter[str]:
    """Count the words of ``text`` by script; ``text`` should be ``prose``.

    One letter of Greek that stands alone is a symbol and no word. Unless ``symbols_are_words``,
    neither is one letter of Latin, an acronym (up to five capitals), or the name of a function or
    unit (``sin``, ``cm``), which writers of every language use as they are.

    >>> sorted(count_words("mistakenly认为 more", symbols_are_words=True).items())
    [('Han', 2), ('Latin', 2)]
    """
    if not _NOT_LATIN.search(text):
        words = (_ASCII_WORD if text.isascii() else _LATIN_WORD).findall(text)
        num_words = len(words) if symbols_are_words else sum(not _is_symbol(w) for w in words)
        return Counter({"Latin": num_words} if num_words else {})
    counts: Counter[str] = Counter()
    for match in _WORD.finditer(text):
        script = match.lastgroup
        assert script is not None
        if script == "Greek" and len(match.group()) == 1:
            script = "symbol"
        elif script == "Latin" and not symbols_are_words and _is_symbol(match.group()):
            continue
        counts[script] += 1
    num_symbols = counts.pop("symbol", 0)
    if counts["Greek"] > num_symbols:  # a Greek text: its words of one letter are words
        counts["Greek"] += num_symbols
    return +counts


def _is_symbol(word: str) -> bool:
    if len(word) == 1 or _FUNCTIONS.fullmatch(word):
        return True
    return len(word) <= _LONGEST_ACRONYM and word.isupper()


_PIECE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+|[^\w\s]")


def repeated_share(text: str, n: int) -> float:
    """Return 1 - (unique n-grams / n-grams) of ``text``, 0 where it has none.

    Words, single Han and kana characters, and punctuation marks are the grams, in lower case.

    >>> repeated_share("a b a b a b", 2)
    0.6
    """
    pieces = _PIECE.findall(text.lower())
    num_grams = len(pieces) - n + 1
    if num_grams < 1:
        return 0.0
    unique = len(set(zip(*(pieces[i:] for i in range(n)), strict=False)))
    return 1.0 - unique / num_grams
