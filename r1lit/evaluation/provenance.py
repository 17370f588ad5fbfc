"""Provenance of an evaluation: the code's commit, versions, the device."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

import r1lit


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
