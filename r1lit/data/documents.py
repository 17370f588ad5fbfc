"""Documents for supervised training: from tables, from rejection sampling, and in mixtures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_only, rank_zero_warn

from r1lit.data.sources import Document, DocumentSource
from r1lit.data.tables import Row, Table, columns_of, is_empty
from r1lit.errors import check_above, check_at_least
from r1lit.seeding import permutation
from r1lit.text.prompts import CHAT, Conversation, render

CONVERSATION_COLUMNS = ("messages", "conversations")
BESIDE_A_CONVERSATION = ("system", "history")
RESPONSE_COLUMNS = ("response", *CONVERSATION_COLUMNS, "completion", "output")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class TableDocuments(DocumentSource):
    """Documents from the columns of a table.

    Prompt and response are tokenised apart, as they are in a rollout, so the response carries the
    white space between the two. Errors name the row, counted from 1 in the whole table.

    A conversation, in a column ``messages`` or ``conversations`` (ShareGPT's) or as lists of
    messages in those of prompt and response, becomes a document for each assistant turn: the loss
    is on these, and each is conditioned on the turns before it as the policy's chat template shows
    them then.

    Args:
        path: a local .jsonl, .json, .csv (each may end in .gz) or .parquet file, or the name of a
            Hugging Face data set.
        prompt: the column of the question; null makes documents that are all response. Where there
            is no column ``prompt``, Alpaca's ``instruction`` is taken, with its ``input`` after it.
        response: the column of the response, or a text with columns in braces, as
            ``<think>{thinking}</think>{output}``. Where there is no column ``response``, the first
            there is of ``messages``, ``conversations``, ``completion`` and ``output`` is taken.
        template: what the question is put into: a name of ``r1lit.text.prompts``, "chat" for the
            policy's chat template, or a text that holds {question}. "plain" leaves it as it is.
            Conversations take the chat template.
        system_prompt: the system turn of conversations, and of template "chat", without one.
        special_tokens_in_questions: whether the texts of special tokens in questions are these
            tokens, as in prompts that are templated already; else they are text. In responses they
            always are tokens.
        **table: of ``Table``: name, split, skip and limit.
    """

    def __init__(
        self,
        path: str,
        prompt: str | None = "prompt",
        response: str = "response",
        template: str = "plain",
        system_prompt: str = "",
        special_tokens_in_questions: bool = False,
        **table: Any,
    ) -> None:
        if template != CHAT:
            render(template, "")
        self.system_prompt = system_prompt
        self.table = Table(path=path, **table)
        self.prompt = prompt
        self.response = response
        self.template = template
        self.is_alpaca = False
        self.special_tokens_in_questions = special_tokens_in_questions

    def documents(self) -> list[Document]:
        """Return every document in the table's order.

        Raises:
            ValueError: naming the key, the column and the row that cannot be used.
        """
        names: list[str] = _PLACEHOLDER.findall(self.response) or [self.response]
        first = RESPONSE_COLUMNS if names == ["response"] else (names[0],)
        columns = {"response": first, **{f"response {{{n}}}": (n,) for n in names[1:]}}
        rows, found = self.table.find(columns)
        if (column := found["response"]) in CONVERSATION_COLUMNS:
            self._warn_of_unread(rows)
            chats = [(n, self.table.conversation(row, n, "response", column)) for n, row in rows]
            self._refuse_empty_turns(chats)
            return [document for _, chat in chats for document in self._turns(chat)]
        if names == ["response"]:
            self.response = found["response"]
        if self.prompt is not None:
            there = columns_of(rows)
            if self.prompt == "prompt" and "prompt" not in there and "instruction" in there:
                self.prompt, self.is_alpaca = "instruction", True
                self._warn_of_unread(rows)
            self.table.check_columns({"prompt": self.prompt}, there)
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
        if self.is_alpaca and not is_empty(row.get("input")):
            text += "\n\n" + self.table.text_or_number(row, n, "prompt", "input")
        if self.template == CHAT and self.system_prompt:
            return self._document_of(Conversation.of([{"role": "user", "content": text}]), response)
        if self.template == CHAT:
            return self._read(Document(prompt=text, response=response, chat=True))
        prompt, asked = render(self.template, text), (self.template, text)
        return self._read(Document(prompt=prompt, response=response, asked=asked))

    def _read(self, document: Document) -> Document:
        """Return a document with the switch for special tokens."""
        return replace(document, special_tokens_in_questions=self.special_tokens_in_questions)

    def _warn_of_unread(self, rows: Sequence[tuple[int, Row]]) -> None:
        """Warn of what other programs add to a conversation from columns of their own."""
        filled = [c for c in BESIDE_A_CONVERSATION if any(row.get(c) for _, row in rows)]
        if filled:
            rank_zero_warn(
                f"response: {self.table.path} has texts in {' and '.join(filled)}, which are not"
                " read; put them into the rows' messages, as turns of the system, user and"
                " assistant"
            )

    def _refuse_empty_turns(self, chats: Sequence[tuple[int, Conversation]]) -> None:
        """Refuse turns that would teach to end at once; in episodes of a policy they may stand."""
        for n, chat in chats:
            turns = [m for m in chat.messages if m["role"] == "assistant"]
            if not all(m["content"] or m.keys() - {"role", "content"} for m in turns):
                raise ValueError(
                    f"response: {self.table.row(n)} has an assistant's turn with neither a content"
                    " nor anything else, as tool_calls, so there is nothing to learn from it; leave"
                    " the row out"
                )

    def _turns(self, chat: Conversation) -> list[Document]:
        """Return the document of every assistant turn."""
        turns = chat.after(self.system_prompt).answers()
        if not turns:
            raise ValueError(
                f"response: {self.table.path} has a conversation without an assistant's turn after"
                f" another: {chat.text[:80]}"
            )
        return [self._read(Document.of(before, answer)) for before, answer in turns]

    def _document_of(self, before: Conversation, response: str) -> Document:
        answer = {"role": "assistant", "content": response}
        return self._read(Document.of(before.after(self.system_prompt), answer))


class CuratedDocuments(TableDocuments):
    """The responses that `r1lit.callbacks.RejectionSampling` kept, from its ``sft.jsonl``.

    Args:
        path: that file.
        template: what the question is put into, as it will be in the RL that follows; see
            ``TableDocuments``.
        kinds: take lines of these kinds only; null takes all.
        languages: take lines in these languages only; null takes all.
        sources: take lines of problems from these sources only; null takes all.
        skip: lines left out at the beginning.
        limit: lines read after those; null reads all.
    """

    def __init__(
        self,
        path: str,
        template: str = "chat",
        kinds: Sequence[str] | None = None,
        languages: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        skip: int = 0,
        limit: int | None = None,
    ) -> None:
        super().__init__(path, template=template, skip=skip, limit=limit)
        self.wanted = {
            column: tuple(values)
            for column, values in (("kind", kinds), ("language", languages), ("source", sources))
            if values is not None
        }
        for column, values in self.wanted.items():
            if not values:
                raise ValueError(f"{column}s: an empty list selects no rows; null means all")

    def chosen(self, row: Row) -> bool:
        """Return whether a line is selected."""
        return all(row.get(column) in values for column, values in self.wanted.items())

    def documents(self) -> list[Document]:
        """Return the chosen lines in their order.

        Raises:
            ValueError: if there is none, or a line lacks its prompt or response.
        """
        columns = {"prompt": ("prompt", "messages"), "response": ("response", "messages")}
        rows, _ = self.table.find({**columns, **{k: (v,) for k, v in self._columns().items()}})
        documents = [d for n, row in rows if self.chosen(row) for d in self._documents(row, n)]
        if not documents:
            raise ValueError(f"path: no line of {self.table.path} has {self.wanted}")
        return documents

    def _documents(self, row: Row, n: int) -> list[Document]:
        if "messages" in row:  # an episode: the loss is on the model's turns
            return self._turns(self.table.conversation(row, n, "response", "messages"))
        return [self._document(row, n)]

    def _columns(self) -> dict[str, str]:
        return {f"{column}s": column for column in self.wanted}


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a mixture.

    Args:
        source: its documents.
        share: how much of the mixture it is, against the shares of the others.
        name: what it is called in the printed line.
    """

    source: DocumentSource
    share: float
    name: str

    def __post_init__(self) -> None:
        check_above(f"share of part {self.name!r}", self.share, 0, finite=False)


class Mixture(DocumentSource):
    """Documents of several sources in fixed shares, such as reasoning : other = 3 : 1.

    R1 mixes about 600K reasoning documents with about 200K others (arXiv 2501.12948v1, Sec. 2.3.3).
    A part gives floor(share / all shares x ``num_documents``) documents, which the seed chooses
    without repetition; they keep their order, and the parts theirs. The counts are printed in one
    line, and ``describe`` returns them.

    Args:
        parts: the sources with their shares.
        num_documents: documents in all; null takes as many as the scarcest part allows.
        seed: of the choice.
    """

    def __init__(self, parts: list[Part], num_documents: int | None = None, seed: int = 0) -> None:
        if len({part.name for part in parts}) < len(parts) or not parts:
            raise ValueError("parts: give one or more, each with a name of its own")
        check_at_least("num_documents", num_documents, 1, "null means all")
        self.parts = parts
        self.num_documents = num_documents
        self.seed = seed
        self._counts: dict[str, tuple[int, int]] = {}

    def documents(self) -> list[Document]:
        """Return the chosen documents, part by part.

        Raises:
            ValueError: if a part has fewer documents than its share asks for.
        """
        found = {part.name: part.source.documents() for part in self.parts}
        mixed: list[Document] = []
        for part, count in zip(self.parts, self._chosen(found), strict=True):
            documents = found[part.name]
            order = permutation(len(documents), self.seed, "mixture", part.name)
            mixed += [documents[i] for i in sorted(order[:count])]
            self._counts[part.name] = (count, len(documents))
        rank_zero_only(print)(self._line())
        return mixed

    def _chosen(self, found: dict[str, list[Document]]) -> list[int]:
        shares = [Fraction(part.share).limit_denominator(10**6) for part in self.parts]
        shares = [share / sum(shares) for share in shares]
        sizes = [len(found[part.name]) for part in self.parts]
        total = self.num_documents
        if total is None:
            total = min(int(n / share) for n, share in zip(sizes, shares, strict=True))
        counts = [int(total * share) for share in shares]
        for part, count, size in zip(self.parts, counts, sizes, strict=True):
            if count > size:
                raise ValueError(
                    f"num_documents: {total} need {count} of part {part.name!r}, which has {size}"
                )
            if count == 0:
                raise ValueError(f"share: {part.share} of part {part.name!r} comes to no document")
        return counts

    def describe(self) -> dict[str, Any]:
        """Return how many documents of each part are taken, of how many there are."""
        return {
            name: {"taken": taken, "there": there} for name, (taken, there) in self._counts.items()
        }

    def _line(self) -> str:
        total = sum(taken for taken, _ in self._counts.values())
        shares = ", ".join(
            f"{name} {taken} of {there} ({100 * taken / total:.1f} %)"
            for name, (taken, there) in self._counts.items()
        )
        return f"mixture: {total} documents: {shares}"
