r"""Where a response to multiple choice commits to an option.

The last ``<answer>`` or ``\boxed{}`` outside thinking, else what follows the last ``the answer is``
or the last ``option C is correct``, else an answer part of one line, else the only line that is
labelled with a letter, if it is the last one, or the first one and no other letter follows.
"""

from __future__ import annotations

import re

from r1lit.text.extract import extract_final, json_answer, thinking_and_answer
from r1lit.text.notation import INVISIBLE
from r1lit.verifiers.exact import find_text
from r1lit.verifiers.last_expression import UNSURE

MAX_CHARACTERS = 2000
MAX_SENTENCE = 100
_JUDGED = r"\s+\(?([A-J])\)?\s+is\s+(?:the\s+)?"
_SAYS = re.compile(
    rf"(?:\b(?:answer|option|choice)\b(?!{_JUDGED}(?:correct|right|best|true|wrong|incorrect|false))"
    rf"(?:(?!{UNSURE})[^.\n]){{0,40}}?(?:\bis\b|\bbe\b|:)\s*:?"
    r"|【(?:正确)?答案】\s*[：:]?|(?:答案|选项)\s*(?:应该?)?\s*(?:是|为|选|：|:)+|(?:故|因此|所以|应)选\s*[：:]?)\s*\**\s*",
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    rf"\b(?:answer|option|choice){_JUDGED}(?:correct|right|best|true)\b(?!\s*(?:only\b|if\b|\?))",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    r"\n|[!?。！？；;]|[.](?=\s+[A-Z(\[【\u4e00-\u9fff]|\s*\*|\s*$)|【(?:解析|分析|详解|解答|点评)】"
)
_UNSURE = re.compile(UNSURE, re.IGNORECASE)
_LETTER = re.compile(r"(?<![\w'’])([B-HJ])(?![\w'’])|\(([A-J])\)")
_LABEL_LINE = re.compile(r"^[*_\s]*(?:\(?[A-J]\)?[.:]?[*_\s]*$|(?:\([A-J]\)|[A-J][.:)])\s)")
_ALSO = re.compile(
    r"(?<![\w'’])([A-J])\)?\s+(?:is|are|works|may be|might be|could be|would be)\s+"
    r"(?:also|too|equally|as well|possible|fine|correct|right|acceptable|true)\b"
    r"|(?:^|[.;!]\s+)(?:or|maybe|perhaps|possibly)\b[^.\n]*?(?<![\w'’])([A-J])(?![\w'’])",
    re.IGNORECASE | re.MULTILINE,
)


_RIGHT = (
    r"(?:(?:the\s+)?(?:correct|right|best|true)(?:\s+(?:answer|option|choice|one))?"
    r"|(?:the|my|our)\s+(?:final\s+)?(?:answer|choice))"
)
_SO = (
    r"^(?:(?:so|thus|hence|therefore|consequently|in conclusion|overall|finally)\b\s*,?\s*)?"
    r"(?:(?:i|we)\s*(?:(?:would|will|['’]d|['’]ll)\s*)?(?:choose|pick|select|go\s+with)\s+|it(?:\s+is|['’]s)\s+)?"
)
_DECLARED = re.compile(
    rf"{_SO}(?:(?:the|my|our)\s+)?(?:(?:correct|right|best|final)\s+)?(?:(?:answer|option|choice)\s*"
    rf"(?:is\s*)?[:：]?\s*)?[(\[]?([A-J])[)\]]?(?:,?\s+(?:is|as\s+it\s+is)\s+{_RIGHT})?$"
    r"|^(?:所以|因此|因而|故|综上所述|综上|总之|本题|此题|该题|正确|的|我|应该?|当)*[,，]?\s*"
    r"(?:【?(?:正确)?的?(?:答案|选项|选择)】?\s*(?:应该?|当)?(?:是|为|选择?)?\s*[：:]?\s*|应?选择?\s*[：:]?\s*)*"
    r"[(（]?([A-J])[)）]?\s*(?:选?项)?\s*(?:(?:是|为)?\s*(?:正确|对)\s*的?\s*(?:答案|选项)?)?$",
    re.IGNORECASE,
)
_BARE = re.compile(r"^[(\[]?[A-J][)\]]?$", re.IGNORECASE)
_CONFIRMS = re.compile(r"\bis\b.*(?:correct|right|best|true|answer|choice)|正确|对")


