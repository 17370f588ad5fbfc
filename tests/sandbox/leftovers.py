"""What a sandbox may leave behind: processes, files, mounts, descriptors."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def descendants(root: int | None = None) -> set[int]:
    """Return the process ids of all living descendants of ``root`` (this process)."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(name)] = int(fields[1])
    found, frontier = set(), {root or os.getpid()}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


def strangers() -> set[int]:
    """Return the process ids of processes with a user id that only sandboxes use."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid >= 1_000_000_000:
                    found.add(int(name))
            except OSError:
                continue
    return found


def files() -> set[str]:
    """Return the names in the folders where programs could leave files."""
    folders = {tempfile.gettempdir(), "/dev/shm", "/var/tmp", os.path.expanduser("~"), os.getcwd()}
    return {f"{folder}/{name}" for folder in folders for name in os.listdir(folder)}


def num_mounts() -> int:
    return len(Path("/proc/self/mounts").read_text().splitlines())


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
