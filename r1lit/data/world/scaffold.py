"""What pretraining starts from: the mini policy's architecture and tokenizer, without weights.

``python -m r1lit.data.world.scaffold models/mini`` writes both; ``r1lit fit -c
configs/mini/pretrain.yaml`` trains weights for them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from r1lit.data.world.corpus import WorldCorpus

BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
VOCABULARY_SIZE = 448
PIECES = r" ?</?(?:think|answer)>| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]|\s+"
"""A tag, a word, a whole number, one punctuation mark, or white space."""


def train_tokenizer(num_documents: int = 4000, seed: int = 0) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on pages of the corpus; every document begins with one BOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    pages = WorldCorpus(num_documents, seed).documents()
    numbers = "".join(f" {n}" for n in range(100))
    tokenizer.train_from_iterator(
        [numbers * num_documents, *(d.prompt + d.response for d in pages)],
        trainers.BpeTrainer(
            vocab_size=VOCABULARY_SIZE, special_tokens=[PAD, BOS, EOS], show_progress=False
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
    """Return the mini policy's configuration: Llama with 4 layers and 1.7 million parameters.

    Llama, because ``AutoTokenizer`` replaces the pre-tokenizer of whatever is saved beside a Qwen2.
    """
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )


def main(directory: str) -> None:
    """Write architecture and tokenizer to ``directory``."""
    tokenizer = train_tokenizer()
    Path(directory).mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(directory)
    architecture(tokenizer).save_pretrained(directory)


if __name__ == "__main__":
    main(sys.argv[1])
