"""Digests of what steps read and write: files and folders by their content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r1lit.atomic import replace_file

WHOLE = 1 << 28  # bytes up to which a file is read whole
ENDS = 1 << 20  # bytes read at either end of a longer one

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


def record_inputs(config: Any, folder: Path) -> None:
    """Write ``<folder>/inputs.json``: digests of the files and folders that a config names.

    Left out are the run's own, in ``folder``, and folders that hold it.
    """
    inputs = {
        name: fingerprint(Path(name))
        for name in sorted(set(_paths(config)))
        if not Path(name).is_relative_to(folder) and not folder.is_relative_to(name)
    }
    replace_file(folder / "inputs.json", (json.dumps(inputs, indent=1) + "\n").encode())


def changed_inputs(folder: Path) -> list[str]:
    """Return which of the recorded inputs are others by now; one that is gone is not among them."""
    path = folder / "inputs.json"
    recorded = json.loads(path.read_text()) if path.exists() else {}
    return [name for name, was in recorded.items() if fingerprint(Path(name)) not in (was, None)]


def _paths(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        if "/" in node and os.path.exists(node):
            yield node
    elif isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _paths(child)


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
