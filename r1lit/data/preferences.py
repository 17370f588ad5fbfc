"""Examples for reward models: pairs, responses labelled safe or unsafe, and labelled steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from r1lit.data.tables import Row, Table, columns_of
from r1lit.text.prompts import Conversation


@dataclass(frozen=True, kw_only=True)
class Example:
    """A question and one response or two: chosen first, then rejected.

    ``label`` is 1 for a pair and for a safe response, 0 for an unsafe one. Examples of one
    ``group`` are all trained on or all held out. A question may be a conversation, for the
    template "chat".

    A response whose steps are labelled has ``step_ends``, offsets into it, and as many
    ``step_labels`` from 0 to 1.
    """

    question: str | Conversation
    responses: tuple[str, ...]
    label: float
    group: str
    step_ends: tuple[int, ...] = ()
    step_labels: tuple[float, ...] = ()


class PreferenceSource(ABC):
    """Yields examples, all of ``rows_per_example`` responses."""

    rows_per_example: int
    labels_steps = False
    """True where the steps of responses are labelled, as a process reward model needs."""

    @abstractmethod
    def examples(self) -> list[Example]:
        """Return every example, in an order that is the same on every call."""


class TablePairs(PreferenceSource):
    r"""Pairs from the columns of a table, such as ``r1lit-pairs`` writes.

    With ``turn``, ``chosen`` and ``rejected`` hold whole conversations, as in Anthropic's HH: what
    they have in common, up to the last such mark, is the question, what follows are the responses,
    and conversations that begin with the same turn are one group. Otherwise the prompt names the
    group.

    Cells may hold lists of messages, as TRL's do: ``chosen`` and ``rejected`` the last turn with
    the prompt apart, or whole conversations that differ in their last turn, and no prompt. Their
    template is "chat".

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        prompt: the column of the prompt; null with ``turn``.
        chosen: the column of the better response.
        rejected: the column of the worse one.
        turn: what begins a turn of the assistant in whole conversations; HH's is
            ``"\n\nAssistant:"``. Empty where the columns hold responses.
        **table: of ``Table``: name, split, skip and limit.
    """

    rows_per_example = 2

    def __init__(
        self,
        path: str,
        prompt: str | None = "prompt",
        chosen: str = "chosen",
        rejected: str = "rejected",
        turn: str = "",
        **table: Any,
    ) -> None:
        if (prompt is None) != bool(turn):
            raise ValueError(
                f"turn: {turn!r} with prompt: {prompt!r}; conversations need a turn and no prompt,"
                " and other pairs a prompt and no turn"
            )
        self.table = Table(path=path, **table)
        self.prompt = prompt
        self.chosen = chosen
        self.rejected = rejected
        self.turn = turn

    def examples(self) -> list[Example]:
        """Return every pair in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        columns = {"chosen": self.chosen, "rejected": self.rejected}
        rows = self.table.rows(columns)
        if self.prompt is not None and not all(isinstance(r[self.chosen], list) for _, r in rows):
            self.table.check_columns({"prompt": self.prompt}, columns_of(rows))
        return [self._example(row, n) for n, row in rows]

    def _of_messages(self, row: Row, n: int) -> Example:
        """Return the pair of two conversations, which share all but their last turn."""
        prompt: list[Any] = []
        if self.prompt is not None and row.get(self.prompt):
            given = row[self.prompt]
            prompt = [{"role": "user", "content": given}] if isinstance(given, str) else given
        sides = [
            self.table.conversation({**row, column: [*prompt, *row[column]]}, n, key, column)
            for key, column in (("chosen", self.chosen), ("rejected", self.rejected))
        ]
        (*before, chosen), (*other, rejected) = (side.messages for side in sides)
        if before != other or not before:
            raise ValueError(
                f"chosen: the conversations of {self.table.row(n)} do not share all turns"
                " but the last"
            )
        question = Conversation.of(before, sides[0].tools)
        responses = (str(chosen["content"]), str(rejected["content"]))
        return Example(question=question, responses=responses, label=1.0, group=question.text)

    def _example(self, row: Row, n: int) -> Example:
        if isinstance(row.get(self.chosen), list) and isinstance(row.get(self.rejected), list):
            return self._of_messages(row, n)
        chosen, rejected = (
            self.table.text(row, n, key, column)
            for key, column in (("chosen", self.chosen), ("rejected", self.rejected))
        )
        if self.prompt is not None:
            question = group = self.table.text(row, n, "prompt", self.prompt)
        else:
            shared = _common_beginning(chosen, rejected)
            end = shared.rfind(self.turn) + len(self.turn)
            if end < len(self.turn):
                raise ValueError(
                    f"turn: the conversations of {self.table.row(n)} do not share a"
                    f" beginning with {self.turn!r} in it"
                )
            question, chosen, rejected = shared[:end], chosen[end:], rejected[end:]
            group = question[: question.index(self.turn)]
        return Example(question=question, responses=(chosen, rejected), label=1.0, group=group)


def _common_beginning(a: str, b: str) -> str:
    size = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    return a[: min(len(a), len(b)) if size is None else size]


