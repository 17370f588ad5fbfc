"""The start of pretraining: architecture and tokenizer of the base models, without weights.

``python -m r1lit.worlds.scaffold models/mini`` writes both; ``r1lit fit -c
configs/mini/pretrain.yaml`` trains weights for them. The student's are written by ``--size
student`` and trained by ``configs/mini/pretrain_student.yaml``; both have one tokenizer. ``--size
search`` has its own corpus and tokenizer (``configs/mini/pretrain_search.yaml``;
``search_100m`` is the size for one GPU, ``experiments/aha_long``), and so has ``--size
reasoning`` (``configs/mini/pretrain_reasoning.yaml``), ``--size tools``
(``configs/mini/pretrain_tools.yaml``) and ``--size repair``
(``configs/mini/pretrain_repair.yaml``).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from r1lit.worlds.corpus import WorldCorpus
from r1lit.worlds.language import vocabulary
from r1lit.worlds.repairs_corpus import RepairsCorpus
from r1lit.worlds.search_corpus import SearchCorpus
from r1lit.worlds.tools import CITIES, HARD, KNOWN, UNKNOWN
from r1lit.worlds.tools_corpus import ToolsCorpus

BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
USER, ASSISTANT = "<|user|>", "<|assistant|>"
TOOL, TOOLS = "<|tool|>", "<|tools|>"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}{{ eos_token }}"
    "{% else %}<|user|> {{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TOOLS_TEMPLATE = (
    "{{ bos_token }}{% if tools %}<|tools|>"
    "{% for tool in tools %} {{ tool['function']['name'] }}{% endfor %}{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}{{ eos_token }}"
    "{% elif message['role'] == 'tool' %}<|tool|>{{ message['content'] }}"
    "{% else %}<|user|> {{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Calls stand in the assistant's text; of tools the names are shown."""
VOCABULARY_SIZE = 4096  # at most; the corpus has no more merges to make than 1,416
PIECES = r" ?</?(?:think|answer)>|\p{Han}| ?[^\P{L}\p{Han}]+| ?\p{N}+| ?[^\s\p{L}\p{N}]|\s+"
"""A tag, a Chinese character, a word, a whole number, one punctuation mark, or white space."""
CALL_PIECES = PIECES.replace("think|answer", "call|result|answer")
REPAIR_PIECES = (
    r'</?tool_call>|\{"name": "|", "arguments": \{|"path": "|", "old": "|", "new": "|"?\}\}'
    r"|/program/repository/|tests/test_|::test_|app/|\.py|E +assert|E +\+ +where|\n?    \d +"
    r"| ==| ?-?\p{N}+| ?\p{L}+(?:_tests)?| ?[^\s\p{L}\p{N}]|\s+"
)
"""The same for conversations about repositories, whose frames are one token each."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a policy, with its context in tokens."""

    layers: int
    width: int
    inner_width: int
    context: int = 1024
    heads: int = 4


SIZES = {
    "mini": Size(layers=4, width=192, inner_width=512),  # 2.0 million parameters
    "student": Size(layers=2, width=128, inner_width=344),  # 0.6 million
    "search": Size(layers=4, width=192, inner_width=512, context=2048),
    "search_small": Size(layers=2, width=128, inner_width=344, context=2048),  # 0.5 million
    "search_100m": Size(layers=14, width=768, inner_width=2048, context=2048, heads=12),
    "reasoning": Size(layers=4, width=192, inner_width=512),
    "tools": Size(layers=4, width=128, inner_width=344, context=512),  # 0.9 million
    "repair": Size(layers=3, width=128, inner_width=344, context=640),  # 0.7 million
    "judge": Size(layers=9, width=192, inner_width=512, context=2048),  # 4.3 million
}


