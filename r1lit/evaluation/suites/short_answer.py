r"""Short answers as the suites grade them: DROP's F1, MGSM's integers."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r1lit.data import ProblemSource
from r1lit.data.problem_tables import row_uid
from r1lit.data.tables import Table
from r1lit.problems import Problem, Verdict
from r1lit.seeding import generator
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.ifeval import judged_text

ANSWER = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")
MAX_CHARACTERS = 20_000

DROP_INTRODUCTION = (
    "You will be asked to read a passage and answer a question. Some examples of passages and Q&A"
    " are provided below.\n\n# Examples"
)
DROP_TASK = (
    '\n\nThink step by step, then write a line of the form "Answer: $ANSWER" at the end of your'
    " response.\n                    "
)
"""simple-evals' ``drop_eval.py``, with the blanks in which its text ends."""


class Drop(ProblemSource):
    """DROP (arXiv 1903.00161), each question after three solved ones of the training file.

    Args:
        path: a file with ``context``, ``completion`` and ``ref_text`` (golds separated by a bar).
        shots: the file that solved questions are sampled from, by ``seed`` and row; a question of
            the same passage is never shown. The questions themselves if left out.
        num_shots: how many.
        seed: of the sample.
        limit: problems read; null reads all.
    """

    def __init__(
        self,
        path: str,
        shots: str | None = None,
        num_shots: int = 3,
        seed: int = 42,
        limit: int | None = None,
    ) -> None:
        self.table = Table(path=path, limit=limit)
        self.shots = Table(path=shots or path)
        self.num_shots = num_shots
        self.seed = seed

    def problems(self) -> list[Problem]:
        """Return every question that has a gold answer."""
        columns = {key: key for key in ("context", "completion", "ref_text")}
        shots = [row for _, row in self.shots.rows(columns)]
        return [
            self._problem(row, n, shots)
            for n, row in self.table.rows(columns)
            if row["ref_text"].strip(" |")
        ]

    def _problem(self, row: dict[str, Any], n: int, shots: list[dict[str, Any]]) -> Problem:
        random = generator(self.seed, "drop", n)
        shown: dict[int, str] = {}
        for _ in range(100 * self.num_shots):
            if len(shown) == self.num_shots:
                break
            i = int(random.integers(len(shots)))
            if _passage(shots[i]) != _passage(row):
                shown[i] = f"\n---\n{shots[i]['context']} {shots[i]['completion']}\n"
        else:
            raise ValueError(
                f"shots: {self.shots.path} has too few questions about other passages for"
                f" num_shots: {self.num_shots}"
            )
        task = f"\n# Your Task\n\n---\n{row['context']} {DROP_TASK}"
        return Problem(
            uid=row_uid(self.table, n, row["context"], row["ref_text"]),
            question=DROP_INTRODUCTION + "".join(shown.values()) + task,
            answer=row["ref_text"],
            source="drop",
        )


def _passage(row: dict[str, Any]) -> str:
    return row["context"].rpartition("\nQuestion:")[0]


class DropGrader(Verifier):
    """The F1 of DROP; right if it is 1. The answer follows ``Answer:``, else all of it counts."""

    def gold_text(self, problem: Problem) -> str:
        """Return the first gold answer in its line."""
        return f"Answer: {problem.answer.split('|')[0]}\n"

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        text = judged_text(response)[-MAX_CHARACTERS:]
        match = ANSWER.search(text)
        answer = (match[1] if match else text).strip()
        if not answer:
            return conclude("unparsed", None, "nothing outside thinking")
        golds = [gold for gold in problem.answer.split("|") if gold.strip()]
        value = max(drop_f1(answer, gold) for gold in golds)
        right = value == 1.0
        reason = "" if right else f"F1 {value:.2f}: {answer[:60]!r}"
        return Verdict(
            value=value,
            status="right" if right else "wrong",
            canonical=" ".join(sorted(_bag(answer))),
            reason=reason,
        )


