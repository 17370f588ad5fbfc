"""Digests of what runs read and write, and folders that know what they were made from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from r1lit.files import replace_file, replace_json

WHOLE = 1 << 28  # bytes up to which a file is read whole
ENDS = 1 << 20  # bytes read at either end of a longer one
INPUTS = "inputs.json"
OUTPUTS = ("cache", "default_root_dir", "dirpath", "log", "run", "save_dir")
"""Keys of a config under which paths stand that a run writes to."""

_known: dict[tuple[str, int, int], str] = {}


def fingerprint(path: Path) -> str | None:
    """Return a digest of a file's content, or of a folder's names and contents; None if missing.

    Names that begin with a dot are left out: half-written files have them. A file above 256 MiB is
    judged by its size and its first and last MiB, as weights that were trained differ everywhere.
    """
    if path.is_file():
        return _of_file(path)
    if not path.is_dir():
        return None
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            digest.update(f"{name.as_posix()}\0{_of_file(file)}\0".encode())
    return digest.hexdigest()


def begin(folder: Path, name: str, config: Any) -> Path:
    """Return a config's file ``<folder>/<name>``; a folder that is not of that config is emptied.

    Digests of the files and folders that the config names are in ``<folder>/inputs.json``; a run
    whose inputs are others by now is not that config's either.

    Raises:
        ValueError: if the folder holds what no such run has left there.
    """
    path = folder / name
    if not is_of(folder, name, config):
        if path.exists() or (folder / INPUTS).exists():
            shutil.rmtree(folder)
        elif folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"output: {folder} holds something else; move it, or name another")
        inputs = {text: fingerprint(Path(text)) for text in sorted(set(_inputs(config, folder)))}
        replace_json(folder / INPUTS, inputs)
        replace_file(path, yaml.safe_dump(config).encode())
    return path


def is_of(folder: Path, name: str, config: Any) -> bool:
    """Return whether a folder is of this config, and of what the files it names hold now.

    An input that is gone does not count as another one: its results can still be reported.
    """
    path, inputs = folder / name, folder / INPUTS
    if not path.exists() or not inputs.exists() or path.read_text() != yaml.safe_dump(config):
        return False
    recorded = json.loads(inputs.read_text())
    return all(fingerprint(Path(text)) in (digest, None) for text, digest in recorded.items())


def _inputs(node: Any, folder: Path) -> Iterator[str]:
    """Yield the paths that a config reads: those that exist and that the run does not write to."""
    if isinstance(node, dict):
        for key, child in node.items():
            if key not in OUTPUTS:
                yield from _inputs(child, folder)
    elif isinstance(node, list):
        for child in node:
            yield from _inputs(child, folder)
    elif isinstance(node, str) and _is_path(node):
        path, own = Path(node).resolve(), folder.resolve()
        holds = own.is_relative_to(path) or Path.cwd().is_relative_to(path)
        if not holds and not path.is_relative_to(own):
            yield node


def _is_path(text: str) -> bool:
    """Return whether a text names what is there: with a folder, or a file of this one."""
    return os.path.exists(text) if "/" in text else os.path.isfile(text)


def _of_file(path: Path) -> str:
    found = path.stat()
    key = (str(path.resolve()), found.st_size, found.st_mtime_ns)
    if key not in _known:
        digest = hashlib.blake2b(digest_size=8)
        with path.open("rb") as file:
            if found.st_size <= WHOLE:
                while block := file.read(ENDS):
                    digest.update(block)
            else:
                digest.update(f"{found.st_size}\0".encode() + file.read(ENDS))
                file.seek(-ENDS, 2)
                digest.update(file.read())
        _known[key] = digest.hexdigest()
    return _known[key]
