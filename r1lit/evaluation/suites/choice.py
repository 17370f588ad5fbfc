r"""Multiple choice as the suites grade it: their own patterns, on what follows the thinking.

Another reading than ``r1lit.verifiers.ChoiceVerifier``, which training uses: these take the first
letter behind ``Answer:``, doubtful or not, as the published scores do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from r1lit.problems import LETTERS, Problem, Verdict
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.ifeval import judged_text

MAX_CHARACTERS = 100_000
"""More of an answer part is not read: patterns below take linear time, not no time."""


class LetterGrader(Verifier):
    """Right if the letter that ``letter`` reads from a response is the gold answer.

    A letter that is none of the problem's options is wrong, and so is no letter (``unparsed``).
    ``canonical`` is the letter, or the option's text where each response has an order of its own.
    """

    def letter(self, text: str, options: str) -> str | None:
        """Return the letter that an answer part commits to; ``options`` are the letters."""
        raise NotImplementedError

    def gold_text(self, problem: Problem) -> str:
        """Return the gold answer as the prompt requests it."""
        return f"Answer: {problem.answer}"

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        start = time.perf_counter()
        choices: Sequence[str] = problem.meta["choices"]
        options = LETTERS[: len(choices)]
        letter = self.letter(judged_text(response)[-MAX_CHARACTERS:], options)
        if letter is None:
            return conclude("unparsed", None, "no letter found", start)
        shuffled = "problem" in problem.meta and letter in options
        vote = choices[options.index(letter)] if shuffled else letter
        right = letter == problem.answer
        reason = "" if right else f"chose {letter}, not {problem.answer}"
        return conclude("right" if right else "wrong", vote, reason, start)


_FIRST_LINE = re.compile(r"(?i)Answer[ \t]*:[ \t]*\$?([A-D])\$?")
_MARKUP = ("**", "$\\boxed{", "}$", "\\$", "$\\text{", "$", "\\mathrm{", "\\{", "\\text", "\\(",
           "\\mathbf{", "{", "\\boxed")  # fmt: skip
_LETTERS = {
    **dict(zip("أبجد", "ABCD", strict=True)),
    **dict(zip("অবডঢ", "ABCD", strict=True)),
    **dict(zip("ＡＢＣＤ", "ABCD", strict=True)),
}
_SPELLINGS = (
    r"Answer\s*:", r"উত্তর\s*:", r"उत्तर\s*:", "উত্তরঃ", r"Antwort\s*:", r"답변\s*:",
    r"정답\s*:", r"답\s*:", r"答案\s*：", r"答案\s*:", r"答\s*：", r"答\s*:", r"答复\s*：",
    r"答曰\s*：", "الإجابة:", "الجواب:", "إجابة:", "الإجابة النهائية:",
    "الإجابة الصحيحة:", "الإجابة الصحيحة هي:", "الإجابة هي:",
    "الجواب النهائي:", r"Respuesta\s*:", r"Risposta\s*:", r"答え\s*:", r"答え\s*：",
    r"回答\s*:", r"回答\s*：", r"解答\s*:", r"Jawaban\s*:", r"Réponse\s*:", r"Resposta\s*:",
    r"Jibu\s*:", r"Idahun\s*:", r"Ìdáhùn\s*:", r"Idáhùn\s*:", r"Àmọ̀nà\s*:", r"Àdáhùn\s*:",
    r"Ànúgọ\s*:", r"Àṣàyàn\s*:",
)  # fmt: skip
_MULTILINGUAL = [
    re.compile(rf"(?i){spelling}[ \t]*([A-D]|[أ-د]|[{''.join(_LETTERS)}])")
    for spelling in _SPELLINGS
]


class AnswerLine(LetterGrader):
    r"""The letter behind the first ``Answer:``, as simple-evals reads GPQA.

    With ``multilingual`` as it reads MMLU: LaTeX and bold are removed, then some 40 languages'
    spellings are tried in turn.

    >>> AnswerLine().letter("So.\nAnswer: $B$", "ABCD")
    'B'
    >>> AnswerLine(multilingual=True).letter("**答案：Ｃ**", "ABCD")
    'C'
    """

    def __init__(self, multilingual: bool = False) -> None:
        self.multilingual = multilingual

    def letter(self, text: str, options: str) -> str | None:
        """Return the letter."""
        if not self.multilingual:
            match = _FIRST_LINE.search(text)
            return match[1].upper() if match else None
        for mark in _MARKUP:
            text = text.replace(mark, "")
        for pattern in _MULTILINGUAL:
            if match := pattern.search(text):
                return _LETTERS.get(match[1], match[1].upper())
        return None
