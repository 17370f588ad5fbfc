"""What a reward model without a pretrained policy starts from: a tokenizer and an architecture.

Byte-level BPE of the training texts, and a Llama of two layers without weights, some 0.7 million
parameters (``from_scratch: true``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
VOCABULARY_SIZE = 4096


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
    """Train byte-level BPE; every prompt begins with one BOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY_SIZE,
            min_frequency=2,
            special_tokens=[PAD, BOS, EOS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
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
    )


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
