"""Grows a base model of the small world into a larger one that reads judges' prompts.

    python -m experiments.model_in_the_loop.grow models/mini runs/model_in_the_loop/grown

The base's layers stand spread among new ones, copies that change nothing at first: their last
products are zero, as in LLaMA Pro (2401.02415). So the larger model begins as the base, with its
words and facts, and fine-tuning uses what was added. The constant parts of r1lit's three prompts,
and the ends of their replies, become one token each: the wording is whole, and 500 of a prompt's
600 tokens are saved. What the model knows of a constant part is what it learns of that token.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import AddedToken, LlamaForCausalLM, PreTrainedTokenizerFast

from experiments.launch import command_line, reported
from r1lit.curation import refine
from r1lit.policy import load_tokenizer
from r1lit.verifiers import generative
from r1lit.worlds.judging import TRAITS, VERDICTS
from r1lit.worlds.scaffold import SIZES, Size, architecture

PROMPTS = (generative.INSTRUCTIONS, generative.COMPARISON, refine.INSTRUCTION)
REPLIES = (
    *VERDICTS.values(),
    *(f"\nLABEL: {label}" for label in generative.LABELS),
    *(f" {name}" for names in TRAITS for name in names),
    *("<reasoning>", "</reasoning>", "<summary>", "</summary>"),
)


def constant_parts(prompt: str) -> list[str]:
    r"""Return what stands between the fields of a prompt, without the line feeds around it.

    >>> constant_parts("Compare. {fence}\n{first}\n")
    ['Compare. ']
    """
    parts = re.split(r"\{\w+\}", prompt)
    return [part.strip("\n") for part in parts if part.strip()]


def add_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    """Make each constant part of the prompts, and each end of a reply, one token."""
    texts = [part for prompt in PROMPTS for part in constant_parts(prompt)]
    texts += [line for reply in REPLIES for line in reply.splitlines() if line.strip()]
    added = [AddedToken(text, special=False, normalized=False) for text in dict.fromkeys(texts)]
    tokenizer.add_tokens(added)


def grow(base: str, directory: Path, size: Size, seed: int = 0) -> int:
    """Write a model of ``size`` with the base's weights; return its number of parameters.

    Args:
        base: a Hugging Face directory of a Llama of the small world.
        directory: where to write model and tokenizer.
        size: as wide as the base, and with more layers.
        seed: of the new tokens' embeddings.

    Raises:
        ValueError: if the base is of another width, or has as many layers.
    """
    small = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    have = small.config
    if (have.hidden_size, have.intermediate_size) != (size.width, size.inner_width):
        raise ValueError(
            f"size: {size.width} wide with {size.inner_width} inside, where {base} has"
            f" {have.hidden_size} and {have.intermediate_size}; only layers can be added"
        )
    if have.num_hidden_layers >= size.layers:
        raise ValueError(
            f"size: {size.layers} layers are not more than the {have.num_hidden_layers} of {base}"
        )
    tokenizer = load_tokenizer(base)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    add_tokens(tokenizer)
    torch.manual_seed(seed)
    large = LlamaForCausalLM(architecture(tokenizer, size))
    with torch.no_grad():
        _copy(small, large)
    directory.mkdir(parents=True, exist_ok=True)
    large.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return sum(p.numel() for p in large.parameters())


def _copy(small: LlamaForCausalLM, large: LlamaForCausalLM) -> None:
    old, new = small.model.layers, large.model.layers
    source = [place * len(old) // len(new) for place in range(len(new))]
    for place, index in enumerate(source):
        new[place].load_state_dict(old[index].state_dict())
        if place and source[place - 1] == index:
            nn.init.zeros_(new[place].self_attn.o_proj.weight)
            nn.init.zeros_(new[place].mlp.down_proj.weight)
    known = small.model.embed_tokens.weight
    # new tokens like an average one, and a little apart
    table = large.model.embed_tokens.weight
    table.copy_(known.mean(0) + known.std(0) * 0.5 * torch.randn_like(table))
    table[: len(known)] = known
    large.model.norm.load_state_dict(small.model.norm.state_dict())


@reported("grow")
def main(args: Sequence[str] | None = None) -> int:
    """Grow a base model and write it to a directory; return the exit status."""
    parser = command_line("experiments.model_in_the_loop.grow", __doc__)
    parser.add_argument("base", help="such as models/mini")
    parser.add_argument("directory", type=Path, help="where to write")
    parser.add_argument("--size", choices=SIZES, default="judge", help="of the larger model")
    parser.add_argument("--seed", type=int, default=0, help="of the new tokens' embeddings")
    options = parser.parse_args(args)
    num = grow(options.base, options.directory, SIZES[options.size], options.seed)
    print(f"{num:,} parameters: {options.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