def declared_letter(sentence: str) -> str | None:
    """Return the letter of an option if a sentence declares that and nothing else, or ``None``.

    >>> declared_letter("Hence (A) is correct answer."), declared_letter("因此选项D正确。")
    ('A', 'D')
    >>> declared_letter("Option B is wrong"), declared_letter("本题不选D")
    (None, None)
    """
    if len(sentence) > MAX_SENTENCE:
        return None
    match = _DECLARED.match(" ".join(sentence.split()).strip(" *_.。．!！\"'"))
    return (match[1] or match[2]).upper() if match else None


def committing_text(response: str) -> str | None:
    r"""Return the text in which a response commits to an option, or ``None``.

    >>> committing_text("So the answer is (C)."), committing_text("Rome is far.\n\nC")
    ('C', 'C')
    >>> committing_text("The answer cannot be\nC or D") is None
    True
    """
    answer = extract_final(response)
    if answer is not None:
        return json_answer(answer) or answer
    _, text = thinking_and_answer(response)
    if "<answer>" in text or "\\boxed" in text:
        return None
    text = text.translate(INVISIBLE).strip()
    if (answer := json_answer(text)) is not None:
        return answer
    whole, text = len(text) <= MAX_CHARACTERS, text[-MAX_CHARACTERS:]
    sentences = [part.strip() for part in _SENTENCE.split(text) if part and part.strip(" *.")]
    asks = text.rstrip(" *\n").endswith(("?", "？"))
    if (
        sentences
        and not asks
        and not _BARE.match(sentences[-1])
        and (letter := declared_letter(sentences[-1]))
    ):
        confirmed = [s for s in sentences if _CONFIRMS.search(s[:MAX_SENTENCE])]
        if not _CONFIRMS.search(sentences[-1]):
            return letter
        return letter if {declared_letter(s) for s in confirmed} - {None} == {letter} else None
    declared, judged = list(_SAYS.finditer(text)), list(_IS_RIGHT.finditer(text))
    if judged and (not declared or judged[-1].start() > declared[-1].start()):
        return _judged_right(text, judged)
    if not declared:
        return find_text(response) or _labelled_line(text, whole)
    rest = text[declared[-1].end() :]
    end = _SENTENCE.search(rest)
    while end and end.start() < 3 and end[0] == ".":  # "B. Paris"
        end = _SENTENCE.search(rest, end.end())
    if end is None:
        return rest.strip(" *") or None
    sentence = rest[: end.start() + (end[0] in "?？")]
    if any((found[1] or found[2]) not in sentence for found in _ALSO.finditer(rest[end.start() :])):
        return None
    return sentence.strip(" *") or None


def _judged_right(text: str, judged: list[re.Match[str]]) -> str | None:
    """Return the one letter that is declared right, unless the sentence takes it back."""
    sentence = re.split(r"[.!?\n]", text[: judged[-1].start()])[-1]
    letters = {match[1].upper() for match in judged}
    return letters.pop() if len(letters) == 1 and not _UNSURE.search(sentence) else None


def _labelled_line(text: str, whole: bool) -> str | None:
    """Return the only line that is labelled, at the end or the beginning of a text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    labelled = [at for at, line in enumerate(lines) if _LABEL_LINE.match(line)]
    if len(labelled) != 1:
        return None
    line = lines[labelled[0]]
    if labelled[0] == len(lines) - 1:
        return line
    others = {found[1] or found[2] for found in _LETTER.finditer(" ".join(lines[1:]))}
    return line if labelled[0] == 0 and whole and all(o in line[:5] for o in others) else None
