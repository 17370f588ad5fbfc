"""System calls that Python does not offer: clone, mount, capabilities, prctl.

Numbers and flags are those of Linux's headers. Every function raises ``OSError`` when the kernel
refuses.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal

MACHINE = platform.machine()
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NAMESPACES = (
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
)

MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 38, 22, 36
_LAST_CAPABILITY = 63
_CAPABILITY_VERSION_3 = 0x20080522
_SYSCALLS = {
    "x86_64": {"clone": 56, "pivot_root": 155, "capset": 126, "mount_setattr": 442},
    "aarch64": {"clone": 220, "pivot_root": 41, "capset": 91, "mount_setattr": 442},
}
_MOUNT_ATTRIBUTES = MS_RDONLY | MS_NOSUID | MS_NODEV
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _number(name: str) -> int:
    if MACHINE not in _SYSCALLS:
        raise OSError(f"{name}: its number on {MACHINE} is not known")
    return _SYSCALLS[MACHINE][name]


def fork_into(namespaces: int) -> int:
    """Fork with new ``namespaces`` (flags); return the child's process id, 0 in the child.

    Only for a process with one thread: the C library's and Python's fork handlers do not run.
    """
    zero = ctypes.c_long(0)
    flags = ctypes.c_long(namespaces | signal.SIGCHLD)
    result = _libc.syscall(ctypes.c_long(_number("clone")), flags, zero, zero, zero, zero)
    return _check(result, "clone")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount a file system, bind a path, or change a mount; the arguments are the system call's."""
    result = _libc.mount(
        source.encode() if source else None,
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _check(result, f"mount {target}")


def make_read_only(target: str) -> None:
    """Make the mount at ``target`` and all below it read-only, without set-id programs or devices.

    What the mount forbids already stays forbidden, so this also works on mounts whose flags an
    unprivileged user may not clear.
    """
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTRIBUTES, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_number("mount_setattr")),
        ctypes.c_int(_AT_FDCWD),
        target.encode(),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(result, f"mount_setattr {target}")


def unmount(target: str) -> None:
    """Take the mount at ``target`` out of sight; it is gone with its last open file."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount2 {target}")


def change_root(directory: str) -> None:
    """Make ``directory``, a mount point, the root of the file system, and forget the old root."""
    os.chdir(directory)
    _check(_libc.syscall(ctypes.c_long(_number("pivot_root")), b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def prctl(option: int, value: int, extra: int = 0) -> None:
    """Change an attribute of this process."""
    arguments = [ctypes.c_ulong(n) for n in (value, extra, 0, 0)]
    _check(_libc.prctl(ctypes.c_int(option), *arguments), f"prctl {option}")


def die_with_parent() -> None:
    """Have this process killed when the thread that forked it ends.

    A change of credentials undoes it, so call it after the last one.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of all descendants whose own parent ends."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def drop_all_capabilities() -> None:
    """Give up every capability for good, and any that an executed file would add."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # past the kernel's last capability, or no right to drop: then none are held
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    number = ctypes.c_long(_number("capset"))
    _check(_libc.syscall(number, ctypes.byref(header), ctypes.byref(none)), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)
