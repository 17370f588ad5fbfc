"""Documents and questions as tokens, and documents packed into rows of one length.

A document begins like every prompt (with BOS if the tokenizer adds one): a first token that was
never first in training is out of distribution.

Shape letters: R rows, L tokens a row. ``loss_mask_RL[r, t]`` true means that token t is a target,
predicted from token t - 1. The first token of a document is never a target, so no loss crosses
documents, and padding is never one. Positions restart at 0 with every document. They also restart
where the padding begins, so padding is a separate document.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only, rank_zero_warn
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from r1lit.data.sources import Document
from r1lit.seeding import permutation
from r1lit.supervised_batches import PackedRows
from r1lit.text.prompts import (
    CHAT,
    Conversation,
    answer_text,
    encode_prompts,
    hides_tools,
    literal_question,
    prompt_text,
    render_prompt,
)
from r1lit.text.special_tokens import held_control_token, well_formed

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
    openings: Sequence[str | Conversation],
    tokenizer: PreTrainedTokenizerBase,
    *,
    template: str,
    wording: str,
    system_prompt: str,
) -> list[tuple[int, ...]]:
    """Return the prompts of questions, as ``PromptOptions`` says.

    Questions of data went through `literal_question`, so that special tokens' texts stay text.
    """
    texts = [render_prompt(tokenizer, template, wording, q, system_prompt) for q in openings]
    return encode_prompts(tokenizer, texts)


@dataclass(frozen=True, kw_only=True)
class PromptLimit:
    """The most tokens that a prompt may have, and the setting that says so."""

    num_tokens: int
    setting: str

    @staticmethod
    def of(max_tokens: int | None, context: int | None) -> PromptLimit | None:
        """Return the lower of ``data.prompts.max_tokens`` and a model's context less one."""
        limits = []
        if max_tokens is not None:
            limits.append(PromptLimit(num_tokens=max_tokens, setting="data.prompts.max_tokens"))
        if context is not None:
            setting = "max_position_embeddings less 1"
            limits.append(PromptLimit(num_tokens=context - 1, setting=setting))
        return min(limits, key=lambda limit: limit.num_tokens, default=None)

    def check(self, prompts: Sequence[tuple[int, ...]], split: str, remedy: str) -> None:
        """Check that no prompt of ``data.split`` is longer.

        Raises:
            ValueError: saying how many are, how long the longest is, and which one it is.
        """
        lengths = [len(prompt) for prompt in prompts]
        num_longer = sum(length > self.num_tokens for length in lengths)
        if num_longer:
            raise ValueError(
                f"data.{split}: {num_longer} of {len(prompts)} prompts are longer than"
                f" {self.num_tokens} tokens ({self.setting}); the longest, of problem"
                f" {lengths.index(max(lengths)) + 1}, has {max(lengths)}; {remedy}"
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
    texts = [_texts_of(tokenizer, document) for document in documents]
    prompts = encode_prompts(tokenizer, [prompt for prompt, _ in texts])
    answers = [well_formed(answer) for _, answer in texts]
    responses = tokenizer(answers, add_special_tokens=False, verbose=False)["input_ids"]
    encoded = []
    for prompt, response in zip(prompts, responses, strict=True):
        end = [] if response and response[-1] == eos else [eos]
        tokens = np.array([*prompt, *response, *end], dtype=np.int32)
        encoded.append(EncodedDocument(tokens=tokens, num_prompt_tokens=len(prompt)))
    return encoded


def _texts_of(tokenizer: PreTrainedTokenizerBase, document: Document) -> tuple[str, str]:
    """Return prompt and response as text.

    Questions are data: special tokens' texts in them are text. A response is what the model is to
    write, with its special tokens.
    """
    if not document.chat and document.asked is None:
        return document.prompt, document.response
    template, text = document.asked or (CHAT, document.prompt)
    question: str | Conversation = document.before or text
    if not document.special_tokens_in_questions:
        question = literal_question(tokenizer, question)
    prompt = prompt_text(tokenizer, template, question)
    if document.answer is None or isinstance(question, str):
        return prompt, document.response
    return prompt, answer_text(tokenizer, question, document.answer)


def warn_of_special_tokens(
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[str | Conversation],
    where: str,
    switch: str,
) -> None:
    """Warn, in one line, if questions hold the texts of special tokens, which are read as text."""
    held = [
        held_control_token(tokenizer, question)
        if isinstance(question, str)
        else held_control_token(tokenizer, question.text, with_markup=True)
        for question in questions
    ]
    found = [token for token in held if token is not None]
    if found:
        rank_zero_warn(
            f"{where}: {len(found)} of {len(questions)} questions hold the text of a special token,"
            f" the first {found[0]!r}; it is read as text, and {switch}: true reads it as the token"
        )


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
        print(f"First {what} as sent: {shortened(str(tokenizer.decode(ids)))!r}", flush=True)


def shortened(text: str, most: int = 1200) -> str:
    """Return a text with its middle left out, if it is longer than ``most`` characters.

    >>> shortened("abcdefgh", 6)
    'abc … fgh'
    """
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"


LossOn = Literal["response", "all"]
TooLong = Literal["error", "truncate"]


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Assign documents to rows of ``capacity`` tokens: each goes where it leaves least room.

    Best fit in the order given, the earlier row on a tie. No document is split. Any two rows
    together hold more than ``capacity`` tokens, so fewer than half of all slots stay empty.

    >>> pack([3, 5, 4, 2], capacity=7)
    [[0, 2], [1, 3]]

    Raises:
        ValueError: if documents are longer than a row.
    """
    _refuse_longer_documents(lengths, capacity)
    rows: list[list[int]] = []
    open_rows: list[tuple[int, int]] = []
    for index, length in enumerate(lengths):
        fits = bisect_left(open_rows, (length, -1))
        if fits < len(open_rows):
            room, row = open_rows.pop(fits)
        else:
            room, row = capacity, len(rows)
            rows.append([])
        rows[row].append(index)
        if room > length:
            insort(open_rows, (room - length, row))
    return rows


NAMED = 5  # documents that are too long, of all


def _refuse_longer_documents(lengths: Sequence[int], capacity: int) -> None:
    longer = {index: length for index, length in enumerate(lengths) if length > capacity}
    if not longer:
        return
    named = [f"{index} ({length})" for index, length in list(longer.items())[:NAMED]]
    more = "" if len(longer) <= NAMED else " …"
    raise ValueError(
        f"data.packing.max_seq_len: {capacity} tokens are too few for {len(longer)} of"
        f" {len(lengths)} documents: {', '.join(named)}{more}; the longest has"
        f" {max(longer.values())}; raise it or set too_long: truncate"
    )


def truncate(documents: Sequence[EncodedDocument], max_seq_len: int) -> list[EncodedDocument]:
    """Cut documents to ``max_seq_len`` tokens; what is cut off includes EOS.

    Raises:
        ValueError: if a prompt alone fills a row, which would leave nothing to learn.
    """
    for index, document in enumerate(documents):
        if document.num_prompt_tokens >= max_seq_len:
            raise ValueError(
                f"data.packing.max_seq_len: {max_seq_len} tokens leave no room for a response in"
                f" document {index}, whose prompt has {document.num_prompt_tokens}"
            )
    return [
        document
        if len(document) <= max_seq_len
        else EncodedDocument(
            tokens=document.tokens[:max_seq_len], num_prompt_tokens=document.num_prompt_tokens
        )
        for document in documents
    ]


def target_mask(document: EncodedDocument, loss_on: LossOn) -> np.ndarray:
    """Return which tokens of a document are targets: its response, or everything.

    Never its first token, for which there is nothing to predict it from.
    """
    mask = np.ones(len(document), dtype=bool)
    if loss_on == "response":
        mask[: document.num_prompt_tokens] = False
    mask[0] = False
    return mask


def count_rows(
    documents: Sequence[EncodedDocument],
    rows: Sequence[Sequence[int]],
    max_seq_len: int,
    loss_on: LossOn,
) -> dict[str, int | float]:
    """Return how many documents, tokens, targets and rows there are, and how full the rows are."""
    num_tokens = sum(map(len, documents))
    return {
        "num_documents": len(documents),
        "num_tokens": num_tokens,
        "num_targets": sum(int(target_mask(d, loss_on).sum()) for d in documents),
        "num_rows": len(rows),
        "fill": num_tokens / (len(rows) * max_seq_len),
    }


def build_rows(
    documents: Sequence[EncodedDocument],
    rows: Sequence[Sequence[int]],
    *,
    max_seq_len: int,
    pad_id: int,
    loss_on: LossOn,
    iteration: int = 0,
) -> PackedRows:
    """Lay out ``rows``, each a list of indices into ``documents``.

    Documents of 3 and 2 tokens in a row of 7, the first with 2 prompt tokens, the second with 1::

        input_ids   a b c d e . .
        position    0 1 2 0 1 0 1
        loss_mask   - - x - x - -     (loss_on="response")
        loss_mask   - x x - x - -     (loss_on="all")
    """
    input_ids_RL = torch.full((len(rows), max_seq_len), pad_id, dtype=torch.long)
    position_ids_RL = torch.zeros((len(rows), max_seq_len), dtype=torch.long)
    loss_mask_RL = torch.zeros((len(rows), max_seq_len), dtype=torch.bool)
    for r, row in enumerate(rows):
        start = 0
        for index in row:
            document = documents[index]
            stop = start + len(document)
            assert stop <= max_seq_len, (stop, max_seq_len)
            input_ids_RL[r, start:stop] = torch.from_numpy(document.tokens.astype(np.int64))
            position_ids_RL[r, start:stop] = torch.arange(len(document))
            loss_mask_RL[r, start:stop] = torch.from_numpy(target_mask(document, loss_on))
            start = stop
        position_ids_RL[r, start:] = torch.arange(max_seq_len - start)
    return PackedRows(
        iteration=iteration,
        input_ids_RL=input_ids_RL,
        position_ids_RL=position_ids_RL,
        loss_mask_RL=loss_mask_RL,
    )


@dataclass(frozen=True, kw_only=True)
class PackedDocuments:
    """Documents, rows as lists of indices into them, and how many documents lost their end."""

    documents: list[EncodedDocument]
    rows: list[list[int]]
    num_truncated: int


def pack_rows(
    texts: Sequence[Document],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_seq_len: int,
    too_long: TooLong,
    context: int | None,
    shuffle_seed: int | None,
    show_progress: bool,
) -> PackedDocuments:
    """Tokenise documents and pack them into rows of ``max_seq_len`` tokens.

    Args:
        texts: the documents, at least one.
        tokenizer: the policy's.
        max_seq_len: tokens of a row.
        too_long: what becomes of a document longer than a row.
        context: the most tokens the policy attends over, if known.
        shuffle_seed: of the order in which documents are packed; None keeps theirs.
        show_progress: whether a bar may be shown on stderr.

    Raises:
        ValueError: if a document is longer than a row, unless truncated, or than the context.
    """
    questions = [text.before or (text.asked or ("", text.prompt))[1] for text in texts
                 if (text.chat or text.asked) and not text.special_tokens_in_questions]  # fmt: skip
    switch = "special_tokens_in_questions of their source"
    warn_of_special_tokens(tokenizer, questions, "data.documents", switch)
    given = next((text.before for text in texts if text.before and text.before.tools), None)
    if given is not None and hides_tools(tokenizer, given):
        rank_zero_warn("data.documents: the chat template shows nothing of the rows' tools")
    documents = encode_documents(tokenizer, texts, show_progress)
    num_truncated = 0
    if too_long == "truncate":
        num_truncated = sum(len(document) > max_seq_len for document in documents)
        documents = truncate(documents, max_seq_len)
    _refuse_longer_documents([len(document) for document in documents], max_seq_len)  # their order
    if shuffle_seed is not None:
        order = permutation(len(documents), shuffle_seed, "pack")
        documents = [documents[i] for i in order]
    rows = pack([len(document) for document in documents], max_seq_len)
    longest = max(map(len, documents))
    if context is not None and longest > context:
        raise ValueError(
            f"data.packing.max_seq_len: {max_seq_len} lets in a document of {longest} tokens, but"
            f" the model's max_position_embeddings is {context}"
        )
    return PackedDocuments(documents=documents, rows=rows, num_truncated=num_truncated)
