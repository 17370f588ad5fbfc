"""Conversations: messages with roles, as chat templates take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from r1lit.problems import Problem

Message = dict[str, Any]
KEY = "conversation"
"""The key of ``Problem.meta`` that holds the turns of a question, if these are messages."""


@dataclass(frozen=True)
class Conversation:
    """Messages and the tools that a template lists, kept as JSON: equal ones are equal keys.

    >>> chat = Conversation.of([{"role": "user", "content": "Hi"}])
    >>> chat.question(), chat.after("Be brief.").messages[0]["role"]
    ('Hi', 'system')
    """

    text: str
    tools_text: str = "null"

    @classmethod
    def of(cls, messages: Any, tools: Any = None) -> Conversation:
        """Return a conversation of a list of ``{"role": …, "content": …}``.

        Raises:
            ValueError: if it is none; the row and its column are for the caller to name.
        """
        if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
            raise ValueError(f"{str(messages)[:80]!r} is not a list of messages")
        for message in messages:
            is_one = isinstance(message, dict) and isinstance(message.get("role"), str)
            if not is_one or not isinstance(message.get("content"), str | None):
                raise ValueError(
                    f"{str(message)[:80]!r} is not a message; it needs a role and a text as content"
                )
        # tables of one type a column fill what a message has not with null
        kept = [{k: v for k, v in m.items() if v is not None or k == "content"} for m in messages]
        return cls(json.dumps(kept, ensure_ascii=False), json.dumps(tools or None))

    @property
    def messages(self) -> list[Message]:
        """The messages, in order."""
        messages: list[Message] = json.loads(self.text)
        return messages

    @property
    def tools(self) -> Any:
        """The tools, or None."""
        return json.loads(self.tools_text)

    def question(self) -> str:
        """Return the content of the only turn.

        Raises:
            ValueError: if there are several.
        """
        if len(self.messages) > 1:
            raise ValueError(
                f"template: a conversation of {len(self.messages)} messages needs the model's chat"
                " template; set template: chat"
            )
        return str(self.messages[0]["content"])

    def as_text(self) -> str:
        r"""Return the only turn behind the system's, or several with their roles, as a judge reads.

        >>> turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> Conversation.of(turns).as_text()
        'user: Hi\n\nassistant: Hello'
        """
        turns = [m for m in self.messages if m["role"] != "system"] or self.messages
        if len(turns) == 1:
            return str(turns[0]["content"])
        return "\n\n".join(f"{m['role']}: {m['content']}" for m in turns)

    def after(self, system_prompt: str) -> Conversation:
        """Return it behind a system turn, unless it has one or the prompt is empty."""
        if not system_prompt or self.messages[0]["role"] == "system":
            return self
        system = {"role": "system", "content": system_prompt}
        return Conversation.of([system, *self.messages], self.tools)

    def and_then(self, message: Message) -> Conversation:
        """Return it with one more message."""
        return Conversation.of([*self.messages, message], self.tools)

    def worded(self, wording: str) -> Conversation:
        """Return it with the last turn's content in a wording, at {question}."""
        *before, last = self.messages
        content = wording.replace("{question}", str(last["content"]))
        return Conversation.of([*before, {**last, "content": content}], self.tools)

    def answers(self) -> list[tuple[Conversation, Message]]:
        """Return every assistant turn with the conversation before it."""
        messages = self.messages
        return [
            (Conversation.of(messages[:i], self.tools), message)
            for i, message in enumerate(messages)
            if message["role"] == "assistant" and i > 0
        ]


def question_of(problem: Problem) -> str | Conversation:
    """Return what becomes the prompt: the question as text, or its turns."""
    turns = problem.meta.get(KEY)
    return turns if isinstance(turns, Conversation) else problem.question
