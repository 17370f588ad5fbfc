"""Documents of recorded lengths, the same tokens for both sides."""

from __future__ import annotations

import random

from transformers import PreTrainedTokenizerBase

from benchmarks.work import SupervisedWork
from r1lit.data.packing import EncodedDocument, encode_documents
from r1lit.data.sources import Document, DocumentSource


class RecordedDocuments(DocumentSource):
    """Documents whose tokens, with BOS and EOS, number ``lengths``; the words are drawn."""

    def __init__(self, work: SupervisedWork, tokenizer: PreTrainedTokenizerBase) -> None:
        self.work = work
        self.words = _single_token_words(tokenizer)
        self.num_special = len(encode_documents(tokenizer, [Document(prompt="", response="")])[0])

    def documents(self) -> list[Document]:
        """Return the documents, in order."""
        generator = random.Random(self.work.seed)
        return [
            Document(
                prompt="",
                response="".join(generator.choices(self.words, k=length - self.num_special)),
            )
            for length in self.work.lengths
        ]


def encoded(work: SupervisedWork, tokenizer: PreTrainedTokenizerBase) -> list[EncodedDocument]:
    """Return the documents as r1lit encodes them.

    Raises:
        ValueError: if a document's tokens are not as many as recorded.
    """
    documents = encode_documents(tokenizer, RecordedDocuments(work, tokenizer).documents())
    lengths = tuple(map(len, documents))
    if lengths != work.lengths:
        raise ValueError(f"documents of {lengths[:4]} tokens and not {work.lengths[:4]}")
    return documents


def _single_token_words(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    candidates = [f" {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    candidates += [f" {number}" for number in range(10)] + list("()+-*/=")
    ids = tokenizer(candidates, add_special_tokens=False)["input_ids"]
    return [word for word, tokens in zip(candidates, ids, strict=True) if len(tokens) == 1]
