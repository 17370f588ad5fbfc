"""The file system of an untrusted program: an interpreter, system libraries, two folders.

``/program`` holds its own files, read-only. ``/scratch`` is its working directory: empty, private
and limited in size. Nothing else of the machine is visible: no home, no project, no ``/proc``.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence

from r1lit.sandbox.confine import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    change_root,
    make_read_only,
    mount,
    unmount,
)

PROGRAM, SCRATCH, PACKAGES = "/program", "/scratch", "/packages"
DEVICES = ("null", "full", "random", "urandom")  # not zero: mapping it shares memory
LIBRARIES = (
    "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib",
    "/etc/ld.so.cache", "/usr/share/zoneinfo",
)  # fmt: skip
TOOLS = (
    "/bin", "/usr/bin", "/usr/include", "/usr/libexec", "/etc/alternatives",
    "/usr/share/nodejs", *sorted(glob.glob("/etc/java-*")),
)  # fmt: skip
_PACKAGES = ("site-packages", "dist-packages")
_PRIVATE = MS_NOSUID | MS_NODEV
_ROOT = "/sys"  # the new root is mounted over it: it exists everywhere and holds no interpreter


def interpreter() -> list[str]:
    """Return the paths that this interpreter needs: itself, its library, its standard library."""
    paths = [os.path.realpath(sys.executable)]
    paths += [sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib")]
    directory = sysconfig.get_config_var("LIBDIR")
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(directory or "") if name.startswith("libpython")]
        paths += [os.path.join(directory, name) for name in names]
    return paths


def visible_paths(with_tools: bool) -> list[str]:
    """Return the paths to bind, without those inside another."""
    wanted = [*LIBRARIES, *(TOOLS if with_tools else ()), *interpreter()]
    chosen: list[str] = []
    for path in wanted:
        inside = any(path == other or path.startswith(other + "/") for other in chosen)
        if os.path.lexists(path) and not inside:
            chosen.append(path)
    return chosen


def package_folders(paths: Iterable[str]) -> list[str]:
    """Return the folders of installed packages within ``paths``; they are hidden."""
    folders = []
    for path in paths:
        for above in (path, *_pythons(path)):
            folders += [os.path.join(above, name) for name in _PACKAGES]
    return [folder for folder in folders if os.path.isdir(folder)]


def _pythons(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [os.path.join(path, n) for n in os.listdir(path) if n.startswith("python")]
    return []


class IsolatedFilesystem:
    """Changes the root of this mount namespace; ``/program`` stays writable at first.

    Args:
        with_tools: show compilers and a shell.
        packages: folders of packages, shown as ``/packages/0``, ``/packages/1`` …, or of one
            package, shown by its name in ``/packages/chosen``.
        scratch_bytes: the size of ``/scratch``, and of ``/program``.
        owner: the user id, inside, that owns ``/scratch``.

    ``proc`` is a descriptor of a ``/proc`` that shows this process and its descendants.

    Raises:
        OSError: if the kernel refuses.
    """

    program, scratch = PROGRAM, SCRATCH

    def __init__(
        self, with_tools: bool, packages: Sequence[str], scratch_bytes: int, owner: int
    ) -> None:
        self._scratch_bytes = scratch_bytes
        self._owner = owner
        shown = {path: _shown(number, path) for number, path in enumerate(packages)}
        self.packages = list(
            dict.fromkeys(
                path if os.path.basename(at) in _PACKAGES else os.path.dirname(path)
                for at, path in shown.items()
            )
        )
        mount(None, "/", None, MS_REC | MS_PRIVATE)
        paths = visible_paths(with_tools)
        hidden = package_folders(paths)
        mount("tmpfs", _ROOT, "tmpfs", _PRIVATE, "size=1m,mode=755")
        for name in (PROGRAM, SCRATCH, "/dev", "/proc", "/etc"):
            os.mkdir(_ROOT + name)
        os.symlink("scratch", _ROOT + "/tmp")
        os.symlink("/scratch", _ROOT + "/dev/shm")  # the semaphores of multiprocessing
        for path in paths:
            _show(path)
        for path in hidden:
            mount("tmpfs", _ROOT + path, "tmpfs", _PRIVATE, "size=4k,nr_inodes=2,mode=555")
        for path, place in shown.items():
            _bind(path, place)
            make_read_only(_ROOT + place)
        for device in DEVICES:
            _bind(f"/dev/{device}")
        mount("tmpfs", _ROOT + PROGRAM, "tmpfs", _PRIVATE, f"size={scratch_bytes},mode=755")
        self.proc = _open_proc()
        change_root(_ROOT)
        self._mount_scratch()

    def make_read_only(self) -> None:
        """Make ``/program`` and everything but ``/scratch`` read-only."""
        make_read_only(PROGRAM)
        mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | _PRIVATE)

    def clear_scratch(self) -> None:
        """Replace ``/scratch`` with an empty one."""
        unmount(SCRATCH)
        self._mount_scratch()

    def _mount_scratch(self) -> None:
        owner = f"uid={self._owner},gid={self._owner}"
        data = f"size={self._scratch_bytes},nr_inodes=4096,mode=700,{owner}"
        mount("tmpfs", SCRATCH, "tmpfs", _PRIVATE, data)

    def remove(self) -> None:
        """Do nothing: the mounts end with their namespace."""


class OpenFilesystem:
    """Two temporary folders without isolation: the program can read whatever its user can.

    For machines without namespaces and users who pass ``allow_unprotected``. ``owner`` is
    the user id that owns the scratch folder, ``None`` for this process's; ``packages`` are folders
    of packages to import from.
    """

    def __init__(self, owner: int | None, packages: list[str]) -> None:
        self.packages = [
            path if os.path.basename(path) in _PACKAGES else os.path.dirname(path)
            for path in packages
        ]
        self._owner = owner
        self._above = tempfile.mkdtemp(prefix="program-")
        os.chmod(self._above, 0o711)
        self.program, self.scratch = f"{self._above}/program", f"{self._above}/scratch"
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        os.mkdir(self.program, 0o755)
        self.clear_scratch()

    def make_read_only(self) -> None:
        """Make the program's folder read-only for users other than its owner."""
        os.chmod(self.program, 0o755)

    def clear_scratch(self) -> None:
        """Replace the scratch folder with an empty one."""
        _remove(self.scratch)
        os.mkdir(self.scratch, 0o700)
        if self._owner is not None:
            os.chown(self.scratch, self._owner, self._owner)

    def remove(self) -> None:
        """Remove the folders."""
        _remove(self._above)


