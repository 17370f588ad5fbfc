"""Tokenises documents; prompts are templated and tokenised in `r1lit.text.prompts`.

A document begins like every prompt (with BOS if the tokenizer adds one), because a model that
never saw a first token come first treats it as noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from r1lit.data.base import Document
from r1lit.text.conversation import Conversation
from r1lit.text.prompts import CHAT, answer_text, encode_prompts, prompt_text, render_prompt

CHUNK = 1024
PROGRESS_FROM = 5000


@dataclass(frozen=True, kw_only=True)
class EncodedDocument:
    """A document as token ids, prompt first, of which ``num_prompt_tokens`` are the prompt's."""

    tokens: np.ndarray
    num_prompt_tokens: int

    def __len__(self) -> int:
        return len(self.tokens)


def encode_questions(
    questions: Sequence[str | Conversation],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    wording: str,
    system_prompt: str,
    max_tokens: int | None,
    context: int | None,
    split: str,
) -> list[tuple[int, ...]]:
    """Return the prompts of ``questions``, as ``PromptOptions`` says.

    Raises:
        ValueError: if one is longer than ``max_tokens``, or leaves no room in the ``context``.
    """
    texts = [render_prompt(tokenizer, template, wording, q, system_prompt) for q in questions]
    prompts = encode_prompts(tokenizer, texts)
    if max_tokens is not None:
        refuse_longer(prompts, max_tokens, split, "data.prompts.max_tokens")
    if context is not None:
        refuse_longer(prompts, context - 1, split, "max_position_embeddings less 1")
    return prompts


def refuse_longer(
    prompts: Sequence[tuple[int, ...]], limit: int, split: str, limit_name: str
) -> None:
    """Check that no prompt has more than ``limit`` tokens.

    Raises:
        ValueError: saying how many have, and how long the longest is.
    """
    lengths = [len(prompt) for prompt in prompts]
    num_longer = sum(length > limit for length in lengths)
    if num_longer:
        raise ValueError(
            f"data.{split}: {num_longer} of {len(prompts)} prompts are longer than {limit} tokens"
            f" ({limit_name}); the longest has {max(lengths)}"
        )


def encode_documents(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document], show_progress: bool = True
) -> list[EncodedDocument]:
    """Return documents as prompt tokens, response tokens and EOS.

    The two parts are tokenised apart, as they are in a rollout. A response that ends in EOS
    already gets no second one. From 5,000 documents on, a progress bar is shown on stderr.
    """
    bar = tqdm(
        total=len(documents),
        desc="tokenising",
        unit="doc",
        disable=not show_progress or len(documents) < PROGRESS_FROM,
    )
    with bar:
        encoded = []
        for chunk in _chunks(documents):
            encoded += _encode_chunk(tokenizer, chunk)
            bar.update(len(chunk))
    return encoded


def _chunks(documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    for start in range(0, len(documents), CHUNK):
        yield documents[start : start + CHUNK]


def _encode_chunk(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document]
) -> list[EncodedDocument]:
    eos = tokenizer.eos_token_id
    prompts = encode_prompts(tokenizer, [_prompt_of(tokenizer, d) for d in documents])
    answers = [
        d.response if d.before is None or d.answer is None
        else answer_text(tokenizer, d.before, d.answer)
        for d in documents
    ]  # fmt: skip
    responses = tokenizer(answers, add_special_tokens=False, verbose=False)["input_ids"]
    encoded = []
    for prompt, response in zip(prompts, responses, strict=True):
        end = [] if response and response[-1] == eos else [eos]
        tokens = np.array([*prompt, *response, *end], dtype=np.int32)
        encoded.append(EncodedDocument(tokens=tokens, num_prompt_tokens=len(prompt)))
    return encoded


def _prompt_of(tokenizer: PreTrainedTokenizerBase, document: Document) -> str:
    if not document.chat:
        return document.prompt
    return prompt_text(tokenizer, CHAT, document.before or document.prompt)


@rank_zero_only
def show_first(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[tuple[int, ...]],
    documents: Sequence[EncodedDocument],
) -> None:
    """Print prompts, and documents in their two parts, as the model gets them."""
    shown = [("prompt", list(prompt)) for prompt in prompts]
    for document in documents:
        ids = document.tokens.tolist()
        shown.append(("document", ids[: document.num_prompt_tokens]))
        shown.append(("document's response", ids[document.num_prompt_tokens :]))
    for what, ids in shown:
        print(f"First {what} as sent: {shortened(tokenizer.decode(ids))!r}", flush=True)


def shortened(text: str, most: int = 1200) -> str:
    """Return a text with its middle left out, if it is longer than ``most`` characters.

    >>> shortened("abcdefgh", 6)
    'abc … fgh'
    """
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"
