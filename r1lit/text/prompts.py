"""Prompts: wording, templates and tokens of questions and conversations."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from r1lit.problems import Problem
from r1lit.text.special_tokens import literal, token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
        r"""Return the only turn after the system's, or several with their roles, as a judge reads.

        >>> turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> Conversation.of(turns).as_text()
        'user: Hi\n\nassistant: Hello'
        """
        turns = [m for m in self.messages if m["role"] != "system"] or self.messages
        if len(turns) == 1:
            return str(turns[0]["content"])
        return "\n\n".join(f"{m['role']}: {m['content']}" for m in turns)

    def after(self, system_prompt: str) -> Conversation:
        """Return the conversation after a system turn, unless it has one or the prompt is empty."""
        if not system_prompt or self.messages[0]["role"] == "system":
            return self
        system = {"role": "system", "content": system_prompt}
        return Conversation.of([system, *self.messages], self.tools)

    def and_then(self, message: Message) -> Conversation:
        """Return the conversation with one more message."""
        return Conversation.of([*self.messages, message], self.tools)

    def and_text(self, text: str) -> Conversation:
        r"""Return the conversation with a text as a new line of its last turn.

        >>> Conversation.of([{"role": "user", "content": "Play"}]).and_text("1 to 9").question()
        'Play\n1 to 9'
        """
        *before, last = self.messages
        content = f"{last['content']}\n{text}" if last["content"] else text
        return Conversation.of([*before, {**last, "content": content}], self.tools)

    def worded(self, wording: str) -> Conversation:
        """Return the conversation with the last turn's content in a wording, at {question}."""
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
    """Return the question of a prompt: its text, or its turns."""
    turns = problem.meta.get(KEY)
    return turns if isinstance(turns, Conversation) else problem.question


WRITTEN_WITH_MARKUP = ("assistant", "system", "developer")


def literal_question(
    tokenizer: PreTrainedTokenizerBase, question: str | Conversation
) -> str | Conversation:
    """Return a question of data for a template, in which control tokens' texts stay text.

    In turns of the assistant and the system markup stays, such as ``<think>`` and ``<tool_call>``:
    they are written in the model's own form. Special tokens are text there too.
    """
    if isinstance(question, str):
        return literal(tokenizer, question)
    messages = [
        literal(tokenizer, message, with_markup=message["role"] in WRITTEN_WITH_MARKUP)
        for message in question.messages
    ]
    return Conversation.of(messages, literal(tokenizer, question.tools))


def extended(question: str | Conversation, text: str) -> str | Conversation:
    """Return a question with a text after it, on a line of its own."""
    if isinstance(question, Conversation):
        return question.and_text(text)
    return f"{question}\n{text}" if question else text


R1_ZERO = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves"
    " it. The assistant first thinks about the reasoning process in the mind and then provides the"
    " user with the answer. The reasoning process and answer are enclosed within <think> </think>"
    " and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think>"
    " <answer> answer here </answer>. User: {question}. Assistant:"
)
"""DeepSeek-R1, arXiv 2501.12948v1, Table 1; ``{question}`` stands for the paper's red *prompt*.

Its second version and the journal print ``<think>...</think>`` and ``<answer>...</answer>`` in the
sentence about the tags. r1lit keeps v1's, which the shipped models were trained on."""

SMALL_WORLD = R1_ZERO.replace("{question}.", "{question}")
"""R1-Zero's without the period after the question, as the shipped base was pretrained on it."""

TEMPLATES = {
    "r1_zero": R1_ZERO,
    "small_world": SMALL_WORLD,
    "question_answer": "Question: {question}\nAnswer:",
    "plain": "{question}",
}


def render(template: str, question: str) -> str:
    """Return ``question`` in the template named ``template``, or in a template given in full.

    Raises:
        ValueError: if it names no template and holds no ``{question}``.
    """
    text = TEMPLATES.get(template, template)
    if "{question}" not in text:
        raise ValueError(
            f"template: {template!r} is neither one of {sorted([*TEMPLATES, 'chat'])} nor a text"
            " that holds {question}"
        )
    return text.replace("{question}", question)


_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_ |]*)\}")


def squeezed(text: str) -> str:
    """Return ``text`` with every run of white space as one space, none at its ends."""
    return " ".join(text.split())


def columns_in(wording: str) -> list[str]:
    """Return the columns, or alternatives, that a wording names.

    >>> columns_in("{question} Tests: {test_list|test}")
    ['question', 'test_list|test']
    """
    return list(dict.fromkeys(_PLACE.findall(wording)))


def first_of(alternatives: str, columns: Collection[str]) -> str:
    """Return the first of ``a|b`` that is a column; the first if none is, for an error to name.

    >>> first_of("text|prompt", ["prompt", "test"])
    'prompt'
    """
    names = alternatives.split("|")
    return next((name for name in names if name in columns), names[0])


def put_in_words(wording: str, row: Mapping[str, Any]) -> str:
    r"""Return ``wording`` with the row's cells in their places; an empty cell leaves nothing.

    Lists stand one item a line, and examples (``input`` and ``output``) under these two words.

    >>> put_in_words("Sum: {q}{note}", {"q": "1 + 2", "note": None})
    'Sum: 1 + 2'
    >>> put_in_words("{t}", {"t": ["assert f(1)", "assert f(2)"]})
    'assert f(1)\nassert f(2)'
    """
    return filled(wording, row).strip()


def filled(wording: str, row: Mapping[str, Any]) -> str:
    """Return ``put_in_words``' text with the wording's own white space at both ends."""
    return _PLACE.sub(lambda match: _in_words(row.get(first_of(match[1], row))), wording)


