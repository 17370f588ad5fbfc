r"""Multiple choice as the suites grade it: their own patterns, on what follows the thinking.

Another reading than ``r1lit.verifiers.ChoiceVerifier``, which training uses: these take the first
letter after ``Answer:``, doubtful or not, as the published scores do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r1lit.data import ChoiceTable
from r1lit.data.tables import SUFFIXES, Row, Table, columns_of, read_rows
from r1lit.errors import check_at_least
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
        choices: Sequence[str] = problem.meta["choices"]
        options = LETTERS[: len(choices)]
        letter = self.letter(judged_text(response)[-MAX_CHARACTERS:], options)
        if letter is None:
            return conclude("unparsed", None, "no letter found")
        shuffled = "problem" in problem.meta and letter in options
        vote = choices[options.index(letter)] if shuffled else letter
        right = letter == problem.answer
        reason = "" if right else f"chose {letter}, not {problem.answer}"
        return conclude("right" if right else "wrong", vote, reason)


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
    r"""The letter after the first ``Answer:``, as simple-evals reads GPQA.

    As there, the letter counts as it is written: ``Answer: b`` is found, and is not B.

    Args:
        multilingual: read it as simple-evals reads MMLU. LaTeX and bold are removed, then some 40
            languages' spellings are tried in turn.
        last_line: read the last line alone, as the paper's Table 18 does.

    >>> AnswerLine().letter("So.\nAnswer: $B$", "ABCD")
    'B'
    >>> AnswerLine(multilingual=True, last_line=True).letter("Answer: A\n**答案：Ｃ**", "ABCD")
    'C'
    """

    def __init__(self, multilingual: bool = False, last_line: bool = False) -> None:
        self.multilingual = multilingual
        self.last_line = last_line

    def letter(self, text: str, options: str) -> str | None:
        """Return the letter."""
        text = last_line(text) if self.last_line else text
        if not self.multilingual:
            match = _FIRST_LINE.search(text)
            return match[1] if match else None
        for mark in _MARKUP:
            text = text.replace(mark, "")
        for pattern in _MULTILINGUAL:
            if match := pattern.search(text):
                return _LETTERS.get(match[1], match[1])
        return None


def last_line(text: str) -> str:
    """Return the last line that holds more than blanks, without those around it."""
    return text.rstrip().rpartition("\n")[2].strip()


_IS = re.compile(r"answer is \(?([A-J])\)?")
_COLON = re.compile(r"[aA]nswer:\s*([A-J])")
_ALONE = re.compile(r"\b[A-J]\b")


class AnswerIs(LetterGrader):
    r"""The letter of ``the answer is (X)``, else of ``Answer: X``, else the last alone: MMLU-Pro.

    >>> [AnswerIs().letter(t, "ABCD") for t in ("the answer is (C).", "Answer: D", "B, no: A", "?")]
    ['C', 'D', 'A', None]
    """

    def letter(self, text: str, options: str) -> str | None:
        """Return the letter."""
        if match := _IS.search(text):
            return match[1]
        found = list(_COLON.finditer(text))
        if found:  # the last of the first line that has one
            end = text.find("\n", found[0].start())
            return [m[1] for m in found if end < 0 or m.start() < end][-1]
        alone = _ALONE.findall(text)
        return alone[-1] if alone else None


class JSONChoice(LetterGrader):
    r"""The ``answer`` of the first JSON object, as ZeroEval reads MMLU-Redux.

    >>> grader = JSONChoice()
    >>> grader.letter('So:\n```json\n{"reasoning": "a {b}", "answer": "C"}\n```', "ABCD")
    'C'
    >>> grader.letter('{"answer": "(B) Paris"', "ABCD"), grader.letter("C", "ABCD")
    ('B', None)
    """

    _QUOTED = re.compile(r'"answer"\s*:\s*"([^"]*?)"')
    _UNQUOTED = re.compile(r'"answer"\s*:\s*([^,\s}]+)')

    def gold_text(self, problem: Problem) -> str:
        """Return the gold answer as JSON."""
        return json.dumps({"answer": problem.answer})

    def letter(self, text: str, options: str) -> str | None:
        """Return the letter; one of several texts ``X)`` counts where it is the only one."""
        answer = self._answer(text)
        if answer is None:
            return None
        if answer in options:
            return answer or None
        named = [option for option in options if f"{option})" in answer]
        return named[0] if len(named) == 1 else answer[:1] or None

    def _answer(self, text: str) -> str | None:
        try:
            found = json.loads(_first_object(text).replace("\n", ""))
            return str(found["answer"]).strip()
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        match = self._QUOTED.search(text) or self._UNQUOTED.search(text)
        return match[1].strip() if match else None


def _first_object(text: str) -> str:
    """Return the text from the first brace to the one that closes it, by counting."""
    start, depth = text.find("{"), 0
    for at in range(max(start, 0), len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if start >= 0 and depth == 0:
            return text[start : at + 1]
    return ""


_CHINESE = [
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^选([A-D])", r"^选项([A-D])", r"答案是\s?选?项?\s?([A-D])", r"答案为\s?选?项?\s?([A-D])",
        r"答案应为\s?选?项?\s?([A-D])", r"答案选\s?选?项?\s?([A-D])", r"答案是:\s?选?项?\s?([A-D])",
        r"答案应该是:\s?选?项?\s?([A-D])", r"正确的一项是\s?([A-D])", r"答案为:\s?选?项?\s?([A-D])",
        r"答案应为:\s?选?项?\s?([A-D])", r"答案:\s?选?项?\s?([A-D])",
        r"答案是：\s?选?项?\s?([A-D])", r"答案应该是：\s?选?项?\s?([A-D])",
        r"答案为：\s?选?项?\s?([A-D])",
        r"答案应为：\s?选?项?\s?([A-D])", r"答案：\s?选?项?\s?([A-D])",
    )
]  # fmt: skip


class ChineseChoice(LetterGrader):
    """The letter that a response begins with, else the last finding of the first phrase that hits.

    C-Eval's patterns for zero-shot answers.

    >>> grader = ChineseChoice()
    >>> [grader.letter(t, "ABCD") for t in ("B。因为", "因此，答案是选项 C。", "我不知道")]
    ['B', 'C', None]
    """

    def gold_text(self, problem: Problem) -> str:
        """Return the letter alone."""
        return problem.answer

    def letter(self, text: str, options: str) -> str | None:
        """Return the letter."""
        text = text.strip()
        if text[:1] in tuple(options):
            return text[0]
        for pattern in _CHINESE:
            if found := pattern.findall(text):
                return found[-1]
        return None


class ChineseLastLine(ChineseChoice):
    r"""The letter of the last line, as the paper's Table 28 reads C-Eval.

    It is the one that C-Eval's patterns find there, else the only capital letter that stands alone.

    >>> grader = ChineseLastLine()
    >>> [grader.letter(t, "ABCD") for t in ("A不对。\n答案是B", "选A。\n就是它", "所以 **D**。")]
    ['B', None, 'D']
    """

    def letter(self, text: str, options: str) -> str | None:
        """Return the letter."""
        line = last_line(text)
        if found := super().letter(line, options):
            return found
        alone = set(re.findall(r"(?<![A-Za-z])[A-D](?![A-Za-z])", line))
        return alone.pop() if len(alone) == 1 else None


@dataclass(frozen=True, kw_only=True)
class SubjectTable(Table):
    """A table that the Hub has in parts: ``subjects`` names them, and is their column ``subject``.

    A local file holds all of them and that column.
    """

    subjects: Mapping[str, str]

    def find(
        self, columns: Mapping[str, Sequence[str]]
    ) -> tuple[list[tuple[int, Row]], dict[str, str]]:
        """Return the rows of all subjects, the first ``limit`` of each; see ``Table``."""
        if self.path.endswith(SUFFIXES):
            return super().find(columns)
        rows = [
            {**row, "subject": subject}
            for name, subject in self.subjects.items()
            for row in read_rows(self.path, name, self.split)[: self.limit]
        ]
        found = {key: names[0] for key, names in columns.items()}
        numbered = list(enumerate(rows))
        self.check_columns(found, columns_of(numbered))
        return numbered, found


class SubjectChoices(ChoiceTable):
    """Multiple choice from a data set in parts, one a subject, whose name the wording holds."""

    def __init__(
        self, path: str, subjects: Mapping[str, str], limit: int | None = None, **options: Any
    ) -> None:
        super().__init__(path, **options)
        split = self.table.split
        self.table = SubjectTable(path=path, split=split, limit=limit, subjects=subjects)


class CEval(SubjectChoices):
    """C-Eval (arXiv 2305.08322) as the paper's Table 28 prints it: after a solved question.

    The solved ones are the first of the same subject in the data set's split dev; of a local file,
    in the file ``<name>_dev`` beside it. They follow the wording's first paragraph.

    Args:
        num_shots: solved questions; the paper's table shows one, its D.1 says none.
        **options: of ``SubjectChoices``.
    """

    def __init__(self, path: str, num_shots: int = 1, **options: Any) -> None:
        check_at_least("num_shots", num_shots, 0)
        super().__init__(path, **options)
        self.num_shots = num_shots
        local = path.endswith(SUFFIXES)
        stem, dot, suffix = Path(path).name.partition(".")
        self.shots = replace(
            self.table,
            path=str(Path(path).with_name(f"{stem}_dev{dot}{suffix}")) if local else path,
            split="dev",
            limit=None if local else num_shots,
        )

    def problems(self) -> list[Problem]:
        """Return every problem in the table's order.

        Raises:
            ValueError: naming the file of solved questions, or the subject that it lacks.
        """
        self._solved: dict[str, list[str]] = {}
        columns = {"question": self.question, "answer": self.answer, "subject": "subject"}
        for _, row in self.shots.rows(columns) if self.num_shots else ():
            lines = (f"{letter}. {row[letter]}" for letter in self.choices)
            text = "\n".join(
                (str(row[self.question]).strip(), *lines, f"答案： {row[self.answer]}")
            )
            self._solved.setdefault(row["subject"], []).append(text)
        return super().problems()

    def _problem(self, row: Row, n: int, order: int) -> Problem:
        problem = super()._problem(row, n, order)
        shown = self._solved.get(row["subject"], [])[: self.num_shots]
        if len(shown) < self.num_shots:
            raise ValueError(
                f"num_shots: {self.shots.path} has {len(shown)} solved questions of"
                f" {row['subject']!r}, not {self.num_shots}"
            )
        head, blank, rest = problem.question.partition("\n\n")
        return replace(problem, question=blank.join((head, *shown, rest)))


class MMLURedux(ChoiceTable):
    """MMLU-Redux (arXiv 2406.04127) as ZeroEval prepares it: sound questions alone.

    Kept are rows of ``error_type`` ok, and those of a wrong gold answer whose ``correct_answer`` is
    a letter or an index.
    """

    def is_kept(self, row: Row) -> bool:
        """Decide by the annotation."""
        return row.get("error_type") == "ok" or (
            row.get("error_type") == "wrong_groundtruth" and _place(row) is not None
        )

    def lettered(self, row: Row, n: int) -> tuple[list[str], str]:
        """Return the choices, and the letter that the annotation gives."""
        wrong = row.get("error_type") == "wrong_groundtruth"
        return super().lettered({**row, "answer": _place(row)} if wrong else row, n)


def _place(row: Row) -> int | None:
    """Return the place of the corrected answer, if the annotation is one."""
    answer = str(row.get("correct_answer") or "").strip().strip("().")
    if len(answer) != 1:
        return None
    place = LETTERS.find(answer.upper()) if answer.isalpha() else "0123".find(answer)
    return place if 0 <= place < len(row["choices"]) else None
