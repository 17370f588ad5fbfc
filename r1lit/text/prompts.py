"""Prompts: questions and conversations put into a template, and tokenised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from r1lit.text.conversation import Conversation, Message
from r1lit.text.templates import render

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
    """Return what an assistant turn adds to the prompt of the turns before it, its EOS included.

    Where the chat template rewrites the turn, as those do that leave thinking out, or where it does
    not go on from its own prompt, it is the turn's content as it stands.

    Raises:
        ValueError: if that would be empty.
    """
    prompt = prompt_text(tokenizer, CHAT, before)
    whole = _in_chat_template(tokenizer, before.and_then(answer), add_generation_prompt=False)
    added = whole.removeprefix(prompt) if whole.startswith(prompt) else ""
    end = tokenizer.eos_token
    if isinstance(end, str) and end in added:
        added = added[: added.rindex(end) + len(end)]
    content = answer.get("content") or ""
    if added and content.strip() in added:
        return added
    if not content:
        raise ValueError("template: the chat template shows nothing of an assistant turn")
    return content


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
        raise ValueError(f"wording: {wording!r} does not hold {{question}}")
    if isinstance(question, str):
        question = wording.replace("{question}", question)
    elif wording != "{question}":
        question = question.worded(wording)
    return prompt_text(tokenizer, template, question, system_prompt)


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[tuple[int, ...]]:
    """Return the token ids of templated prompts, special tokens as the tokenizer adds them.

    Llama adds BOS and Qwen nothing. A BOS that the text already begins with (a chat template
    writes it) is not doubled, and an EOS that the tokenizer appends is removed: a response
    follows.
    """
    if not texts:
        return []
    encoded = tokenizer(list(texts), verbose=False)["input_ids"]
    probe = tokenizer("a")["input_ids"]
    if probe[-1] == tokenizer.eos_token_id:
        encoded = [ids[:-1] for ids in encoded]
    bos = tokenizer.bos_token_id
    if bos is not None and probe[0] == bos:
        encoded = [ids[1:] if list(ids[:2]) == [bos, bos] else ids for ids in encoded]
    return [tuple(ids) for ids in encoded]
