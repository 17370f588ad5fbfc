"""Problems from tables: questions with gold answers, Countdown, code, instructions and choices."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.data.tables import Row, Table, is_empty
from r1lit.problems import LETTERS
from r1lit.seeding import permutation
from r1lit.text.prompts import KEY, columns_in, filled, first_of, put_in_words
from r1lit.text.stdin_tests import inputs_and_outputs

COUNTDOWN = (
    "Using the numbers {numbers}, create an equation that equals {target}. Only +, -, * and /"
    " are allowed, with parentheses where you need them, and every number is used exactly once."
    " Answer with the expression alone, for example (1 + 2) / 3."
)
"""TinyZero's task in our words; its tags are left to the template."""


def row_uid(table: Table, n: int, *content: str) -> str:
    """Name row ``n`` so that a reader finds it, and so that equal names mean equal content."""
    digest = hashlib.blake2b("\x1f".join(content).encode(), digest_size=4).hexdigest()
    return f"{table.stem}-{n}-{digest}"


class TableProblems(ProblemSource):
    r"""Problems from the columns of a table.

    Errors name the row, counted from 1 in the whole table; a uid has its place, from 0.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        question: the column of the question, a text or a list of messages, of which the template
            chat sends all. Where there is no column ``question``, ``prompt`` is taken.
        answer: the column of the gold answer; a number is written out, 72.0 as "72". Where there is
            no column ``answer``, ``solution`` is taken.
        uid: the column of a unique name; by default the row's number and a digest of its content.
        answer_pattern: a regular expression whose group 1 is the gold answer within its column;
            GSM8K's is ``####\s*(.+)``. Empty takes the whole cell.
        answer_remove: a text taken out of the gold answer, as the commas of 1,000.
        source: the name to report by; the file's if left out.
        verifier: grades the responses, a key of the grader's.
        meta: columns kept in ``Problem.meta``, to report by or for a verifier.
        drop_empty: leave out rows without question or answer, which are an error otherwise.
        wording: put around the question; it holds {question}.
        **table: of ``Table``: name, split, skip and limit.
    """

    # "" and not null by default: of a ``str | None`` jsonargparse reads the text as YAML, to which
    # ``####`` is a comment
    def __init__(
        self,
        path: str,
        question: str = "question",
        answer: str = "answer",
        uid: str | None = None,
        answer_pattern: str = "",
        answer_remove: str = "",
        source: str | None = None,
        verifier: str = "math",
        meta: Sequence[str] = (),
        drop_empty: bool = False,
        wording: str = "{question}",
        **table: Any,
    ) -> None:
        if "{question}" not in wording:
            raise ValueError(f"wording: {wording!r} does not contain {{question}}")
        if answer_pattern is None:  # what jsonargparse reads of '####' on a command line
            raise ValueError(
                "answer_pattern: null is no regular expression; on the command line a text that"
                r" begins with # is a comment, so write '[#]{4}\s*(.+)'"
            )
        self.wording = wording
        self.table = Table(path=path, **table)
        self.question = question
        self.answer = answer
        self.uid = uid
        self.answer_pattern = _compiled(answer_pattern) if answer_pattern else None
        self.answer_remove = answer_remove
        self.source = source or self.table.stem
        self.verifier = verifier
        self.meta = tuple(meta)
        self.drop_empty = drop_empty

    def problems(self) -> list[Problem]:
        """Return every problem in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        columns = {
            "question": ("question", "prompt") if self.question == "question" else (self.question,),
            "answer": ("answer", "solution") if self.answer == "answer" else (self.answer,),
            **({} if self.uid is None else {"uid": (self.uid,)}),
            **{f"meta.{i}": (column,) for i, column in enumerate(self.meta)},
        }
        rows, found = self.table.find(columns)
        self.question, self.answer = found["question"], found["answer"]
        for key, column in (("question", self.question), ("answer", self.answer)):
            empty = {n for n, row in rows if is_empty(row.get(column))}
            if empty and not self.drop_empty:
                raise ValueError(
                    f"{key}: {len(empty):,} of {len(rows):,} rows of {self.table.path} have nothing"
                    f" in column {column!r}, the first is row {min(empty) + 1}; drop_empty: true"
                    " leaves them out"
                )
            rows = [(n, row) for n, row in rows if n not in empty]
        problems = [self._problem(row, n) for n, row in rows]
        if self.uid is not None:
            _refuse_repeats(problems, self.table.path, self.uid)
        return problems

    def _problem(self, row: Row, n: int) -> Problem:
        meta = {column: row.get(column) for column in self.meta}
        if isinstance(row.get(self.question), list):
            chat = self.table.conversation(row, n, "question", self.question)
            question, meta = chat.as_text(), {**meta, KEY: chat}
        else:
            question = self.table.text(row, n, "question", self.question)
        answer = self._gold(row, n)
        if self.uid is None:
            uid = row_uid(self.table, n, question, answer)
        else:
            uid = self.table.text_or_number(row, n, "uid", self.uid)
        return Problem(
            uid=uid,
            question=self.wording.replace("{question}", question),
            answer=answer,
            source=self.source,
            verifier=self.verifier,
            meta=meta,
        )

    def _gold(self, row: Row, n: int) -> str:
        text = self.table.text_or_number(row, n, "answer", self.answer)
        gold = text
        if self.answer_pattern is not None:
            match = self.answer_pattern.search(text)
            if match is None:
                raise ValueError(
                    f"answer_pattern: {self.answer_pattern.pattern!r} does not match"
                    f" {self.table.row(n)}, which holds {_short(text)!r}"
                )
            gold = match[1] or ""
        if self.answer_remove:
            gold = gold.replace(self.answer_remove, "")
        if not gold.strip():
            raise ValueError(
                f"answer: nothing is left of {self.table.row(n)}, which holds {_short(text)!r}"
            )
        return gold.strip()


class CountdownTable(ProblemSource):
    """Countdown problems from a table of numbers and targets.

    A table holds no solution, so ``Problem.answer`` is the target: the verifier decides by
    ``meta``, not by the gold answer.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        numbers: the column of the numbers: a list of integers, or a text with integers in it.
        target: the column of the target, or the target of every row (the Game of 24: 24).
        wording: the question, with {numbers} and {target} in it.
        source: the name to report by.
        **table: of ``Table``: name, split, skip and limit.
    """

    def __init__(
        self,
        path: str,
        numbers: str = "nums",
        target: int | str = "target",
        wording: str = COUNTDOWN,
        source: str = "countdown",
        **table: Any,
    ) -> None:
        for placeholder in ("{numbers}", "{target}"):
            if placeholder not in wording:
                raise ValueError(f"wording: {wording!r} does not contain {placeholder}")
        self.table = Table(path=path, **table)
        self.numbers = numbers
        self.target = target
        self.wording = wording
        self.source = source

    def problems(self) -> list[Problem]:
        """Return every problem in the table's order.

        Raises:
            ValueError: naming the row whose numbers or target are not integers.
        """
        columns = {"numbers": self.numbers}
        if isinstance(self.target, str):
            columns["target"] = self.target
        return [self._problem(row, n) for n, row in self.table.rows(columns)]

    def _problem(self, row: Row, n: int) -> Problem:
        numbers = _integers(row.get(self.numbers))
        if len(numbers) < 2:
            raise ValueError(
                f"numbers: {self.table.row(n)} holds {row.get(self.numbers)!r} in column"
                f" {self.numbers!r}, where two integers or more are needed"
            )
        target = self.target
        if isinstance(target, str):
            found = _integers([row.get(target)])
            if len(found) != 1:
                raise ValueError(
                    f"target: {self.table.row(n)} holds {row.get(target)!r} in column"
                    f" {target!r}, where an integer is needed"
                )
            target = found[0]
        shown = f"[{', '.join(map(str, numbers))}]"
        question = self.wording.replace("{numbers}", shown).replace("{target}", str(target))
        return Problem(
            uid=row_uid(self.table, n, question),
            question=question,
            answer=str(target),
            source=self.source,
            verifier="countdown",
            meta={"numbers": numbers, "target": target},
        )


def _integers(value: Any) -> list[int]:
    """Return the integers of a cell, or none at all if it holds anything else."""
    if isinstance(value, str):
        if not re.fullmatch(r"[\[(]?\s*-?\d+(\s*[,\s]\s*-?\d+)*\s*[\])]?", value.strip()):
            return []
        return [int(text) for text in re.findall(r"-?\d+", value)]
    if not isinstance(value, list | tuple):
        return []
    texts = [str(item) for item in value if not isinstance(item, bool)]
    whole = [re.fullmatch(r"\s*(-?\d+)(?:\.0)?\s*", text) for text in texts]
    if len(whole) < len(value) or not all(whole):
        return []
    return [int(match[1]) for match in whole if match]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"answer_pattern: {pattern!r} is no regular expression: {error}"
        ) from error
    if compiled.groups < 1:
        raise ValueError(f"answer_pattern: {pattern!r} has no group 1 to hold the gold answer")
    return compiled


def _refuse_repeats(problems: list[Problem], path: str, column: str) -> None:
    seen: set[str] = set()
    for problem in problems:
        if problem.uid in seen:
            raise ValueError(f"uid: column {column!r} of {path} holds {problem.uid!r} twice")
        seen.add(problem.uid)


def _short(text: str, length: int = 80) -> str:
    return text if len(text) <= length else f"…{text[-length:]}"


CHOICE = (
    "Answer the following multiple choice question with the letter of the right choice.\n\n"
    "{question}\n\n{choices}"
)


class TaskTable(ProblemSource):
    """Problems from a table whose verifier goes by more than a gold answer.

    Tests of programs may come as ``{inputs: […], outputs: […]}`` or as a list of ``{input,
    output}``; both become the first. Of nested cells, keys that hold null are left out: Parquet
    gives every row the keys of all.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        verifier: what decides about responses, a key of the grader's.
        meta: what the verifier needs: each of its keys with the column that holds it, or several
            (``a|b``), of which the first that is there.
        wording: the question, with ``{column}`` where a cell is to stand.
        split: the split of a Hugging Face data set.
        answer: the column of the gold answer, where there is one.
        uid: the column of a unique name; by default the row's number and a digest of its content.
        source: the name to report by; the file's if left out.
        json_columns: columns that hold JSON as text, to be read.
        keep: columns kept in ``Problem.meta``, to report by.
        where: keep rows whose columns hold these values; null stands for nothing and for an empty
            text.
        **table: of ``Table``: name, skip and limit.
    """

    def __init__(
        self,
        path: str,
        verifier: str,
        meta: dict[str, str],
        wording: str = "{prompt}",
        split: str = "test",
        answer: str | None = None,
        uid: str | None = None,
        source: str | None = None,
        json_columns: Sequence[str] = (),
        keep: Sequence[str] = (),
        where: dict[str, Any] | None = None,
        **table: Any,
    ) -> None:
        if not columns_in(wording):
            raise ValueError(f"wording: {wording!r} names no column, such as {{prompt}}")
        self.table = Table(path=path, split=split, **table)
        self.verifier = verifier
        self.meta = dict(meta)
        self.wording = wording
        self.answer = answer
        self.uid = uid
        self.source = source or self.table.stem
        self.json_columns = frozenset(json_columns)
        self.keep = tuple(keep)
        self.where = dict(where or {})

    def problems(self) -> list[Problem]:
        """Return every problem in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        rows = self.table.rows({})
        there = list(dict.fromkeys(column for _, row in rows for column in row))
        columns = {f"wording.{c}": first_of(c, there) for c in columns_in(self.wording)}
        columns |= {f"meta.{key}": first_of(c, there) for key, c in self.meta.items()}
        columns |= {f"keep.{i}": column for i, column in enumerate(self.keep)}
        for key in ("answer", "uid"):
            if getattr(self, key) is not None:
                columns[key] = getattr(self, key)
        columns |= {f"where.{column}": column for column in self.where}
        self.table.check_columns(columns, there)
        rows = [(n, row) for n, row in rows if self._is_kept(row)]
        if not rows:
            raise ValueError(f"where: {self.where} leaves no row of {self.table.path}")
        return [self._problem(row, n) for n, row in rows]

    def _is_kept(self, row: Row) -> bool:
        return all((row.get(key) or None) == (value or None) for key, value in self.where.items())

    def _problem(self, row: Row, n: int) -> Problem:
        row = {column: self._cell(row, n, column) for column in row}
        question = put_in_words(self.wording, row)
        if not question:
            raise ValueError(f"wording: {self.table.row(n)} fills it with nothing")
        meta = {key: row.get(first_of(column, row)) for key, column in self.meta.items()}
        for key, value in meta.items():
            if value is None or value == "" or value == []:
                raise ValueError(
                    f"meta.{key}: {self.table.row(n)} holds {value!r} in column"
                    f" {self.meta[key]!r}, which {self.verifier} needs"
                )
        if self.answer is None:
            answer = ""
        else:
            answer = self.table.text_or_number(row, n, "answer", self.answer)
        if self.uid is None:
            uid = row_uid(self.table, n, question, answer)
        else:
            uid = self.table.text_or_number(row, n, "uid", self.uid)
        return Problem(
            uid=uid,
            question=question,
            answer=answer,
            source=self.source,
            verifier=self.verifier,
            meta=meta | {column: row.get(column) for column in self.keep},
        )

    def _cell(self, row: Row, n: int, column: str) -> Any:
        value = row[column]
        if column in self.json_columns and isinstance(value, str):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise ValueError(
                    f"json_columns: {self.table.row(n)} holds no JSON in column {column!r}: {error}"
                ) from error
        value = _without_nulls(value)
        is_tests = column in self.meta.get("tests", "").split("|")
        return inputs_and_outputs(value) if is_tests else value


