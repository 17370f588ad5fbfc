"""From documents to rows: tokenised, cut or refused, shuffled, packed whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from r1lit.data.base import Document
from r1lit.data.packing import TooLong, pack, truncate
from r1lit.data.prompts import EncodedDocument, encode_documents
from r1lit.seeding import permutation


@dataclass(frozen=True, kw_only=True)
class PackedDocuments:
    """Documents, rows as lists of indices into them, and how many documents lost their end."""

    documents: list[EncodedDocument]
    rows: list[list[int]]
    num_truncated: int


def pack_documents(
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
    documents = encode_documents(tokenizer, texts, show_progress)
    num_truncated = 0
    if too_long == "truncate":
        num_truncated = sum(len(document) > max_seq_len for document in documents)
        documents = truncate(documents, max_seq_len)
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