def _in_words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping) and {"input", "output"} <= value.keys():
        return f"Input:\n{str(value['input']).rstrip()}\nOutput:\n{str(value['output']).rstrip()}"
    if isinstance(value, list | tuple):
        return "\n".join(_in_words(item) for item in value)
    return str(value)


CHAT = "chat"


def prompt_text(
    tokenizer: PreTrainedTokenizerBase,
    template: str,
    question: str | Conversation,
    system_prompt: str = "",
) -> str:
    """Return a question or a conversation in ``template``; "chat" is the tokenizer's own template.

    ``system_prompt`` is the system turn of a conversation that has none.

    Raises:
        ValueError: if there is no such template, or the tokenizer has no chat template, or several
            turns are put into another one.
    """
    if template != CHAT:
        return render(template, question if isinstance(question, str) else question.question())
    if isinstance(question, str):
        question = Conversation.of([{"role": "user", "content": question}])
    return _in_chat_template(tokenizer, question.after(system_prompt), add_generation_prompt=True)


def answer_text(tokenizer: PreTrainedTokenizerBase, before: Conversation, answer: Message) -> str:
    """Return an assistant turn as it continues the prompt of the turns before, with its EOS.

    Where the chat template rewrites the turn, as those do that leave thinking out, or where it does
    not go on from its own prompt, it is the turn's content as it stands.

    Raises:
        ValueError: if that would be empty, or the template leaves a tool call of the turn out.
    """
    prompt = prompt_text(tokenizer, CHAT, before)
    whole = _in_chat_template(tokenizer, before.and_then(answer), add_generation_prompt=False)
    added = whole.removeprefix(prompt) if whole.startswith(prompt) else ""
    end = tokenizer.eos_token
    if isinstance(end, str) and end in added:
        added = added[: added.rindex(end) + len(end)]
    content = answer.get("content") or ""
    for call in answer.get("tool_calls") or ():
        name = str((call.get("function") or call).get("name"))
        if name not in added.replace(content.strip(), "", 1):
            raise ValueError(
                f"template: the chat template leaves out the call of {name!r} in an assistant's"
                " tool_calls; write the call into its content, or give the tokenizer a chat"
                " template that shows it"
            )
    if added and content.strip() in added:
        return added
    if not content:
        raise ValueError("template: the chat template shows nothing of an assistant turn")
    return content


def hides_tools(tokenizer: PreTrainedTokenizerBase, conversation: Conversation) -> bool:
    """Return whether the chat template shows nothing of a conversation's tools."""
    without = Conversation.of(conversation.messages)
    shown = prompt_text(tokenizer, CHAT, conversation)
    return bool(conversation.tools) and shown == prompt_text(tokenizer, CHAT, without)


def turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the special token that ends an assistant turn in the chat template, if one does.

    It may be another than EOS: base models' tokenizers often end documents with EOS and turns with
    a token of the chat template's own.
    """
    content = "Hello there"
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]
    try:
        text = _in_chat_template(tokenizer, Conversation.of(turns), add_generation_prompt=False)
    except ValueError:  # no template, or one that takes no such turns
        return None
    _, found, after = text.rpartition(content)
    if not found or not after.strip():
        return None
    first = tokenizer(after.lstrip(), add_special_tokens=False, verbose=False)["input_ids"][0]
    added = tokenizer.added_tokens_decoder
    is_special = first in tokenizer.all_special_ids or (first in added and added[first].special)
    return int(first) if is_special else None


def _in_chat_template(
    tokenizer: PreTrainedTokenizerBase, conversation: Conversation, add_generation_prompt: bool
) -> str:
    if not tokenizer.chat_template:
        raise ValueError(
            f"template: 'chat' needs a tokenizer with a chat template, which"
            f" {tokenizer.name_or_path or type(tokenizer).__name__!r} has not; r1_zero needs none"
        )
    try:
        text = tokenizer.apply_chat_template(
            conversation.messages,
            tools=conversation.tools,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
        )
    except TemplateError as error:
        raise ValueError(f"template: the chat template refuses the messages: {error}") from error
    assert isinstance(text, str)
    return text


def render_prompt(
    tokenizer: PreTrainedTokenizerBase,
    template: str,
    wording: str,
    question: str | Conversation,
    system_prompt: str = "",
) -> str:
    """Return ``question`` in ``wording``, at {question}, and the result in ``template``.

    Of a conversation it is the last turn that is put into the wording.

    Raises:
        ValueError: if the wording does not hold it; see ``prompt_text``.
    """
    if "{question}" not in wording:
        raise ValueError(f"wording: {wording!r} does not contain {{question}}")
    if isinstance(question, str):
        question = wording.replace("{question}", question)
    elif wording != "{question}":
        question = question.worded(wording)
    return prompt_text(tokenizer, template, question, system_prompt)


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[tuple[int, ...]]:
    """Return the token ids of templated prompts, special tokens as the tokenizer adds them.

    What `literal` has broken stays text. Llama adds BOS and Qwen nothing. A BOS that the text
    already begins with (a chat template writes it) is not doubled, and an EOS that the tokenizer
    appends is removed: a response follows.
    """
    if not texts:
        return []
    encoded = token_ids(tokenizer, texts)
    probe = tokenizer("a")["input_ids"]
    if probe[-1] == tokenizer.eos_token_id:
        encoded = [ids[:-1] for ids in encoded]
    bos = tokenizer.bos_token_id
    if bos is not None and probe[0] == bos:
        encoded = [ids[1:] if list(ids[:2]) == [bos, bos] else ids for ids in encoded]
    return [tuple(ids) for ids in encoded]