class ChoiceTable(ProblemSource):
    """Multiple choice: a question and lettered choices, one of them right.

    The choices stand in one column as a list (MMLU), in a column each beside the right letter
    (C-Eval), or in a column each with the right one apart (GPQA); then their order depends on
    ``seed``, the row and, with ``orders``, the response. The gold answer is the letter; verifiers
    find the choices' texts in ``meta``.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        split: the split of a Hugging Face data set.
        question: the column of the question.
        choices: the column of the list of choices, or the columns of one each.
        answer: the column of the right letter, or of the right choice's index.
        correct: the column of the right choice, where each has a column.
        incorrect: the columns of the wrong ones.
        wording: the question, with {question} and {choices} in it, and perhaps other columns.
        line: one choice, with {letter} and {choice} in it.
        omit: a text of choices that are left out, as MMLU-Pro's N/A.
        orders: how many orders of the choices each question comes in: one a response, so that
            ``num_samples`` is 1. An evaluation counts them as responses to one problem.
        source: the name to report by.
        keep: columns kept in ``Problem.meta``, to report by.
        seed: of the order of choices.
        **table: of ``Table``: name, skip and limit.
    """

    def __init__(
        self,
        path: str,
        split: str = "test",
        question: str = "question",
        choices: str | list[str] = "choices",
        answer: str = "answer",
        correct: str | None = None,
        incorrect: Sequence[str] = (),
        wording: str = CHOICE,
        line: str = "{letter}) {choice}",
        omit: str | None = None,
        orders: int = 1,
        source: str | None = None,
        keep: Sequence[str] = (),
        seed: int = 0,
        **table: Any,
    ) -> None:
        for placeholder in ("{question}", "{choices}"):
            if placeholder not in wording:
                raise ValueError(f"wording: {wording!r} does not contain {placeholder}")
        if (correct is None) != (not incorrect):
            raise ValueError("correct: goes with incorrect, the columns of the wrong choices")
        if orders > 1 and correct is None:
            raise ValueError(f"orders: {orders} needs the columns correct and incorrect")
        self.table = Table(path=path, split=split, **table)
        self.question = question
        self.choices = choices
        self.answer = answer
        self.correct = correct
        self.incorrect = tuple(incorrect)
        self.wording = wording
        self.line = line
        self.omit = omit
        self.orders = orders
        self.source = source or self.table.stem
        self.keep = tuple(keep)
        self.seed = seed

    def problems(self) -> list[Problem]:
        """Return every problem in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        columns = {"question": self.question}
        if self.correct is not None:
            columns["correct"] = self.correct
            columns |= {f"incorrect.{i}": column for i, column in enumerate(self.incorrect)}
        else:
            listed = [self.choices] if isinstance(self.choices, str) else self.choices
            columns |= {f"choices.{i}": column for i, column in enumerate(listed)}
            columns["answer"] = self.answer
        columns |= {f"keep.{i}": column for i, column in enumerate(self.keep)}
        others = {*columns_in(self.wording)} - {"question", "choices"}
        columns |= {f"wording.{column}": column for column in others}
        rows = [(n, row) for n, row in self.table.rows(columns) if self.is_kept(row)]
        return [self._problem(row, n, order) for n, row in rows for order in range(self.orders)]

    def is_kept(self, row: Row) -> bool:
        """Decide whether a row is a problem; a subclass may leave some out."""
        return True

    def _problem(self, row: Row, n: int, order: int) -> Problem:
        choices, letter = (
            self.lettered(row, n) if self.correct is None else self._mixed(row, n, order)
        )
        lines = (
            self.line.replace("{letter}", LETTERS[i]).replace("{choice}", text)
            for i, text in enumerate(choices)
        )
        question = self.table.text(row, n, "question", self.question).strip()
        fields = {**row, "question": question, "choices": "\n".join(lines)}
        words = filled(self.wording, fields)
        if self.orders == 1:
            uid, same = row_uid(self.table, n, words), {}
        else:
            name = row_uid(self.table, n, question, *sorted(choices))
            uid, same = f"{name}-{order}", {"problem": name}
        return Problem(
            uid=uid,
            question=words,
            answer=letter,
            source=self.source,
            verifier="choice",
            meta={"choices": choices, "answer_form": "letter"}
            | {column: row.get(column) for column in self.keep}
            | same,
        )

    def lettered(self, row: Row, n: int) -> tuple[list[str], str]:
        """Return the choices of a row in their order, and the letter of the right one.

        Raises:
            ValueError: if they are not 2 to 10 texts, or the answer names none of them.
        """
        if isinstance(self.choices, str):
            cell = row.get(self.choices)
        else:
            cell = [row.get(column) for column in self.choices]
        if not isinstance(cell, list) or not 2 <= len(cell) <= len(LETTERS):
            raise ValueError(
                f"choices: {self.table.row(n)} holds {cell!r} in column"
                f" {self.choices!r}, where a list of 2 to {len(LETTERS)} choices is needed"
            )
        answer, letters = row.get(self.answer), LETTERS[: len(cell)]
        if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(cell):
            place = answer
        elif isinstance(answer, str) and len(answer.strip()) == 1 and answer.strip() in letters:
            place = letters.index(answer.strip())
        else:
            raise ValueError(
                f"answer: {self.table.row(n)} holds {answer!r} in column {self.answer!r},"
                f" which is neither one of {letters} nor an index"
            )
        texts = [str(choice) for choice in cell]
        kept = [i for i, text in enumerate(texts) if text != self.omit]
        if place not in kept:
            raise ValueError(f"omit: the right choice of {self.table.row(n)} is {self.omit!r}")
        return [texts[i] for i in kept], LETTERS[kept.index(place)]

    def _mixed(self, row: Row, n: int, order: int) -> tuple[list[str], str]:
        assert self.correct is not None
        columns = [self.correct, *self.incorrect]
        texts = [
            self.table.text_or_number(row, n, "correct" if i == 0 else "incorrect", column).strip()
            for i, column in enumerate(columns)
        ]
        counters = (n, order) if order else (n,)
        places = permutation(len(texts), self.seed, "choices", *counters)
        return [texts[i] for i in places], LETTERS[places.index(0)]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
