"""Confines the current process, for good, before it runs an untrusted program."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping, Sequence

from r1lit.sandbox import seccomp
from r1lit.sandbox.kernel import PR_SET_DUMPABLE, drop_all_capabilities, prctl

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
    seccomp.install(seccomp.for_programs(with_sockets))


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
