"""Turns as text: calls in a reply, and the tokens of the environment's messages.

Sampled tokens are never decoded and encoded again: a turn is only appended, and only the
environment's part of it is tokenised. `ChatTurns` is a chat template's conversation; `InlineTurns`
is one response with results in it (Search-R1, 2503.09516; ToRL, 2503.23383), for base models and
R1-Zero's template.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import TemplateError

from r1lit.environments.base import Reply, ToolCall
from r1lit.text.prompts import CHAT, Conversation, Message, turn_end
from r1lit.text.special_tokens import literal, token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Schemas = Sequence[Mapping[str, Any]]
"""Tools as JSON schemas, ``{"type": "function", "function": {"name", "parameters", …}}``."""

INSTRUCTIONS = """You may call functions. A call is a JSON object between {open} and {close}:
{open}{{"name": <name>, "arguments": <arguments as an object>}}{close}
These are the functions, one a line:
{schemas}"""


class NotFiniteError(ValueError):
    """A number that JSON has not, such as NaN, or that is too large for a float."""


def _no_number(text: str) -> float:
    raise NotFiniteError(text)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotFiniteError(text[:20])
    return value


@dataclass(frozen=True, kw_only=True)
class TurnFormat(ABC):
    """A format of turns in tokens.

    Args:
        call_open: the text before a call.
        call_close: the text after a call.
    """

    call_open: str = "<tool_call>"
    call_close: str = "</tool_call>"

    def __post_init__(self) -> None:
        for key in ("call_open", "call_close"):
            if not getattr(self, key):
                raise ValueError(f"data.turns.{key}: it is empty; give the text around a call")

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a turn of the model, besides its end token."""
        return ()

    def read(self, text: str, finished: bool = True) -> Reply:
        """Return a turn with the calls in it; ``text`` may hold special tokens' texts.

        >>> ChatTurns().read('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>').calls
        (ToolCall(name='add', arguments={'a': 1}, id='0'),)
        """
        calls: list[ToolCall] = []
        error = ""
        for found in re.findall(
            f"{re.escape(self.call_open)}(.*?){re.escape(self.call_close)}", text, re.DOTALL
        ):
            try:
                calls.append(self.call(found.strip(), str(len(calls))))
            except ValueError as fault:
                error = error or str(fault)
        if not calls and not error and self.call_open in text:
            error = f"a call that {self.call_close} does not end"
        return Reply(text=text, calls=tuple(calls), error=error, finished=finished)

    def call(self, text: str, name: str) -> ToolCall:
        """Return the call that a text is; ``name`` is its id.

        Raises:
            ValueError: saying what is wrong with it.
        """
        try:
            value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a call with half of a surrogate pair") from None
        except NotFiniteError as fault:
            raise ValueError(f"a call that is not JSON: {fault} is no number there") from None
        except (ValueError, RecursionError):
            raise ValueError("a call that is not JSON") from None
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ValueError("a call without a name")
        arguments = value.get("arguments", value.get("parameters", {}))
        if not isinstance(arguments, dict):
            raise ValueError(f"a call of {value['name']!r} whose arguments are not an object")
        return ToolCall(name=value["name"], arguments=arguments, id=name)

    @abstractmethod
    def opening(
        self, question: str | Conversation, tools: Schemas, system_prompt: str
    ) -> str | Conversation:
        """Return the text or turns of the prompt, with the tools in it."""

    @abstractmethod
    def answer(self, texts: Sequence[str]) -> str:
        """Return the text of the model's turns that verifiers read."""

    @abstractmethod
    def encode(self, tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
        """Return the tokens that messages add after the end token of the model's turn.

        What messages say is text: the texts of special tokens in it give no such token.
        """

    def escaped(self, text: str) -> str:
        """Return a message's text, so that it cannot be taken for texts of this format."""
        return text

    @abstractmethod
    def check(self, tokenizer: PreTrainedTokenizerBase, template: str, tools: Schemas) -> None:
        """Check, before weights are loaded, that turns can stand so.

        Raises:
            ValueError: naming the key and what would be right.
        """


DUMMY = {"role": "user", "content": "Q"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


@dataclass(frozen=True, kw_only=True)
class ChatTurns(TurnFormat):
    r"""Turns of the tokenizer's chat template.

    Messages are put into the template after a question and an answer that stand for the
    conversation, and what comes after that answer's end token is tokenised. So the template's own
    text is there, such as the "\n" that ChatML writes after the end token; and no template can
    change what was sampled, as those do that leave earlier thinking out.

    Args:
        call_open: the text before a call.
        call_close: the text after a call.
        tools_in: "template" gives the tools to the template; "system" writes them into the system
            turn, for templates that show no tools.
        results_as: the role of a tool's results; "user" for templates that refuse "tool".
    """

    tools_in: Literal["template", "system"] = "template"
    results_as: Literal["tool", "user"] = "tool"

    def opening(
        self, question: str | Conversation, tools: Schemas, system_prompt: str
    ) -> str | Conversation:
        """Return the question as a conversation that shows the tools."""
        if not tools:
            return question
        if isinstance(question, str):
            question = Conversation.of([{"role": "user", "content": question}])
        if self.tools_in == "template":
            return Conversation.of(question.messages, list(tools))
        text = INSTRUCTIONS.format(
            open=self.call_open,
            close=self.call_close,
            schemas="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools),
        )
        first, *rest = question.messages
        if first["role"] == "system":
            system_prompt = str(first["content"])
        else:
            rest = [first, *rest]
        content = f"{system_prompt}\n\n{text}" if system_prompt else text
        return Conversation.of([{"role": "system", "content": content}, *rest])

    def answer(self, texts: Sequence[str]) -> str:
        """Return the last turn."""
        return texts[-1]

    def encode(self, tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of messages and of the beginning of the model's next turn."""
        text = self._behind_an_answer(tokenizer, literal(tokenizer, list(messages)))
        return token_ids(tokenizer, [text], add_special_tokens=False)[0]

    def _behind_an_answer(
        self, tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]
    ) -> str:
        answer: Message = {"role": "assistant", "content": "A"}
        if self.results_as == "tool" and any(m["role"] == "tool" for m in messages):
            answer["tool_calls"] = [CALL for m in messages if m["role"] == "tool"]
        messages = [{**m, "role": self.results_as} if m["role"] == "tool" else m for m in messages]
        name = "data.turns: the chat template"
        try:
            before = tokenizer.apply_chat_template([DUMMY, answer], tokenize=False)
            whole = tokenizer.apply_chat_template(
                [DUMMY, answer, *messages], tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise ValueError(
                f"{name} refuses a result of a tool: {error}; set results_as: user, or take"
                " r1lit.environments.InlineTurns"
            ) from error
        end_id = turn_end(tokenizer)
        end = "" if end_id is None else str(tokenizer.decode([end_id]))
        assert isinstance(before, str) and isinstance(whole, str)
        if not end or end not in before:
            raise ValueError(
                f"{name} ends an answer with no special token, so a turn cannot be continued;"
                " take r1lit.environments.InlineTurns"
            )
        kept = before[: before.rindex(end) + len(end)]
        if not whole.startswith(kept):
            raise ValueError(
                f"{name} writes an answer in another way once a message follows it; take"
                " r1lit.environments.InlineTurns"
            )
        return whole.removeprefix(kept)

    def check(self, tokenizer: PreTrainedTokenizerBase, template: str, tools: Schemas) -> None:
        """Check that the template shows tools and results, and only adds to what was there."""
        if template != CHAT:
            raise ValueError(
                f"data.prompts.template: {template!r} has no turns, which environments need; set it"
                " to chat, or data.turns to r1lit.environments.InlineTurns"
            )
        if not tokenizer.chat_template:
            raise ValueError(
                "data.prompts.template: 'chat' needs a tokenizer with a chat template, which this"
                " one has not; set data.turns to r1lit.environments.InlineTurns"
            )
        sign = "result-7301"
        shown = self._behind_an_answer(tokenizer, [{"role": "tool", "name": "f", "content": sign}])
        if sign not in shown:
            raise ValueError(
                "data.turns: the chat template leaves a tool's result out; set results_as: user"
            )
        if tools and self.tools_in == "template":
            shown_tools: list[Any] = list(tools)
            text = str(tokenizer.apply_chat_template([DUMMY], tools=shown_tools, tokenize=False))
            names = [str(tool["function"]["name"]) for tool in tools]
            hidden = [name for name in names if name not in text]
            if hidden:
                raise ValueError(
                    f"data.turns.tools_in: the chat template does not show the tool {hidden[0]!r};"
                    " set it to system"
                )


@dataclass(frozen=True, kw_only=True)
class InlineTurns(TurnFormat):
    """One response that stops after a call and goes on after its result.

    The prompt has to say how tools are called; ``data.prompts.wording`` is the place. A call is a
    JSON object, or plain text where there is one tool of one argument.

    Args:
        call_open: the text before a call.
        call_close: the text after a call, where the model stops.
        result_open: the text before a result.
        result_close: the text after a result.
    """

    call_open: str = "<call>"
    call_close: str = "</call>"
    result_open: str = " <result>"
    result_close: str = "</result>"

    @property
    def stop(self) -> tuple[str, ...]:
        """Return the end of a call."""
        return (self.call_close,)

    def call(self, text: str, name: str) -> ToolCall:
        """Return the call that a text is: JSON, or the only argument of the only tool."""
        if text.startswith("{"):
            return super().call(text, name)
        return ToolCall(name="", arguments={"": text}, id=name)

    def opening(
        self, question: str | Conversation, tools: Schemas, system_prompt: str
    ) -> str | Conversation:
        """Return the question as it is."""
        return question

    def answer(self, texts: Sequence[str]) -> str:
        """Return all that the model wrote."""
        return "".join(texts)

    def encode(self, tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of the results."""
        contents = [literal(tokenizer, self.escaped(m["content"])) for m in messages]
        text = "".join(f"{self.result_open}{content}{self.result_close}" for content in contents)
        return token_ids(tokenizer, [text], add_special_tokens=False)[0]

    def escaped(self, text: str) -> str:
        r"""Return a result in which the texts around calls and results have a backslash.

        >>> print(InlineTurns().escaped("5</result> <result>6"))
        5<\/result> <\result>6
        """
        marks = (self.call_open, self.call_close, self.result_open, self.result_close)
        for mark in sorted({mark.strip() for mark in marks}, key=len, reverse=True):
            if len(mark) > 1:
                sign = " " if mark[0] == "\\" else "\\"
                text = text.replace(mark, f"{mark[0]}{sign}{mark[1:]}")
        return text

    def check(self, tokenizer: PreTrainedTokenizerBase, template: str, tools: Schemas) -> None:
        """Check that the tokenizer can write the texts around calls and results."""
        for key in ("call_open", "call_close", "result_open", "result_close"):
            text = str(getattr(self, key))
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if str(tokenizer.decode(ids)).strip() != text.strip():
                raise ValueError(
                    f"data.turns.{key}: the tokenizer cannot write {text!r}; choose another text"
                )
