"""What a reward model without a pretrained policy starts from: a tokenizer and an architecture.

Byte-level BPE of the training texts, and a Llama of two layers without weights, some 0.7 million
parameters (``from_scratch: true``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from r1lit.data.preference_loader import split_examples
from r1lit.data.preferences import PreferenceSource
from r1lit.worlds.scaffold import byte_level_bpe


def training_texts(source: PreferenceSource, data: Mapping[str, Any]) -> list[str]:
    """Return the texts of the examples that are trained on; what is held out stays unread.

    ``data`` are the init_args of a preset's data: its split is taken.
    """
    share, seed = data["validation_share"], data.get("split_seed", 0)
    train, _ = split_examples(source.examples(), share, seed)
    return [text for e in train for text in (e.question, *e.responses) if text]


def make_body(texts: Sequence[str], folder: Path) -> Path:
    """Write tokenizer and architecture for ``texts`` below ``folder``, and return where.

    The directory's name is a digest of the texts: what is there already is theirs.
    """
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    directory = folder / digest
    if not (directory / "config.json").exists():
        tokenizer = train_tokenizer(texts)
        directory.mkdir(parents=True, exist_ok=True)
        tokenizer.save_pretrained(directory)
        architecture(tokenizer).save_pretrained(directory)
    return directory


def train_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Train byte-level BPE, of pairs that come twice at least."""
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return byte_level_bpe(texts, whole, min_frequency=2)


def architecture(tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    """Return a Llama of two layers, 128 wide."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    )
