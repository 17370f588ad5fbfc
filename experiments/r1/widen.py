"""Copies a model, with a longer context in its config.

    python -m experiments.r1.widen SOURCE TARGET TOKENS

Qwen2.5-Math says that it attends over 4,096 tokens; DeepSeek's students of it say 131,072, with the
same rotary base.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.launch import command_line


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.r1.widen", __doc__)
    parser.add_argument("source", help="a Hugging Face directory, or a name on the hub")
    parser.add_argument("target", type=Path, help="the directory to write")
    parser.add_argument("tokens", type=int, help="max_position_embeddings")
    options = parser.parse_args(args)
    model = AutoModelForCausalLM.from_pretrained(options.source, dtype="auto")
    model.config.max_position_embeddings = options.tokens
    model.save_pretrained(options.target)
    AutoTokenizer.from_pretrained(options.source).save_pretrained(options.target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