def train_tokenizer(
    num_documents: int = 4000, seed: int = 0, programs: float = 0.0, puzzles: float = 0.0
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on pages of the corpus, with these shares of reasoning."""
    # what is rare on the pages is to be one token too: every number, every word of the lexicon
    words = "".join(f" {english}{chinese}" for english, chinese in vocabulary())
    corpus = WorldCorpus(num_documents, seed, programs=programs, puzzles=puzzles)
    return _tokenizer_of(corpus, numbers_to(99) + words)


def train_search_tokenizer(num_documents: int = 4000, seed: int = 0) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on pages about searches, which round to 100."""
    return _tokenizer_of(SearchCorpus(num_documents, seed), numbers_to(100))


def train_tools_tokenizer(num_documents: int = 4000, seed: int = 0) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on pages about tasks with tools."""
    rare = numbers_to(HARD) + "".join(f" {name}" for name in (*KNOWN, *UNKNOWN, *CITIES))
    return _tokenizer_of(ToolsCorpus(num_documents, seed), rare, CALL_PIECES)


def train_repair_tokenizer(num_documents: int = 4000, seed: int = 0) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on pages about repairs."""
    rare = "".join(f"({n} {n} -{n})" for n in range(100))
    return _tokenizer_of(RepairsCorpus(num_documents, seed), rare, REPAIR_PIECES, TOOLS_TEMPLATE)


def numbers_to(largest: int) -> str:
    """Return the numbers from 0 as a text."""
    return "".join(f" {n}" for n in range(largest + 1))


def _tokenizer_of(
    corpus: WorldCorpus | SearchCorpus | ToolsCorpus | RepairsCorpus,
    rare: str,
    pieces: str = PIECES,
    chat_template: str = CHAT_TEMPLATE,
) -> PreTrainedTokenizerFast:
    return byte_level_bpe(
        [rare * corpus.num_documents, *(d.prompt + d.response for d in corpus.documents())],
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pieces), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        additional_special_tokens=[
            mark for mark in (USER, ASSISTANT, TOOL, TOOLS) if mark in chat_template
        ],
        chat_template=chat_template,
    )


def byte_level_bpe(
    texts: Iterable[str],
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    *,
    min_frequency: int = 0,
    **options: Any,
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on texts; what is encoded begins with one BOS.

    Args:
        texts: to learn merges from.
        pre_tokenizer: cuts texts into pieces, over which no merge goes.
        min_frequency: of a pair that is merged.
        **options: of ``PreTrainedTokenizerFast``; ``additional_special_tokens`` are tokens of their
            own.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY_SIZE,
            min_frequency=min_frequency,
            special_tokens=[PAD, BOS, EOS, *options.get("additional_special_tokens", ())],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # so any text can be written
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        **options,
    )


def architecture(tokenizer: PreTrainedTokenizerFast, size: Size) -> LlamaConfig:
    """Return a policy's configuration: Llama, its embeddings tied.

    Llama, because ``AutoTokenizer`` replaces the pre-tokenizer of whatever is saved beside a Qwen2.
    """
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        intermediate_size=size.inner_width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=size.context,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )


def main(args: Sequence[str] | None = None) -> None:
    """Write architecture and tokenizer to a directory."""
    parser = argparse.ArgumentParser(description="A base model's architecture and tokenizer.")
    parser.add_argument("directory", help="where to, such as models/mini")
    parser.add_argument("--size", choices=SIZES, default="mini", help="of the model")
    options = parser.parse_args(args)
    match options.size:
        case "search" | "search_small" | "search_100m":
            tokenizer = train_search_tokenizer()
        case "tools":
            tokenizer = train_tools_tokenizer()
        case "repair":
            tokenizer = train_repair_tokenizer()
        case "reasoning":
            tokenizer = train_tokenizer(programs=0.15, puzzles=0.15)
        case _:
            tokenizer = train_tokenizer()
    Path(options.directory).mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(options.directory)
    architecture(tokenizer, SIZES[options.size]).save_pretrained(options.directory)


if __name__ == "__main__":
    main()
