"""Libraries by name, from the package index, an sdist or a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from r1lit.verifiers.repository import IGNORED_FOLDERS


def library_of(text: str) -> str:
    """Return the name of a library, as the index writes it, without its version.

    >>> [library_of(text) for text in ("more_itertools-10.8.0", "More.Itertools==10.8", "a/tally")]
    ['more-itertools', 'more-itertools', 'tally']
    """
    name = re.split(r"[^\w.-]", text.rstrip("/").rpartition("/")[2])[0]
    return re.sub(r"[-_.]+", "-", re.sub(r"-\d[^-]*$", "", name)).lower()


def fetch(library: str, folder: Path) -> Path:
    """Put a library's files into a folder of ``folder``; return that.

    Raises:
        ValueError: if it cannot be had.
    """
    given = Path(library).expanduser().resolve()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as temporary:
        if given.is_dir():
            files = Path(temporary, given.name)
            left_out = shutil.ignore_patterns(*IGNORED_FOLDERS)
            inside = {str(folder.resolve()), str(folder.resolve().parent)}  # of the tasks
            shutil.copytree(
                given,
                files,
                ignore=lambda at, names: {
                    *left_out(at, names),
                    *(name for name in names if str(Path(at, name)) in inside),
                },
            )
        else:
            archive = given if given.is_file() else _download(library, Path(temporary))
            files = _unpack(archive, Path(temporary, "files"))
        target = folder / files.name
        if not target.exists():  # else it is of a command that was ended
            files.rename(target)
    return target


def _download(library: str, folder: Path) -> Path:
    """Return the sdist of a library, which pip puts into a folder."""
    pip = [sys.executable, "-m", "pip"]
    name = re.split(r"[^\w.-]", library)[0]
    command = [*pip, "download", "--quiet", "--no-deps", "--retries", "2"]
    command += ["--no-binary", name]  # what builds it may come as wheels
    command += ["--dest", str(folder), library]
    environment = {**os.environ, "PIP_NO_COMPILE": "1"}  # what builds it runs once
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = list(folder.iterdir())
    if not run.returncode and found:
        return found[0]
    raise ValueError(f"library: {library!r}: {_why_not(run.stderr, name, pip)}")


def _why_not(message: str, name: str, pip: Sequence[str]) -> str:
    """Return why pip got no sdist, in one line, and what would be right."""
    if re.search(r"NewConnectionError|ConnectTimeout|NameResolution|ProxyError", message):
        return "the package index cannot be reached; name an sdist or a folder instead"
    versions = re.search(r"\(from versions: (.*)\)", message)
    if versions is None:
        lines = [line for line in message.splitlines() if line.strip()] or ["no message"]
        errors = [line for line in lines if line.lstrip().lower().startswith("error")] or lines
        return f"pip cannot get its sdist: {errors[0].strip()}"
    if versions[1] != "none":
        latest = ", ".join(versions[1].split(", ")[-3:])
        return f"there is no sdist of such a version; the latest are {latest}"
    index = [*pip, "index", "versions", "--disable-pip-version-check", name]
    if subprocess.run(index, capture_output=True, check=False).returncode:
        return "the package index has no such library"
    return "it is on the package index as wheels only; name an sdist or a folder with its tests"


def _unpack(archive: Path, folder: Path) -> Path:
    """Return the folder that an sdist holds, unpacked into ``folder``."""
    if not tarfile.is_tarfile(archive):
        raise ValueError(f"library: {archive.name} is not a tar file, as an sdist is")
    try:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"library: {archive.name} cannot be unpacked: {error}") from error
    found = [path for path in folder.iterdir() if path.is_dir()]
    if len(found) != 1:
        raise ValueError(f"library: {archive.name} holds {len(found)} folders; an sdist has one")
    return found[0]
