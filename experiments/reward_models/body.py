"""Body of a reward model without a pretrained policy: a tokenizer and an architecture.

    python -m experiments.reward_models.body STUDY VARIANT DIRECTORY [NAME=VALUE ...]

Byte-level BPE of the texts that a study's variant trains on, and a Llama of two layers without
weights, some 0.7 million parameters (``from_scratch: true``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tokenizers import pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from experiments.compose import Config
from experiments.launch import command_line, reported
from experiments.sweep import read_sweep
from r1lit.data.preference_data import split_examples
from r1lit.text.prompts import Conversation
from r1lit.worlds.scaffold import byte_level_bpe


def training_texts(config: Config) -> list[str]:
    """Return the texts of the examples that are trained on; what is held out stays unread."""
    data = config["data"]["init_args"]
    [source] = data["train"]
    module, _, name = source["class_path"].rpartition(".")
    examples = getattr(import_module(module), name)(**source["init_args"]).examples()
    train, _ = split_examples(examples, data["validation_share"], data.get("split_seed", 0))
    return [text for e in train for text in (_as_text(e.question), *e.responses) if text]


def _as_text(question: str | Conversation) -> str:
    return question if isinstance(question, str) else question.as_text()


def make_body(texts: Sequence[str], directory: Path) -> None:
    """Write tokenizer and architecture for ``texts`` to ``directory``."""
    tokenizer = train_tokenizer(texts)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(directory)
    architecture(tokenizer).save_pretrained(directory)


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


@reported("body")
def main(args: Sequence[str] | None = None) -> int:
    """Write the body of a study's variant; return the exit status."""
    parser = command_line("experiments.reward_models.body", __doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("variant")
    parser.add_argument("directory", type=Path, help="where to write")
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE", help="arguments of the study")
    options = parser.parse_args(args)
    values = dict(value.partition("=")[::2] for value in options.values)
    point = read_sweep(options.study, values=values).point(options.variant, 0)
    make_body(training_texts(point.config), options.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
