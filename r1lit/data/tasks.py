"""Problems of code, instructions and multiple choice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from r1lit.batches import Problem
from r1lit.data.base import ProblemSource
from r1lit.data.tables import Row, Table
from r1lit.problems import LETTERS, inputs_and_outputs
from r1lit.seeding import permutation
from r1lit.text.wording import columns_in, first_of, put_in_words

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
            raise ValueError(f"wording: row {n} of {self.table.path} fills it with nothing")
        meta = {key: row.get(first_of(column, row)) for key, column in self.meta.items()}
        for key, value in meta.items():
            if value is None or value == "" or value == []:
                raise ValueError(
                    f"meta.{key}: row {n} of {self.table.path} holds {value!r} in column"
                    f" {self.meta[key]!r}, which {self.verifier} needs"
                )
        if self.answer is None:
            answer = ""
        else:
            answer = self.table.text_or_number(row, n, "answer", self.answer)
        if self.uid is None:
            digest = hashlib.blake2b(f"{question}\x1f{answer}".encode(), digest_size=4)
            uid = f"{self.table.stem}-{n}-{digest.hexdigest()}"
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
                    f"json_columns: row {n} of {self.table.path} holds no JSON in column"
                    f" {column!r}: {error}"
                ) from error
        value = _without_nulls(value)
        is_tests = column in self.meta.get("tests", "").split("|")
        return inputs_and_outputs(value) if is_tests else value


class ChoiceTable(ProblemSource):
    """Multiple choice: a question and lettered choices, one of them right.

    The choices stand in one column as a list (MMLU), or in a column each (GPQA); then their order
    depends on ``seed`` and the row. The gold answer is the letter; the verifier ``choice`` finds
    the choices' texts in ``meta``.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        split: the split of a Hugging Face data set.
        question: the column of the question.
        choices: the column of the list of choices.
        answer: the column of the right letter, or of the right choice's index.
        correct: the column of the right choice, where each has a column.
        incorrect: the columns of the wrong ones.
        wording: the question, with {question} and {choices} in it.
        source: the name to report by; the file's if left out.
        keep: columns kept in ``Problem.meta``, to report by.
        seed: of the order of choices.
        **table: of ``Table``: name, skip and limit.
    """

    def __init__(
        self,
        path: str,
        split: str = "test",
        question: str = "question",
        choices: str = "choices",
        answer: str = "answer",
        correct: str | None = None,
        incorrect: Sequence[str] = (),
        wording: str = CHOICE,
        source: str | None = None,
        keep: Sequence[str] = (),
        seed: int = 0,
        **table: Any,
    ) -> None:
        for placeholder in ("{question}", "{choices}"):
            if placeholder not in wording:
                raise ValueError(f"wording: {wording!r} does not hold {placeholder}")
        if (correct is None) != (not incorrect):
            raise ValueError("correct: goes with incorrect, the columns of the wrong choices")
        self.table = Table(path=path, split=split, **table)
        self.question = question
        self.choices = choices
        self.answer = answer
        self.correct = correct
        self.incorrect = tuple(incorrect)
        self.wording = wording
        self.source = source or self.table.stem
        self.keep = tuple(keep)
        self.seed = seed

    def problems(self) -> list[Problem]:
        """Return every problem in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        columns = {"question": self.question}
        if self.correct is None:
            columns |= {"choices": self.choices, "answer": self.answer}
        else:
            columns["correct"] = self.correct
            columns |= {f"incorrect.{i}": column for i, column in enumerate(self.incorrect)}
        columns |= {f"keep.{i}": column for i, column in enumerate(self.keep)}
        return [self._problem(row, n) for n, row in self.table.rows(columns)]

    def _problem(self, row: Row, n: int) -> Problem:
        choices, letter = self._given(row, n) if self.correct is None else self._mixed(row, n)
        lettered = "\n".join(f"{LETTERS[i]}) {text}" for i, text in enumerate(choices))
        question = self.table.text(row, n, "question", self.question).strip()
        words = self.wording.replace("{choices}", lettered).replace("{question}", question)
        digest = hashlib.blake2b(words.encode(), digest_size=4).hexdigest()
        return Problem(
            uid=f"{self.table.stem}-{n}-{digest}",
            question=words,
            answer=letter,
            source=self.source,
            verifier="choice",
            meta={"choices": choices, "answer_form": "letter"}
            | {column: row.get(column) for column in self.keep},
        )

    def _given(self, row: Row, n: int) -> tuple[list[str], str]:
        cell = row.get(self.choices)
        if not isinstance(cell, list) or not 2 <= len(cell) <= len(LETTERS):
            raise ValueError(
                f"choices: row {n} of {self.table.path} holds {cell!r} in column"
                f" {self.choices!r}, where a list of 2 to {len(LETTERS)} choices is needed"
            )
        answer, letters = row.get(self.answer), LETTERS[: len(cell)]
        if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(cell):
            return [str(choice) for choice in cell], letters[answer]
        if isinstance(answer, str) and len(answer.strip()) == 1 and answer.strip() in letters:
            return [str(choice) for choice in cell], answer.strip()
        raise ValueError(
            f"answer: row {n} of {self.table.path} holds {answer!r} in column {self.answer!r},"
            f" which is neither one of {letters} nor an index"
        )

    def _mixed(self, row: Row, n: int) -> tuple[list[str], str]:
        assert self.correct is not None
        columns = [self.correct, *self.incorrect]
        texts = [
            self.table.text_or_number(row, n, "correct" if i == 0 else "incorrect", column).strip()
            for i, column in enumerate(columns)
        ]
        order = permutation(len(texts), self.seed, "choices", n)
        return [texts[i] for i in order], LETTERS[order.index(0)]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
