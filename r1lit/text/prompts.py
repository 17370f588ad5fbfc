"""Prompts: questions put into a template, and tokenised."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from r1lit.text.templates import render

CHAT = "chat"


def prompt_text(
    tokenizer: PreTrainedTokenizerBase, template: str, question: str, system: str = ""
) -> str:
    """Return ``question`` in ``template``; "chat" is the tokenizer's own chat template.

    ``system`` is a system message there, and stands before any other template.

    Raises:
        ValueError: if there is no such template, or the tokenizer has no chat template.
    """
    if template != CHAT:
        return system + render(template, question)
    if not tokenizer.chat_template:
        raise ValueError(
            f"template: 'chat' needs a tokenizer with a chat template, which"
            f" {tokenizer.name_or_path or type(tokenizer).__name__!r} has not; r1_zero needs none"
        )
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert isinstance(text, str)
    return text


def render_prompt(
    tokenizer: PreTrainedTokenizerBase,
    template: str,
    wording: str,
    question: str,
    system: str = "",
) -> str:
    """Return ``question`` in ``wording``, at {question}, and the result in ``template``.

    Raises:
        ValueError: if the wording does not hold it; see ``prompt_text``.
    """
    if "{question}" not in wording:
        raise ValueError(f"wording: {wording!r} does not hold {{question}}")
    return prompt_text(tokenizer, template, wording.replace("{question}", question), system)


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
