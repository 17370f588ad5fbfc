"""Documents from tables: prompts and responses, for supervised training."""

from __future__ import annotations

import re
from typing import Any

from r1lit.data.base import Document, DocumentSource
from r1lit.data.tables import Row, Table, columns_of
from r1lit.text.conversation import Conversation
from r1lit.text.prompts import CHAT
from r1lit.text.templates import render

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class TableDocuments(DocumentSource):
    """Documents from the columns of a table.

    Prompt and response are tokenised apart, as they are in a rollout, so the response carries the
    white space between the two. Errors name the row, counted from 0 in the whole table.

    A conversation, in a column ``messages`` or as lists of messages in those of prompt and
    response, becomes a document for each assistant turn: the loss is on these, and each is
    conditioned on the turns before it as the policy's chat template shows them then.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        prompt: the column of the question; null makes documents that are all response.
        response: the column of the response, or a text with columns in braces, as
            ``<think>{thinking}</think>{output}``. Where there is no column ``response``,
            ``messages`` or else ``completion`` is taken.
        template: what the question is put into: a name of ``r1lit.text.templates``, "chat" for the
            policy's chat template, or a text that holds {question}. "plain" leaves it as it is.
            Conversations take the chat template.
        system_prompt: the system turn of conversations, and of template "chat", without one.
        **table: of ``Table``: name, split, skip and limit.
    """

    def __init__(
        self,
        path: str,
        prompt: str | None = "prompt",
        response: str = "response",
        template: str = "plain",
        system_prompt: str = "",
        **table: Any,
    ) -> None:
        if template != CHAT:
            render(template, "")
        self.system_prompt = system_prompt
        self.table = Table(path=path, **table)
        self.prompt = prompt
        self.response = response
        self.template = template

    def documents(self) -> list[Document]:
        """Return every document in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        names: list[str] = _PLACEHOLDER.findall(self.response) or [self.response]
        first = ("response", "messages", "completion") if names == ["response"] else (names[0],)
        columns = {"response": first, **{f"response {{{n}}}": (n,) for n in names[1:]}}
        rows, found = self.table.find(columns)
        if found["response"] == "messages":
            chats = [self.table.conversation(row, n, "response", "messages") for n, row in rows]
            return [document for chat in chats for document in self._turns(chat)]
        if names == ["response"]:
            self.response = found["response"]
        if self.prompt is not None:
            self.table.check_columns({"prompt": self.prompt}, columns_of(rows))
        return [self._document(row, n) for n, row in rows]

    def _document(self, row: Row, n: int) -> Document:
        def cell(column: str) -> str:
            if isinstance(row.get(column), list):  # TRL's: one message, the assistant's
                return self.table.conversation(row, n, "response", column).question()
            return self.table.text(row, n, "response", column)

        response = (
            _PLACEHOLDER.sub(lambda match: cell(match[1]), self.response)
            if _PLACEHOLDER.search(self.response)
            else cell(self.response)
        )
        if self.prompt is None:
            return Document(prompt="", response=response)
        if isinstance(row.get(self.prompt), list):
            before = self.table.conversation(row, n, "prompt", self.prompt)
            return self._document_of(before, response)
        text = self.table.text(row, n, "prompt", self.prompt)
        if self.template == CHAT and self.system_prompt:
            return self._document_of(Conversation.of([{"role": "user", "content": text}]), response)
        if self.template == CHAT:
            return Document(prompt=text, response=response, chat=True)
        return Document(prompt=render(self.template, text), response=response)

    def _turns(self, chat: Conversation) -> list[Document]:
        """Return the document of every assistant turn."""
        turns = chat.after(self.system_prompt).answers()
        if not turns:
            raise ValueError(
                f"response: {self.table.path} has a conversation without an assistant's turn behind"
                f" another: {chat.text[:80]}"
            )
        return [Document.of(before, answer) for before, answer in turns]

    def _document_of(self, before: Conversation, response: str) -> Document:
        answer = {"role": "assistant", "content": response}
        return Document.of(before.after(self.system_prompt), answer)