class TableLabels(PreferenceSource):
    """Responses that are safe or unsafe, from the columns of a table; one example a row.

    The prompt names the group.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        prompt: the column of the prompt.
        response: the column of the response; null labels the prompts themselves.
        label: the column of the label.
        safe: cells of that column that mean safe; true and 1 are written "true" and "1".
        unsafe: cells that mean unsafe.
        **table: of ``Table``: name, split, skip and limit.
    """

    rows_per_example = 1

    def __init__(
        self,
        path: str,
        prompt: str = "prompt",
        response: str | None = "response",
        label: str = "label",
        safe: Sequence[str] = ("safe", "true", "1"),
        unsafe: Sequence[str] = ("unsafe", "false", "0"),
        **table: Any,
    ) -> None:
        self.table = Table(path=path, **table)
        self.prompt = prompt
        self.response = response
        self.label = label
        self.labels = {t.lower(): 1.0 for t in safe} | {t.lower(): 0.0 for t in unsafe}

    def examples(self) -> list[Example]:
        """Return every example in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        columns = {"prompt": self.prompt, "label": self.label}
        if self.response is not None:
            columns["response"] = self.response
        return [self._example(row, n) for n, row in self.table.rows(columns)]

    def _example(self, row: Row, n: int) -> Example:
        question = self.table.text(row, n, "prompt", self.prompt)
        response = ""
        if self.response is not None:
            response = self.table.text(row, n, "response", self.response)
        cell = str(row.get(self.label)).strip().lower()
        if cell not in self.labels:
            raise ValueError(
                f"label: {self.table.row(n)} holds {row.get(self.label)!r} in column"
                f" {self.label!r}, which is none of {', '.join(self.labels)}"
            )
        return Example(
            question=question, responses=(response,), label=self.labels[cell], group=question
        )


class TableSteps(PreferenceSource):
    r"""Solutions cut into steps, from a table of JSON or Parquet; one example a row.

    A row's label is the index of its first wrong step, -1 for none (ProcessBench, 2412.06559): the
    steps up to it are labelled, those behind it are not. Or it is a list with a number from 0 to 1
    for each step, as ``r1lit.curation.step_labels`` writes them: the share of completions from
    there that are right (Math-Shepherd 2312.08935).

    For ``RewardModule`` with ``SafeUnsafe`` a row is one labelled response, right if its last
    labelled step is: an outcome reward model learns from the same table.

    The problem names the group.

    Args:
        path: a local .jsonl, .json (each may end in .gz) or .parquet file, or the name of a Hugging
            Face data set.
        problem: the column of the problem.
        steps: the column of the steps, a list of texts.
        label: the column of the label.
        joined_by: what stands between two steps in the response, and belongs to the former; ""
            where the steps hold it.
        hard: labels above 0 become 1: a step is right if any completion is.
        **table: of ``Table``: name, split, skip and limit.
    """

    rows_per_example = 1
    labels_steps = True

    def __init__(
        self,
        path: str,
        problem: str = "problem",
        steps: str = "steps",
        label: str = "label",
        joined_by: str = "\n\n",
        hard: bool = False,
        **table: Any,
    ) -> None:
        self.table = Table(path=path, **table)
        self.problem = problem
        self.steps = steps
        self.label = label
        self.joined_by = joined_by
        self.hard = hard

    def examples(self) -> list[Example]:
        """Return every solution in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        columns = {"problem": self.problem, "steps": self.steps, "label": self.label}
        return [self._example(row, n) for n, row in self.table.rows(columns)]

    def _example(self, row: Row, n: int) -> Example:
        question = self.table.text(row, n, "problem", self.problem)
        steps = row.get(self.steps)
        if not (isinstance(steps, list) and steps and all(isinstance(s, str) and s for s in steps)):
            raise ValueError(
                f"steps: {self.table.row(n)} holds {steps!r:.80} in column {self.steps!r},"
                " where a list of texts is needed"
            )
        labels = self._labels(row.get(self.label), len(steps), n)
        texts = [*(step + self.joined_by for step in steps[:-1]), steps[-1]]
        return Example(
            question=question,
            responses=("".join(texts),),
            label=float(labels[-1] > 0.5),
            group=question,
            step_ends=tuple(accumulate(map(len, texts)))[: len(labels)],
            step_labels=labels,
        )

    def _labels(self, cell: Any, num_steps: int, n: int) -> tuple[float, ...]:
        if isinstance(cell, int) and not isinstance(cell, bool) and -1 <= cell < num_steps:
            return (1.0,) * num_steps if cell < 0 else (*[1.0] * cell, 0.0)
        if not (
            isinstance(cell, list)
            and len(cell) == num_steps
            and all(isinstance(x, int | float) and 0 <= x <= 1 for x in cell)
        ):
            raise ValueError(
                f"label: {self.table.row(n)} holds {cell!r:.80} in column {self.label!r};"
                f" its {num_steps} steps need the index of the first wrong one (-1: none), or a"
                " list of as many numbers from 0 to 1"
            )
        return tuple(float(x > 0) if self.hard else float(x) for x in cell)
