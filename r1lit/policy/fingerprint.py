"""A digest by which a policy's files are known again."""

from __future__ import annotations

import hashlib
from pathlib import Path

SAMPLED = 1 << 20  # bytes read at either end of a file


def policy_fingerprint(name_or_path: str) -> str | None:
    """Return a digest of a policy's weights and configuration, or None for a name on the hub.

    Of each file its name, size, first and last MiB are read, so that the digest of a large policy
    is quick, and a retrained policy still has another.
    """
    folder = Path(name_or_path)
    if not folder.is_dir():
        return None
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(
        [*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("*.json")]
    ):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLED))
            if size > SAMPLED:
                file.seek(max(SAMPLED, size - SAMPLED))
                digest.update(file.read())
    return digest.hexdigest()
