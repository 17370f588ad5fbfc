"""Provenance of an evaluation: a digest of the policy's files, the code's commit, versions."""

from __future__ import annotations

import hashlib
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

import r1lit

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


def commit() -> str | None:
    """Return the commit of this code, with "-dirty" appended if changed; None outside git."""
    here = Path(r1lit.__file__).parent
    try:
        git(here, "ls-files", "--error-unmatch", "__init__.py")  # not some other repository's
        return git(here, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


def git(folder: Path, *words: str) -> str:
    """Return what a git command prints in a folder; an OSError or SubprocessError if it fails."""
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


def versions() -> str:
    """Return the versions of the libraries that decide what is generated and graded."""
    names = ("torch", "transformers", "math-verify")
    return ", ".join(f"{name} {version(name)}" for name in names)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or of the kind of device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
