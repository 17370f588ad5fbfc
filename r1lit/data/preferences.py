"""Examples for reward models: pairs of responses, and responses labelled safe or unsafe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from r1lit.data.tables import Row, Table, columns_of
from r1lit.text.conversation import Conversation


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
    """Whether the steps of its responses are labelled, as a process reward model needs."""

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
                f"chosen: the conversations of row {n} of {self.table.path} do not share all turns"
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
                    f"turn: the conversations of row {n} of {self.table.path} do not share a"
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
                f"label: row {n} of {self.table.path} holds {row.get(self.label)!r} in column"
                f" {self.label!r}, which is none of {', '.join(self.labels)}"
            )
        return Example(
            question=question, responses=(response,), label=self.labels[cell], group=question
        )
