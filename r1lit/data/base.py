"""The interface of sources: problems to roll out, or documents to train on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from r1lit.batches import Problem
from r1lit.text.conversation import Conversation, Message


@dataclass(frozen=True, kw_only=True)
class Document:
    """One supervised example: a prompt as templated text, and the response to train on.

    An empty ``prompt`` means that the whole of ``response`` is text to model. With ``chat``,
    ``prompt`` is a question yet, and becomes text by the chat template of the policy's tokenizer,
    which a source does not set. Of a conversation ``before`` are the turns that lead to the
    assistant's turn ``answer``, which is trained on; ``prompt`` and ``response`` show them as text.
    """

    prompt: str
    response: str
    chat: bool = False
    before: Conversation | None = None
    answer: Message | None = None

    @classmethod
    def of(cls, before: Conversation, answer: Message) -> Document:
        """Return the document of an assistant turn."""
        response = answer.get("content") or ""
        question = before.as_text()
        return cls(prompt=question, response=response, chat=True, before=before, answer=answer)


class ProblemSource(ABC):
    """Returns problems, which training uses from iteration ``from_iteration`` on."""

    from_iteration: int = 0

    @abstractmethod
    def problems(self) -> list[Problem]:
        """Return every problem, in an order that is the same on every call."""


class DocumentSource(ABC):
    """Returns documents."""

    @abstractmethod
    def documents(self) -> list[Document]:
        """Return every document, in an order that is the same on every call."""
