"""What a judged program sees of the file system: an interpreter, system libraries, two folders.

``/program`` holds its own files, read-only. ``/scratch`` is empty, private, of limited size, and
where it starts. Nothing else of the machine is there: no home, no project, no ``/proc``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence

from r1lit.sandbox.kernel import (
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
DEVICES = ("null", "full", "random", "urandom")  # pages of zero, mapped, belong to no process
LIBRARIES = (
    "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib",
    "/etc/ld.so.cache", "/usr/share/zoneinfo",
)  # fmt: skip
TOOLS = ("/bin", "/usr/bin", "/usr/include", "/usr/libexec", "/etc/alternatives")
_PACKAGES = ("site-packages", "dist-packages")
_PRIVATE = MS_NOSUID | MS_NODEV
_ROOT = "/sys"  # every machine has it, and no interpreter lives there: the new root covers it


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
    """Return what is bound, outer before inner, nothing twice."""
    wanted = [*LIBRARIES, *(TOOLS if with_tools else ()), *interpreter()]
    chosen: list[str] = []
    for path in wanted:
        inside = any(path == other or path.startswith(other + "/") for other in chosen)
        if os.path.lexists(path) and not inside:
            chosen.append(path)
    return chosen


def package_folders(paths: Iterable[str]) -> list[str]:
    """Return the folders of installed packages within ``paths``, which stay empty."""
    folders = []
    for path in paths:
        for above in (path, *_pythons(path)):
            folders += [os.path.join(above, name) for name in _PACKAGES]
    return [folder for folder in folders if os.path.isdir(folder)]


def _pythons(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [os.path.join(path, n) for n in os.listdir(path) if n.startswith("python")]
    return []


def enter(with_tools: bool, packages: Sequence[str], scratch_bytes: int, owner: int) -> int:
    """Change the root of this mount namespace to the view; ``/program`` stays writable.

    ``packages`` are folders of packages, shown as ``/packages/0``, ``/packages/1`` ….
    ``owner`` is the user id, as seen here, that the scratch folder will belong to.

    Returns:
        A descriptor of a ``/proc`` in which this process and its descendants can be seen.

    Raises:
        OSError: if the kernel refuses.
    """
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    paths = visible_paths(with_tools)
    hidden = package_folders(paths)
    mount("tmpfs", _ROOT, "tmpfs", _PRIVATE, "size=1m,mode=755")
    for name in (PROGRAM, SCRATCH, "/dev", "/proc", "/etc"):
        os.mkdir(_ROOT + name)
    os.symlink("scratch", _ROOT + "/tmp")
    for path in paths:
        _show(path)
    for path in hidden:
        mount("tmpfs", _ROOT + path, "tmpfs", _PRIVATE, "size=4k,nr_inodes=2,mode=555")
    for number, path in enumerate(packages):
        _bind(path, f"{PACKAGES}/{number}")
        make_read_only(f"{_ROOT}{PACKAGES}/{number}")
    for device in DEVICES:
        _bind(f"/dev/{device}")
    mount("tmpfs", _ROOT + PROGRAM, "tmpfs", _PRIVATE, f"size={scratch_bytes},mode=755")
    proc = _open_proc()
    change_root(_ROOT)
    _mount_scratch(scratch_bytes, owner)
    return proc


class View:
    """The view of this mount namespace, once entered; see ``enter``."""

    program, scratch = PROGRAM, SCRATCH

    def __init__(
        self, with_tools: bool, packages: Sequence[str], scratch_bytes: int, owner: int
    ) -> None:
        self._scratch_bytes = scratch_bytes
        self._owner = owner
        self.packages = [f"{PACKAGES}/{number}" for number in range(len(packages))]
        self.proc = enter(with_tools, packages, scratch_bytes, owner)

    def seal(self) -> None:
        """Make ``/program`` and everything but ``/scratch`` read-only."""
        make_read_only(PROGRAM)
        mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | _PRIVATE)

    def renew_scratch(self) -> None:
        """Replace ``/scratch`` by an empty one."""
        unmount(SCRATCH)
        _mount_scratch(self._scratch_bytes, self._owner)

    def leave(self) -> None:
        """Do nothing: it ends with the namespace."""


def _mount_scratch(scratch_bytes: int, owner: int) -> None:
    data = f"size={scratch_bytes},nr_inodes=4096,mode=700,uid={owner},gid={owner}"
    mount("tmpfs", SCRATCH, "tmpfs", _PRIVATE, data)


def _show(path: str) -> None:
    """Bind ``path`` read-only; repeat it if it is a symbolic link."""
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
    """Return a descriptor of this process namespace's own ``/proc``, else of the one outside.

    In a container that hides parts of ``/proc``, the kernel refuses users a fresh one.
    """
    try:
        mount("proc", _ROOT + "/proc", "proc", _PRIVATE)
    except OSError:
        return os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    descriptor = os.open(_ROOT + "/proc", os.O_RDONLY | os.O_DIRECTORY)
    unmount(_ROOT + "/proc")
    return descriptor
