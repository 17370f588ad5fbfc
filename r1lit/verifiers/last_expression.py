r"""The expression that a response without ``<answer>`` and ``\boxed{}`` ends on.

It scores responses whose prompt specified no format. Training leaves it off: a policy that is
rewarded for it need not learn to commit to an answer.
"""

from __future__ import annotations

import re

from r1lit.text.extract import thinking_and_answer
from r1lit.text.notation import INVISIBLE

MAX_TAIL = 2000
_BROKEN = re.compile(r"\\boxed|\\fbox|<answer>|</answer>|<think>")
UNSURE = (
    r"\b(?:not|cannot|never|nor|neither|might|may|could|maybe|perhaps|possibly|probably)\b"
    r"|n['’]t\b|不是|不可能|可能"
)
"""Words between ``the answer`` and ``is`` or ``be`` that take it back."""
_SAYS = re.compile(
    rf"(?:\banswer\b(?:(?!{UNSURE})[^.\n]){{0,60}}?\b(?:is|be|equals)\b\s*:?"
    r"|\banswer\b\s*\**\s*:|\banswer\b\s*=(?=\s)"
    r"|(?:答案|结果)\s*(?:应该|应当)?\s*(?:(?:就?是|为|等于)\s*[：:=]?|[：:=])|^答\s*[：:]"
    r"|^#{4}(?=[ \t]*[-+$\\\d(.]))\s*\**\s*",
    re.IGNORECASE | re.MULTILINE,
)
_MATH = re.compile(  # a dollar sign before a digit or behind a space closes nothing: it is money
    r"\$\$(.+?)\$\$|(?<!\\)\$(?!\s)((?:\\.|[^$\\\n])*(?:\\.|[^$\\\s]))\$(?!\d)"
    r"|(?<!\\)\$[ \t]+((?:\\[A-Za-z]+|\\.|[A-Za-z](?![A-Za-z])|[^$\\A-Za-z\n])+?)[ \t]\$(?!\s*\d)"
    r"|\\\((.+?)\\\)|\\\[(.+?)\\\]",
    re.DOTALL,
)
_END = re.compile(r"\n|[.。!！?？;；](?=\s|\*|$)|。")
_NUMBER = re.compile(  # with the unit that is glued to it, and never a part of a number
    r"(?<![\w.:])[-−]?[$€£¥]?(?:\d+ (?=\d+/\d))?\d[\d,]*+(?>(?:\.\d+)?)(?>(?:/\d+)?)"
    r"(?>(?:%|[A-Za-z]{1,4}(?:/[a-z]{1,2})?)?)(?![\w^]|[.:]\d)",
    re.ASCII,
)
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")  # GSM8K's: $<<9*2=18>>18
_LISTS = re.compile(r"\s*(?:,\s*(?:and\b\s*)?|\band\b\s*|[、和])")
_TAKEN_BACK = re.compile(
    rf"(?:(?:{UNSURE})\s*(?:be|equal(?:\s+to)?|是|为)?|大[约概]是?|\bor|或者?)\s*[*$\\(\[]*$",
    re.IGNORECASE,
)
_COMES_BEFORE = re.compile(  # 3 + 5, 2^5 and minus 5 do not end on 5
    r"(?:[\d)\]}%$π]\s*[-−–+*×·÷/^x]|(?<![A-Za-z])[a-z]\s*[-−+*/^]|\d\s+(?:to(?:\s+the)?"
    r"|of(?:\s+the)?)"
    r"|\d\s+:|(?<![=])>|[√^<≤≥≠≈~∼≡∣|]|!=|\\(?:n?[lg]e?q?|neq?|approx|sim|equiv|mid)"
    r"|\b(?:sqrt|log|ln|sin|cos|tan)\s*\(?"
    r"|\b(?:minus|negative|plus|times|twice|half(?:\s+of)?|out\s+of|divided\s+by|root\s+of))"
    r"\s*[$(]*$",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\s*[+×÷]\s*[A-Za-z(]|\s+\*\s+[A-Za-z(]|\W{0,3}\b(?:hundred|thousand|[a-z]+illions?|dozen"
    r"|lakhs?|crores?|squared|cubed|factorial|and\s+a\s+(?:half|quarter|third))\b|[万亿千百]"
    r"|\W{0,3}\b(?:more|less|fewer|greater|larger|smaller|higher|lower|older|younger|taller"
    r"|shorter|longer)\s+than\b"
    r"|\W{0,3}\b(?:times\s+as|times\s+(?:more|less)|out\s+of|is\s+(?:wrong|not|incorrect"
    r"|impossible|false)|isn['’]t"
    r"|or\s+(?:so|more|less|fewer)|at\s+(?:most|least)|at\s+first|(?:does|do|did|can|could|would"
    r"|will)\s*(?:n['’]t|not)|cannot|fails|wrong"
    r"|if|unless|as\s+a\s+(?:guess|start|bound)|I\s+(?:think|guess|suppose|believe)|maybe|perhaps"
    r"|probably|possibly|roughly|approximately)\b"
    r"|\s*[<>≤≥≠≈]|\s*\.\.\.|\s*…",
    re.IGNORECASE,
)
_BOUNDS = re.compile(  # words that make the number behind them a bound, a part or a place
    r"\b(?:except(?:ing)?(?:\s+for)?|excluding|besides|but(?:\s+(?:not|for))?|other\s+than"
    r"|rather\s+than|instead\s+of|without"
    r"|(?:more|less|fewer|greater|larger|smaller|higher|lower|bigger|older|younger|taller|shorter"
    r"|longer|later|earlier)\s+than"
    r"|at\s+(?:least|most)|up\s+to|no\s+more\s+than|over|under|above|below|beyond|within|between"
    r"|from|before|after|until|till|since"
    r"|about|around|approximately|roughly|nearly|almost|some|circa|ca\.|close\s+to|near|or|nor"
    r"|exceed(?:s|ing)?|bounded\s+by|divisible\s+by|multiples?\s+of|mod(?:ulo)?|congruent\s+to"
    r"|differs?\s+from|different\s+from"
    r"|ends?\s+(?:in|with)|starts?\s+(?:at|with)|starting\s+(?:at|with|from)|begins?\s+(?:at|with)"
    r"|digits?|ruled?\s+out|exclude|reject|discard"
    r"|equations?|questions?|problems?|exercises?|lines?|pages?|cases?|figures?|tables?|chapters?"
    r"|sections?|parts?|examples?|options?|steps?(?!\s*\d*\s*:)"
    r"|if|unless|when|whether|suppose|supposing|assum(?:e|ing)|let|guess(?:es|ed)?|try|say"
    r"|unlikely|doubt|wrong(?:ly)?|incorrect(?:ly)?"
    r"|square\s+of|cube\s+of|power\s+of|factor(?:s|ial)?\s+of|per(?:cent)?\s+of|add(?:ing)?"
    r"|subtract(?:ing)?|multipl(?:y|ied|ying)(?:\s+by)?|divid(?:e|ing)(?:\s+by)?"
    r"|increase[sd]?\s+by|decrease[sd]?\s+by)"
    r"\s+(?:that\s+|the\s+|a\s+|an\s+|it(?:['’]s|\s+is)\s+|[a-z]\s*=\s*|number\s+|value\s+|by\s+"
    r"|only\s+|exactly\s+|even\s+|just\s+)*[*$\\(\[]*$"
    r"|\b(?:if|unless|whether|suppose|supposing|assum(?:e|ing)|except|excluding)\b[^.,;:]{0,40}$"
    r"|(?:除了|超过|至少|至多|大于|小于|不超过|不到|约|若|如果|假设)[^。，]{0,6}$",
    re.IGNORECASE,
)
_UNSAID = re.compile(  # before "the answer is"
    r"(?:(?:\b(?:not|never|cannot|hardly|nor)|n['’]t)\b(?:\s+(?:really|quite|think|believe|say"
    r"|know|see|mean|sure|certain|confident|convinced|clear"
    r"|true|likely|possible|imply|to|be|have|do|that|if|whether|why|how)){0,5}"
    r"|\b(?:if|whether|unless|suppose|supposing|assum(?:e|ed|ing)|doubt(?:s|ed)?|den(?:y|ies|ied)"
    r"|guess(?:ed)?|wonder(?:s|ed)?|unsure|unlikely|uncertain"
    r"|wrong|incorrect|false|mistaken|impossible|improbable|claims?|claimed|thought|thinks|says"
    r"|said|pretend)\b(?:\s+(?:if|whether|that|about|to|say)){0,3}"
    r"|如果|假设|是否|怀疑|不认为|若)\s*(?:the|my|our|your|his|her|its|this|an?)?\s*(?:\w+\s+)?$",
    re.IGNORECASE,
)
_TAIL = re.compile(
    rf"{UNSURE}|\b(?:if|unless|except|but|I\s+(?:think|guess|suppose|believe)|wrong|incorrect"
    rf"|roughly|approximately|or\s+so)\b",
    re.IGNORECASE,
)
_RETRACTS = re.compile(
    r"[.!?。！？\n]\s*(?:but\s+|oh\s*,?\s*)?(?:(?:no|not|nope|wait|hmm+|or|maybe|perhaps"
    r"|possibly|probably\s+not|never\s*mind|scratch\s+that"
    r"|correction|just\s+kidding|I\s+(?:am|['’]m)\s+(?:not|un)\s*sure|I\s*(?:am|['’]m|was"
    r"|made)\s+(?:wrong|mistaken|guessing|a\s+mistake)|I\s+(?:doubt|guess)"
    r"|(?:that|this|it|which)(?:\s+(?:answer|result|value))?\s*(?:is|was|['’]s|seems|looks|may"
    r"|might|could|can|does)\s*"
    r"(?:n['’]t|not|wrong|incorrect|false|impossible|a\s+guess|be\s+(?:wrong|off|incorrect"
    r"|false)))(?![\w'’])|不对|不是|等等|或者|也许)",
    re.IGNORECASE,
)
_OR = re.compile(r"\bor\b|或|\?|？", re.IGNORECASE)
_EQUALS = re.compile(r"(?<![<>=!:])=(?![=>])")


def last_expression(response: str) -> str | None:
    r"""Return the expression that the answer part of a response ends on, or ``None``.

    In this order: what follows the last ``the answer is``, in English or Chinese, or the last line
    ``#### …`` of GSM8K; the last ``$…$``;
    the last number of the last line, if that line does not waver (``or``, a question mark). What is
    taken back (``not 72``, ``might be 72``, ``$3$ or $4$``) is no answer, nor is a number
    cut out of an expression (``3 + 72``, ``72 million``). A response that began
    ``<answer>`` or ``\boxed{`` and did not finish it has none.

    >>> last_expression("She sold 48 + 24 clips. The answer is 72.")
    '72'
    >>> last_expression(r"Hence $x = 3$, and so $x + 1 = 4$")
    '4'
    >>> last_expression("So 3 or 4"), last_expression(r"so \boxed{4")
    (None, None)
    """
    _, text = thinking_and_answer(response)
    text = _CALCULATOR.sub("", text.translate(INVISIBLE)).strip()
    if _BROKEN.search(text):
        return None
    text = text[-MAX_TAIL:]
    stated = _statement(text)
    if stated is not None:
        return None if _is_doubted(text, stated) else _to_sentence_end(text[stated.end() :])
    formulas = list(_MATH.finditer(text))
    if formulas:
        run = _run(formulas, text)
        if _taken_back(text[formulas[-1].end() :]) or _part_of_more(text, run):
            return None
        inside = [next(filter(None, formula.groups())) for formula in run]
        listed = not any(map(_EQUALS.search, inside))  # x = 3 and x + 1 = 4 is a derivation
        return ", ".join(inside) if listed and len(run) > 1 else _right_side(inside[-1])
    last_line = text.rpartition("\n")[2]
    numbers = list(_NUMBER.finditer(last_line))
    if not numbers or _OR.search(last_line):
        return None
    run = _run(numbers, last_line)
    if _part_of_more(last_line, run) or _taken_back(last_line[run[-1].end() :]):
        return None
    ends = not last_line[run[-1].end() :].strip(" .。．*)]")  # not "he pays $67, $72 in all"
    return ", ".join(number[0].rstrip(",") for number in (run if ends else run[-1:]))


def _part_of_more(text: str, run: list[re.Match[str]]) -> bool:
    """Decide whether what was found is taken back, or cut out of an expression: 3 + 5, 5 million.

    Only the 60 characters before and behind it are looked at.
    """
    start, end = run[0].start(), run[-1].end()
    before, behind = text[max(0, start - 60) : start], text[end : end + 60]
    said = [pattern.search(before) for pattern in (_TAKEN_BACK, _COMES_BEFORE, _BOUNDS)]
    return any((*said, _GOES_ON.match(behind)))


def _taken_back(behind: str) -> bool:
    """Decide whether the rest of the sentence doubts, or a later one takes the answer back."""
    end = _END.search(behind)
    sentence = behind[: end.end() if end else None]
    return bool(_OR.search(sentence) or _TAIL.search(sentence) or _RETRACTS.search(behind))


def _run(found: list[re.Match[str]], text: str) -> list[re.Match[str]]:
    """Return the last of what was found, with those before it in one list: ``3, 4 and 5``."""
    first = len(found) - 1
    while first and _LISTS.fullmatch(
        text[found[first - 1].start() + len(found[first - 1][0].rstrip(",")) : found[first].start()]
    ):
        first -= 1
    return found[first:]


def stated_answer(text: str) -> str | None:
    """Return the last ``the answer is …`` of a text, from there to the end of its sentence.

    Where that is doubted, denied or taken back (``I doubt that the answer is 5``), it is the whole
    sentence, which is no answer.

    >>> stated_answer("So the answer is 5 or 6. Done"), stated_answer("no such words")
    ('5 or 6', None)
    """
    text = text[-MAX_TAIL:]
    said = _statement(text)
    if said is None:
        return None
    doubted = _is_doubted(text, said)
    return text[_sentence_start(text, said) :] if doubted else _to_sentence_end(text[said.end() :])


def _statement(text: str) -> re.Match[str] | None:
    return next(reversed(list(_SAYS.finditer(text))), None)


def _sentence_start(text: str, said: re.Match[str]) -> int:
    ends = [end.end() for end in _END.finditer(text, 0, said.start())]
    return ends[-1] if ends else 0


def _is_doubted(text: str, said: re.Match[str]) -> bool:
    """Decide whether a statement is doubted by the words before it, or taken back behind it."""
    before = text[max(_sentence_start(text, said), said.start() - 80) : said.start()]
    return bool(_UNSAID.search(before) or _RETRACTS.search(text[said.end() :]))


def _to_sentence_end(rest: str) -> str | None:
    formula = _MATH.match(rest)
    if formula and not _taken_back(rest[formula.end() :]):
        return _right_side(next(filter(None, formula.groups())))
    end = _END.search(rest)
    stop = None if end is None else end.start() + (end[0] in "?？")
    return rest[:stop].strip(" *") or None


def _right_side(formula: str) -> str:
    r"""Take ``4`` of ``x + 1 = 4``; text with aligned lines or several equations stays whole."""
    parts = _EQUALS.split(formula)
    if parts[-1].strip() == "0" and re.search(r"[A-Za-z].*[-+]|[-+].*[A-Za-z]", parts[0]):
        return formula.strip()  # the equation of a line, not its right side
    return parts[-1].strip() if len(parts) > 1 and "," not in formula else formula.strip()
