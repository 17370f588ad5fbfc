"""``r1lit merge``: a whole Hugging Face model of an adapter and its policy, or of a GGUF file.

r1lit merge runs/lora/policy models/merged
r1lit merge model-Q4_1.gguf models/dequantised   # pip install 'r1lit[real]'
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import is_gguf_available, logging

from r1lit.console import as_help
from r1lit.files import beside, remove, replace_path
from r1lit.policy.loading import load_policy, load_tokenizer, read_config, torch_dtype
from r1lit.policy.scalar_loading import is_reward_model, load_reward_model
from r1lit.policy.source import GGUF, SETTINGS_FILE, ModelSource
from r1lit.text.prompts import encode_prompts


def merge(source: ModelSource, output: Path) -> None:
    """Write the whole model, and its tokenizer, to a new directory.

    Args:
        source: a PEFT folder, such as ``policy`` of a run with ``adapter``; its ``dtype`` is that
            of what is written, the adapted policy's if left out.
        output: where; it must not exist, or be empty.

    Raises:
        ValueError: if there is no adapter, its policy is not there, or ``output`` is taken.
    """
    if source.folder is None:
        raise ValueError(f"adapter: {source.path!r} holds no {SETTINGS_FILE}; name a PEFT folder")
    _refuse_taken(output)
    config, tokenizer = read_config(source), load_tokenizer(source)
    stored = str(config.dtype or "float32").removeprefix("torch.")
    source = source.but(dtype=source.dtype or stored)
    model = (
        load_reward_model(source, pad_id=int(tokenizer.pad_token_id))
        if is_reward_model(config)
        else load_policy(source)
    )
    temporary = beside(output)
    temporary.mkdir(parents=True)
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        replace_path(temporary, output)
    finally:
        remove(temporary)


def _refuse_taken(output: Path) -> None:
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ValueError(f"output: {output} exists; name a new directory")


def refuse_without_gguf() -> None:
    """Raise a ValueError where the package that reads GGUF files is not installed."""
    if not is_gguf_available():
        raise ValueError("gguf: not installed, and reads the weights; pip install 'r1lit[real]'")


PROBES = ("What is 12 + 7?", "  Two  spaces,\n\ta tab and 3,141 naïve Überraschungen.")


def dequantise(gguf: Path, output: Path, dtype: str = "float32") -> None:
    """Write a GGUF file's model and tokenizer to a new directory; rounded weights stay rounded.

    Raises:
        ValueError: if it cannot be read, if the saved tokenizer encodes otherwise, or ``output`` is
            taken.
    """
    _refuse_taken(output)
    refuse_without_gguf()
    logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    temporary = beside(output)
    try:
        try:
            tokenizer = AutoTokenizer.from_pretrained(**source)
            quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch_dtype(dtype))
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ValueError(f"{gguf}: transformers cannot read it ({error})") from error
        config = quantised.config
        del config.quantization_config  # transformers refuses to save what it believes quantised
        model = AutoModelForCausalLM.from_config(config, dtype=torch_dtype(dtype))
        model.load_state_dict(quantised.state_dict())
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        saved = load_tokenizer(str(temporary))
        before, after = (encode_prompts(t, PROBES) for t in (tokenizer, saved))
        if before != after:
            raise ValueError(f"{gguf}: its tokenizer gives {before}, saved and loaded {after}")
        replace_path(temporary, output)
    finally:
        remove(temporary)


def main(argv: Sequence[str] | None = None) -> None:
    """Run ``r1lit merge``."""
    parser = argparse.ArgumentParser(prog="r1lit merge", description=as_help(__doc__))
    parser.add_argument("source", help="a PEFT folder, as policy in a run folder; or a .gguf file")
    parser.add_argument("output", type=Path, help="the directory of the whole model")
    parser.add_argument(
        "--dtype", help="of the weights; if left out the adapted policy's, of a GGUF file float32"
    )
    parser.add_argument("--trust_remote_code", action="store_true")
    given = parser.parse_args(argv)
    if given.source.endswith(GGUF):
        dequantise(Path(given.source), given.output, given.dtype or "float32")
    else:
        own = {"dtype": given.dtype, "trust_remote_code": given.trust_remote_code}
        merge(ModelSource(given.source, **own), given.output)
    print(f"{given.output} holds the whole model")
