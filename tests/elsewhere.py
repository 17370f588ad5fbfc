"""Imports every module of r1lit as macOS or Windows would: without what only Linux has.

Run as ``python tests/elsewhere.py {darwin,win32}``. Only r1lit is deceived: where it imports ``os``
it gets one without ``fork``, and so on; the libraries below it are loaded as they are here.
It prints one line a module that fails, and then what a sandbox, a lock and a verifier say there.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import tempfile
import types
from pathlib import Path

LINUX = {
    "os": "eventfd getrandom memfd_create pidfd_open posix_fallocate posix_fadvise "
    "sched_getaffinity sched_setaffinity sched_setscheduler sendfile setns setresgid setresuid "
    "splice unshare getresuid getresgid copy_file_range fdatasync O_TMPFILE O_PATH O_DIRECT",
    "resource": "RLIMIT_MSGQUEUE RLIMIT_SIGPENDING RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME prlimit",
    "select": "epoll EPOLLIN",
    "signal": "SIGRTMIN SIGRTMAX SIGPWR SIGPOLL SIGSTKFLT sigwaitinfo sigtimedwait",
    "socket": "AF_NETLINK AF_PACKET AF_VSOCK AF_ALG SO_PEERCRED SO_PASSCRED",
    "time": "CLOCK_BOOTTIME CLOCK_TAI",
}
POSIX = {
    "os": "fork forkpty getuid geteuid getgid getegid setuid setgid setsid setgroups killpg "
    "getpgid setpgid nice uname sysconf confstr getloadavg mkfifo mknod pread pwrite chown fchown "
    "lchown statvfs fstatvfs wait wait3 wait4 waitid WIFEXITED WNOHANG O_NONBLOCK O_NOFOLLOW "
    "O_DIRECTORY O_CLOEXEC pathconf posix_spawn fchmod fchdir getpriority setpriority sync chroot "
    "getgroups getgrouplist register_at_fork",
    "select": "poll POLLIN epoll",
    "signal": "SIGKILL SIGALRM SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGSTOP SIGTSTP SIGQUIT SIGPIPE "
    "SIGXCPU SIGXFSZ alarm setitimer getitimer ITIMER_REAL pthread_kill pthread_sigmask SIG_BLOCK "
    "SIG_SETMASK sigwait sigpending pause siginterrupt",
    "socket": "AF_UNIX send_fds recv_fds SCM_RIGHTS SOCK_CLOEXEC SOCK_NONBLOCK sethostname",
    "time": "tzset clock_gettime CLOCK_MONOTONIC pthread_getcpuclockid",
}  # fmt: skip
MODULES = "crypt fcntl grp nis ossaudiodev posix pty pwd resource spwd syslog termios tty"
CLAIMED = {"darwin": ("Darwin", "arm64"), "win32": ("Windows", "AMD64")}


def without(module: types.ModuleType, hidden: set[str], changed: dict[str, object]):
    """Return a stand-in for a module of the standard library that lacks some of its names."""
    shown = types.ModuleType(module.__name__)

    def value(name: str):
        if name in hidden:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return getattr(module, name)

    shown.__getattr__ = value  # type: ignore[method-assign]
    vars(shown).update(changed)
    return shown


def no_library(name, *_, **__):
    """Stand for ``ctypes.CDLL`` on Windows, which takes no None."""
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    raise OSError(name)


def stand_ins(system: str) -> tuple[set[str], dict[str, types.ModuleType]]:
    """Return the modules that ``system`` lacks, and stand-ins for those of which it lacks parts."""
    lacked = [LINUX, POSIX] if system == "win32" else [LINUX]
    hidden = {
        name: {word for part in lacked for word in part.get(name, "").split()}
        for name in {*LINUX, *POSIX}
    }
    title, machine = CLAIMED[system]
    changed: dict[str, dict[str, object]] = {
        "sys": {"platform": system},
        "platform": {"system": lambda: title, "machine": lambda: machine},
    }
    if system == "win32":
        changed["os"] = {"name": "nt"}
        changed["ctypes"] = {"CDLL": no_library}
    shown = {
        name: without(importlib.import_module(name), hidden.get(name, set()), changed.get(name, {}))
        for name in {*hidden, *changed}
    }
    return set(MODULES.split()) if system == "win32" else set(), shown


def main() -> int:
    """Import all modules; return how many fail."""
    root = Path(__file__).resolve().parents[1]
    sys.path.insert(0, str(root))
    files = [p for p in sorted(root.glob("r1lit/**/*.py")) if "vllm_worker" not in p.parts]
    names = [".".join(p.relative_to(root).with_suffix("").parts) for p in files]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    missing, shown = stand_ins(sys.argv[1])
    before = builtins.__import__

    def deceive(name, globals=None, locals=None, fromlist=(), level=0):
        if globals is not None and str(globals.get("__name__", "")).startswith("r1lit"):
            if name.partition(".")[0] in missing:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in shown:
                return shown[name]
        return before(name, globals, locals, fromlist, level)

    builtins.__import__ = deceive
    failed = 0
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}")
    print(f"{len(names) - failed} of {len(names)} modules")
    if not failed:
        report()
    return failed


def report() -> None:
    """Print what the parts that need another system answer in this one."""
    from r1lit.files import held
    from r1lit.modules.speed import host_memory
    from r1lit.problems import Problem
    from r1lit.sandbox import LocalSandbox, Program
    from r1lit.verifiers import MathVerifier

    def lock() -> str:
        with tempfile.TemporaryDirectory() as folder, held(Path(folder, "lock")) as file:
            return "held" if file else "not held"

    math = Problem(uid="1", question="", answer="x+1", source="")
    program = Program(language="python", files={"main.py": "print(1)"})
    for name, ask in {
        "sandbox": lambda: LocalSandbox(allow_unprotected=True).run(program),
        "lock": lock,
        "math": lambda: MathVerifier().verify("<answer>1+x</answer>", math).status,
        "memory": lambda: sorted(host_memory()),
    }.items():
        try:
            print(f"{name}: {ask()}")
        except (RuntimeError, ValueError) as error:
            print(f"{name}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