def drop_f1(predicted: str, gold: str) -> float:
    """Return the F1 of two answers' words, from 0 to 1, rounded to four digits as published.

    It is 0 where the gold answer has numbers of which the predicted one has none.

    >>> drop_f1("the 3 touchdowns", "3 touchdowns"), drop_f1("4 touchdowns", "3 touchdowns")
    (1.0, 0.0)
    >>> drop_f1("John Smith", "Smith")
    0.6667
    """
    words, wanted = _bag(predicted), _bag(gold)
    numbers = {word for word in wanted if _is_number(word)}
    if numbers and not numbers & words:
        return 0.0
    shared = len(words & wanted)
    precision = shared / len(words) if words else 1.0
    recall = shared / len(wanted) if wanted else 1.0
    return round(2 * precision * recall / (precision + recall), 4) if precision + recall else 0.0


def _bag(text: str) -> set[str]:
    """Return the words of a span: lower case, no punctuation outside numbers, no articles."""
    words = (_word(part) for part in re.split(" |-", text.lower()))
    return {word for part in words for word in part.split()}


def _word(text: str) -> str:
    if not _is_number(text):
        text = "".join(c for c in text if c not in string.punctuation)
    text = str(float(text)) if _is_number(text) else text
    return re.sub(r"\b(a|an|the)\b", " ", text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class MGSM(ProblemSource):
    """MGSM (arXiv 2210.03057), grade-school problems in eleven languages, each in its own prompt.

    Args:
        path: a file ``mgsm_<language>.tsv`` (question, tab, answer), the others beside it, or a
            data set on the Hub with a part a language.
        prompts: by language, the word before the answer and the prompt, with {input} in it.
        limit: problems read of each language; null reads all.
    """

    def __init__(
        self, path: str, prompts: Mapping[str, Sequence[str]], limit: int | None = None
    ) -> None:
        self.path = path
        self.prompts = dict(prompts)
        self.limit = limit

    def problems(self) -> list[Problem]:
        """Return the problems, language by language; languages without a file are left out."""
        return [
            Problem(
                uid=f"mgsm-{language}-{n}",
                question=prompt.replace("{input}", question),
                answer=answer,
                source=f"mgsm_{language}",
                meta={"language": language, "prefix": prefix},
            )
            for language, (prefix, prompt) in self.prompts.items()
            for n, (question, answer) in enumerate(self._rows(language)[: self.limit])
        ]

    def _rows(self, language: str) -> list[tuple[str, str]]:
        if not self.path.endswith(".tsv"):
            table = Table(path=self.path, name=language, split="test")
            columns = {key: key for key in ("question", "answer_number")}
            return [
                (row["question"], table.text_or_number(row, n, "answer", "answer_number"))
                for n, row in table.rows(columns)
            ]
        path = Path(self.path).expanduser()
        path = path.with_name(f"{path.stem[:-2]}{language}.tsv")
        if not path.is_file():
            return []
        rows = []
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            question, tab, answer = line.strip().partition("\t")
            if not tab or not answer:
                raise ValueError(f"path: line {n} of {path} is not a question, a tab and an answer")
            rows.append((question, answer))
        return rows


class MGSMGrader(Verifier):
    """Right if the last number after the answer word of the problem's language is the answer."""

    def gold_text(self, problem: Problem) -> str:
        """Return the gold answer after its word."""
        return f"{problem.meta['prefix']}: {problem.answer}"

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        _, found, after = judged_text(response).rpartition(problem.meta["prefix"])
        numbers = re.findall(r"\d+\.?\d*", after[:MAX_CHARACTERS].replace(",", ""))
        if not found or not numbers:
            return conclude("unparsed", None, f"no number after {problem.meta['prefix']!r}")
        number = numbers[-1].rstrip(".")
        number = number.rstrip("0").rstrip(".") if "." in number else number
        right = number == problem.answer.replace(",", "")
        reason = "" if right else f"{number}, not {problem.answer}"
        return conclude("right" if right else "wrong", number, reason)
