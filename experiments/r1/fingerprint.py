"""Digests of what steps read and write: files and folders by their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

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
