"""Documents from tables: prompts and responses, for supervised training."""

from __future__ import annotations

import re
from typing import Any

from r1lit.data.base import Document, DocumentSource
from r1lit.data.tables import Row, Table
from r1lit.text.prompts import CHAT
from r1lit.text.templates import render

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class TableDocuments(DocumentSource):
    """Documents from the columns of a table.

    Prompt and response are tokenised apart, as they are in a rollout, so the response carries the
    white space between the two. Errors name the row, counted from 0 in the whole table.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        prompt: the column of the question; null makes documents that are all response.
        response: the column of the response, or a text with columns in braces, as
            ``<think>{thinking}</think>{output}``.
        template: what the question is put into: a name of ``r1lit.text.templates``, "chat" for the
            policy's chat template, or a text that holds {question}. "plain" leaves it as it is.
        **table: of ``Table``: name, split, skip and limit.
    """

    def __init__(
        self,
        path: str,
        prompt: str | None = "prompt",
        response: str = "response",
        template: str = "plain",
        **table: Any,
    ) -> None:
        if template != CHAT:
            render(template, "")
        self.table = Table(path=path, **table)
        self.prompt = prompt
        self.response = response
        self.template = template

    def documents(self) -> list[Document]:
        """Return every document in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        responses = _PLACEHOLDER.findall(self.response) or [self.response]
        columns = {"response": responses[0]}
        columns.update({f"response {{{column}}}": column for column in responses[1:]})
        if self.prompt is not None:
            columns["prompt"] = self.prompt
        return [self._document(row, n) for n, row in self.table.rows(columns)]

    def _document(self, row: Row, n: int) -> Document:
        def cell(column: str) -> str:
            return self.table.text(row, n, "response", column)

        response = (
            _PLACEHOLDER.sub(lambda match: cell(match[1]), self.response)
            if _PLACEHOLDER.search(self.response)
            else cell(self.response)
        )
        if self.prompt is None:
            return Document(prompt="", response=response)
        text = self.table.text(row, n, "prompt", self.prompt)
        if self.template == CHAT:
            return Document(prompt=text, response=response, chat=True)
        return Document(prompt=render(self.template, text), response=response)
