"""``r1lit merge``: a whole Hugging Face model of an adapter and the policy that it adapts.

r1lit merge runs/lora/policy models/merged
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r1lit.files import beside, remove, replace_path
from r1lit.policy.adapter import SETTINGS_FILE, base_of
from r1lit.policy.loading import (
    is_reward_model,
    load_policy,
    load_reward_model,
    load_tokenizer,
    read_config,
)


def merge(folder: str, output: Path, dtype: str | None = None, trust_remote_code=False) -> None:
    """Write the whole model, and its tokenizer, to a new directory.

    Args:
        folder: a PEFT folder, such as ``policy`` of a run with ``adapter``.
        output: where; it must not exist, or be empty.
        dtype: of the sum and of what is written; that of the adapted policy's file if left out.
        trust_remote_code: run Python code that comes with the model.

    Raises:
        ValueError: if there is no adapter, its policy is not there, or ``output`` is taken.
    """
    if base_of(folder) == folder:
        raise ValueError(f"adapter: {folder!r} holds no {SETTINGS_FILE}; name a PEFT folder")
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ValueError(f"output: {output} exists; name a new directory")
    config = read_config(folder, trust_remote_code)
    tokenizer = load_tokenizer(folder, trust_remote_code)
    how: dict[str, Any] = {
        "dtype": dtype or str(config.dtype or "float32").removeprefix("torch."),
        "trust_remote_code": trust_remote_code,
    }
    model = (
        load_reward_model(folder, pad_id=int(tokenizer.pad_token_id), **how)
        if is_reward_model(config)
        else load_policy(folder, **how)
    )
    temporary = beside(output)
    temporary.mkdir(parents=True)
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        replace_path(temporary, output)
    finally:
        remove(temporary)


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``r1lit merge``."""
    parser = argparse.ArgumentParser(prog="r1lit merge", description=__doc__)
    parser.add_argument("adapter", help="a PEFT folder, such as policy in a run folder")
    parser.add_argument("output", type=Path, help="the directory of the whole model")
    parser.add_argument("--dtype", help="of the weights; as the adapted policy's if left out")
    parser.add_argument("--trust_remote_code", action="store_true")
    given = parser.parse_args(argv)
    merge(given.adapter, given.output, given.dtype, given.trust_remote_code)
    print(f"{given.output} holds the whole model")