def _shown(number: int, path: str) -> str:
    name = os.path.basename(path)
    return f"{PACKAGES}/{number}" if name in _PACKAGES else f"{PACKAGES}/chosen/{name}"


def _show(path: str) -> None:
    """Bind ``path`` read-only, or copy it if it is a symbolic link."""
    if os.path.islink(path):
        os.makedirs(os.path.dirname(_ROOT + path), exist_ok=True)
        if not os.path.lexists(_ROOT + path):
            os.symlink(os.readlink(path), _ROOT + path)
        return
    _bind(path)
    make_read_only(_ROOT + path)


def _bind(path: str, shown_as: str = "") -> None:
    target = _ROOT + (shown_as or path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        with open(target, "x"):
            pass
    mount(path, target, None, MS_BIND | MS_REC)


def _open_proc() -> int:
    """Return a descriptor of a new ``/proc`` for this process namespace, else of the old ``/proc``.

    In a container that masks parts of ``/proc``, the kernel does not let users mount a new one.
    """
    try:
        mount("proc", _ROOT + "/proc", "proc", _PRIVATE)
    except OSError:
        return os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    descriptor = os.open(_ROOT + "/proc", os.O_RDONLY | os.O_DIRECTORY)
    unmount(_ROOT + "/proc")
    return descriptor


def _remove(folder: str) -> None:
    """Remove a folder, even if a program has changed its permissions."""
    for above, names, _ in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(above, name), 0o700, follow_symlinks=False)
    shutil.rmtree(folder, ignore_errors=True)
