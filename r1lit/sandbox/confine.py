"""Confines the current process, for good, before it runs an untrusted program.

It uses limits, a user without capabilities, and a seccomp filter: system calls that no untrusted
program needs fail with EPERM.

Namespaces keep a program from what it should not see. The filter keeps it from the parts of the
kernel that grow new holes every year (user namespaces, io_uring, bpf, keys, ptrace); from memory
that belongs to no process and so to no limit (memfd, System V, shared anonymous pages, pages given
to a pipe, larger buffers of pipes and sockets); and from changing the limits, cores or priority of
other processes. Only sockets within the machine remain.

First come system calls that Python does not offer: clone, mount, capabilities, prctl. Numbers and
flags are those of Linux's headers. Every function raises ``OSError`` when the kernel refuses.
The file can be imported anywhere; ``lacking`` says what another system has not.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

if sys.platform == "linux":
    import resource

    _libc = ctypes.CDLL(None, use_errno=True)

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


def lacking() -> str:
    """Return a sentence that names what this machine lacks; empty if it may have everything."""
    if sys.platform != "linux":
        names = {"darwin": "macOS", "win32": "Windows"}
        system = names.get(sys.platform, sys.platform)
        return f"{system} has no namespaces, seccomp filter or /proc"
    if MACHINE not in _SYSCALLS:
        return f"there is a seccomp filter for {' and '.join(_SYSCALLS)}, none for {MACHINE}"
    return ""


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


_SECCOMP_MODE_FILTER = 2
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_LOAD, _AND, _EQUAL, _GREATER_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_AT_NUMBER, _AT_MACHINE, _AT_ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_ALL_BITS = 0xFFFFFFFF
_AF_UNIX = 1
_NEW_NAMESPACES = 0x7E020000
_SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS
_F_SETPIPE_SZ, _SO_SNDBUF = 1031, 7
_CLONE3 = 435

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


@dataclass(frozen=True)
class Condition:
    """Refuses a system call by bits of one argument: ``refused`` if they are, or are not, equal."""

    name: str
    numbers: dict[str, int]
    argument: int
    mask: int
    value: int
    refused: bool


def _numbers(x86_64: int, aarch64: int) -> dict[str, int]:
    return {"x86_64": x86_64, "aarch64": aarch64}


CONDITIONS = (
    Condition("socket", _numbers(41, 198), 0, _ALL_BITS, _AF_UNIX, False),
    Condition("socketpair", _numbers(53, 199), 0, _ALL_BITS, _AF_UNIX, False),
    Condition("clone", _numbers(56, 220), 0, _NEW_NAMESPACES, 0, False),
    Condition("mmap", _numbers(9, 222), 3, _SHARED_ANONYMOUS, _SHARED_ANONYMOUS, True),
    Condition("fcntl", _numbers(72, 25), 1, _ALL_BITS, _F_SETPIPE_SZ, True),
    Condition("setsockopt", _numbers(54, 208), 2, _ALL_BITS, _SO_SNDBUF, True),
    # of itself only: process id 0
    Condition("prlimit64", _numbers(302, 261), 0, _ALL_BITS, 0, False),
    Condition("sched_setparam", _numbers(142, 118), 0, _ALL_BITS, 0, False),
    Condition("sched_setscheduler", _numbers(144, 119), 0, _ALL_BITS, 0, False),
    Condition("sched_setaffinity", _numbers(203, 122), 0, _ALL_BITS, 0, False),
    Condition("sched_setattr", _numbers(314, 274), 0, _ALL_BITS, 0, False),
)
DENIED = {
    "x86_64": {
        "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "ptrace": 101, "syslog": 103,
        "personality": 135, "pivot_root": 155, "acct": 163, "chroot": 161, "mount": 165,
        "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170,
        "setdomainname": 171, "init_module": 175, "delete_module": 176, "quotactl": 179,
        "clock_settime": 227, "mq_open": 240, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272,
        "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300,
        "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
        "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
        "setpriority": 141, "ioprio_set": 251, "vmsplice": 278, "io_setup": 206,
        "inotify_init": 253, "inotify_init1": 294,
    },
    "aarch64": {
        "shmget": 194, "shmat": 196, "semget": 190, "msgget": 186, "ptrace": 117, "syslog": 116,
        "personality": 92, "pivot_root": 41, "acct": 89, "chroot": 51, "mount": 40,
        "umount2": 39, "swapon": 224, "swapoff": 225, "reboot": 142, "sethostname": 161,
        "setdomainname": 162, "init_module": 105, "delete_module": 106, "quotactl": 60,
        "clock_settime": 112, "mq_open": 180, "kexec_load": 104, "add_key": 217,
        "request_key": 218, "keyctl": 219, "migrate_pages": 238, "unshare": 97,
        "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273,
        "memfd_create": 279, "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282,
        "setpriority": 140, "ioprio_set": 30, "vmsplice": 75, "io_setup": 0,
        "inotify_init1": 26,
    },
}  # fmt: skip
DENIED_EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "memfd_secret": 447,
    "landlock_create_ruleset": 444,
}  # fmt: skip
SOCKETS = tuple(c for c in CONDITIONS if c.name in ("socket", "socketpair"))


def for_programs(with_sockets: bool) -> bytes:
    """Return the filter for untrusted programs; ``with_sockets`` allows AF_UNIX sockets.

    Raises:
        OSError: if no filter can be written for this machine.
    """
    if MACHINE not in _AUDIT:
        raise OSError(f"seccomp: the system calls of {MACHINE} are not known")
    denied = {*DENIED[MACHINE].values(), *DENIED_EVERYWHERE.values()}
    if not with_sockets:
        denied |= {condition.numbers[MACHINE] for condition in SOCKETS}
    return assemble(denied, CONDITIONS)


def assemble(denied: Iterable[int], conditions: Iterable[Condition]) -> bytes:
    """Return a filter in BPF, eight bytes an instruction: calls by number, and by an argument.

    A jump counts the instructions it leaps over: first if the test holds, then if it does not.
    """

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    refuse = step(_RETURN, _ERRNO | errno.EPERM)
    program = [
        step(_LOAD, _AT_MACHINE),
        step(_EQUAL, _AUDIT[MACHINE], 1, 0),
        step(_RETURN, _KILL),
        step(_LOAD, _AT_NUMBER),
        step(_GREATER_EQUAL, _X32, 0, 1),
        step(_RETURN, _KILL),
        step(_EQUAL, _CLONE3, 0, 1),  # its flags are in memory, out of sight: libc takes clone then
        step(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for number in denied:
        program += [step(_EQUAL, number, 0, 1), refuse]
    for condition in conditions:
        program += [
            step(_EQUAL, condition.numbers[MACHINE], 0, 5),
            step(_LOAD, _AT_ARGUMENTS + 8 * condition.argument),
            step(_AND, condition.mask),
            step(_EQUAL, condition.value, int(not condition.refused), int(condition.refused)),
            refuse,
            step(_RETURN, _ALLOW),
        ]
    return b"".join([*program, step(_RETURN, _ALLOW)])


def install(code: bytes) -> None:
    """Put this process and its children under a filter, for good.

    Needs ``no_new_privs`` or root.

    Raises:
        OSError: if the kernel refuses.
    """
    buffer = ctypes.create_string_buffer(code, len(code))

    class FilterProgram(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    program = FilterProgram(length=len(code) // 8, code=ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


STACK_BYTES = 64 << 20


def confine(
    limits: Mapping[str, int | float], user: int | None, directory: str, with_sockets: bool
) -> None:
    """Become an unprivileged process of limited means in ``directory``.

    Args:
        limits: fields of ``Limits``.
        user: the user and group id to become; ``None`` keeps them.
        directory: where it starts.
        with_sockets: leave it sockets within the machine, where their memory can be counted.

    Raises:
        OSError: if the kernel refuses a protection; the program must then not run.
    """
    os.setsid()
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _limit(limits)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    os.umask(0o077)
    os.chdir(directory)
    drop_all_capabilities()
    prctl(PR_SET_DUMPABLE, 0)
    install(for_programs(with_sockets))


def keep_only(descriptors: Sequence[int]) -> None:
    """Make ``descriptors`` 0, 1, 2 …, in their order, and close all others."""
    count = len(descriptors)
    # out of the way first, so that none is overwritten before it is copied
    high = [os.dup2(d, 200 + i, inheritable=False) for i, d in enumerate(descriptors)]
    for target, source in enumerate(high):
        os.dup2(source, target)
    os.closerange(count, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _limit(limits: Mapping[str, int | float]) -> None:
    cpu = max(1, -int(-limits["cpu_s"] // 1))
    for kind, value in (
        (resource.RLIMIT_CPU, cpu + 1),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_STACK, min(STACK_BYTES, limits["memory_bytes"])),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 256),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ):
        most = resource.getrlimit(kind)[1]
        value = int(value) if most == resource.RLIM_INFINITY else min(int(value), most)
        resource.setrlimit(kind, (value, value))
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (min(cpu, most), most))
