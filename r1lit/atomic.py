"""Replacing files and folders so that a kill at any moment leaves the old or the new, whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an OSError from within name ``path``; that of a full disk names no file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Write a file beside ``path`` and rename it onto it; what cannot be leaves nothing behind.

    Raises:
        OSError: naming ``path``.
    """
    temporary = beside(path)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        os.replace(temporary, path)


def replace_json(path: Path, content: Any) -> None:
    """Write a JSON file as ``replace_file`` does.

    Raises:
        OSError: naming ``path``.
    """
    replace_file(path, (json.dumps(content, indent=1) + "\n").encode())


def replace_path(new: Path, path: Path) -> None:
    """Rename a finished file or folder ``new`` onto ``path``; both lie on one file system.

    A folder cannot be renamed onto a filled one: the old one steps aside to ``.<name>.previous``
    for a moment and is then deleted. A kill within that moment leaves it there, whole, for
    ``put_back``.
    """
    if not path.is_dir():
        os.replace(new, path)
        return
    previous = path.with_name(f".{path.name}.previous")
    shutil.rmtree(previous, ignore_errors=True)
    os.replace(path, previous)
    os.replace(new, path)
    shutil.rmtree(previous)


def put_back(path: Path) -> None:
    """Give ``path`` back the folder that a kill within ``replace_path`` has left aside."""
    if not path.exists():
        with suppress(FileNotFoundError):  # there is none, or another rank was faster
            os.replace(path.with_name(f".{path.name}.previous"), path)


def beside(path: Path) -> Path:
    """Return this process's temporary name in the folder of ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove(path: Path) -> None:
    """Remove what an earlier kill may have left at ``path``."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
