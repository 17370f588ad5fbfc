"""The processes behind a sandbox: the launcher, the init process of each sandbox, its programs.

The launcher is a small process that forks sandboxes, each into namespaces of its own. It is started
with a clean environment and the standard library only. It never reads a program or a test: those go
straight from the client to the sandbox that it forked, so that no later fork can find them in
memory it inherited. Over its socket come requests with descriptors,

    {"protected", "with_tools", "packages", "scratch_bytes"}  + [client, done] or with [channel]

and nothing goes back. ``done`` closes when every process of that sandbox is gone. When the socket
closes, as it does when its client ends, the launcher and all sandboxes end. A parent-death signal
would not do: it fires at the end of the thread that started the launcher.

The init process sets up the file system and runs programs for its client. It is process 1 of its
namespaces: when it ends, the kernel kills all other processes there. Without namespaces
(``allow_unprotected``) it adopts orphaned processes, so that it can kill them.

The client sends frames over a socket:

    put   name, body             writes /program/name; a name may have folders
    run   mode, argv or files, limits, keep; body = stdin
          -> exit_code, signal, timed_out, limit, seconds, split; body = stdout + stderr

If the sandbox itself fails, it answers ``{"failed": reason}`` and ends. A run counts only after its
process has reported that it is confined.

Modes: ``command`` executes ``argv``, where ``{program}`` stands for ``/program``. The others use
this Python interpreter and ``files`` of ``/program``: ``main`` runs the first one, ``calls`` loads
all of them and serves function calls, ``tests`` runs the tests in the first one; the last two use
the sandbox's channel as descriptor 3. ``keep`` names files of ``/scratch`` to move to ``/program``
after a run with exit code 0. The sandbox ends when the client closes the socket.

A Python program runs in the process that was forked for it and is already confined: starting a
second interpreter would take ten times as long.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import sys
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from r1lit.sandbox.base import SandboxError, receive_frame, send_frame
from r1lit.sandbox.calls import answer_calls
from r1lit.sandbox.confine import (
    CLONE_NEWUSER,
    NAMESPACES,
    adopt_orphans,
    confine,
    die_with_parent,
    fork_into,
    keep_only,
)
from r1lit.sandbox.filesystem import IsolatedFilesystem, OpenFilesystem
from r1lit.sandbox.monitor import Monitor, kill_all
from r1lit.sandbox.run_tests import run_tests_and_end

INSIDE_USER = 65534
_READY = b"ready"
_START_S = 20.0


@dataclass(kw_only=True)
class State:
    """State that all runs of one sandbox share.

    Programs change to the user id ``user``, or keep theirs if it is ``None``.
    """

    client: socket.socket
    channel: int | None
    user: int | None
    filesystem: IsolatedFilesystem | OpenFilesystem
    read_only: bool = False


def map_user(outside_user: int, outside_group: int) -> None:
    """Map the user outside to ``INSIDE_USER`` in this user namespace."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{INSIDE_USER} {outside_user} 1"),
        ("gid_map", f"{INSIDE_USER} {outside_group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def serve(
    client: socket.socket, channel: int | None, user: int | None, settings: Mapping[str, Any]
) -> None:
    """Set up the sandbox, report what protects it, and serve the client until it closes."""
    die_with_parent()
    os.umask(0o022)
    filesystem: IsolatedFilesystem | OpenFilesystem
    if settings["protected"]:
        owner = INSIDE_USER if user is None else user
        filesystem = IsolatedFilesystem(
            settings["with_tools"], settings["packages"], settings["scratch_bytes"], owner
        )
    else:
        adopt_orphans()
        filesystem = OpenFilesystem(user, settings["packages"])
    os.umask(0o077)
    state = State(client=client, channel=channel, user=user, filesystem=filesystem)
    send_frame(client, {"protections": protections(settings["protected"], user)})
    try:
        _serve(state)
    finally:
        kill_all()
        filesystem.remove()


def protections(protected: bool, user: int | None) -> list[str]:
    """Return one line per protection that is active."""
    on = []
    if protected:
        on += [
            "no network: a network namespace without devices",
            "no view of other processes, and none outlives it: a process namespace",
            "no view of files but the interpreter and system libraries: a mount namespace",
            "a scratch folder of limited size, gone afterwards",
        ]
    if user is not None:
        on.append(f"an unprivileged user of its own ({user}), without capabilities")
    else:
        on.append("no capabilities" + (", in a user namespace" if protected else ""))
    sockets = "no sockets but local ones" if protected else "no sockets"
    return [
        *on,
        f"a system call filter: {sockets}, no namespaces, no tracing, no shared memory",
        "limits on CPU, wall time, memory, processes, open files, file size and output",
        "a limit on the memory of all its processes and sockets together",
    ]


def _serve(state: State) -> None:
    client = state.client
    while True:
        try:
            header, body = receive_frame(client)
        except (EOFError, ConnectionError):
            return
        if header["op"] == "put":
            _put(f"{state.filesystem.program}/{header['name']}", body)
        else:
            _run(state, header, body)


def _put(path: str, body: bytes) -> None:
    """Write a file that every user may read, in folders that are made as needed."""
    os.umask(0o022)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(body)
    os.chmod(path, 0o444)
    os.umask(0o077)


def _run(state: State, header: Mapping[str, Any], stdin: bytes) -> None:
    keeps = header.get("keep", ())
    if not state.read_only and not keeps:
        state.filesystem.make_read_only()
        state.read_only = True
    channel = state.channel if header["mode"] in ("calls", "tests") else None
    inputs, outputs, errors, status = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    program = os.fork()
    if program == 0:
        _become_program(state, header, [inputs[0], outputs[1], errors[1]], channel, status[1])
    for descriptor in (inputs[0], outputs[1], errors[1], status[1]):
        os.close(descriptor)
    _wait_for_start(status[0])
    if channel is not None:
        os.close(channel)
        state.channel = None
    sockets = isinstance(state.filesystem, IsolatedFilesystem)
    monitor = Monitor(
        program, header["limits"], state.filesystem.proc, state.client.fileno(), sockets
    )
    report, output, error = monitor.run_until_exit(inputs[1], outputs[0], errors[0], stdin)
    if report["exit_code"] == 0:
        for name in keeps:
            _keep_artifact(state.filesystem, name)
    state.filesystem.clear_scratch()
    send_frame(state.client, {**report, "split": len(output)}, output + error)


def _keep_artifact(filesystem: IsolatedFilesystem | OpenFilesystem, name: str) -> None:
    """Move a regular file from the scratch folder to the program's; a link is not followed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(
            f"{filesystem.scratch}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        )
        with open(descriptor, "rb") as source, open(f"{filesystem.program}/{name}", "wb") as target:
            if stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                shutil.copyfileobj(source, target)
                os.fchmod(target.fileno(), 0o555)


def _wait_for_start(status: int) -> None:
    """Wait until the program's process reports over the pipe ``status`` that it is confined.

    Raises:
        SandboxError: if it reports an error, nothing, or takes too long.
    """
    text = b""
    while select.select([status], [], [], _START_S)[0]:
        part = os.read(status, 1 << 12)
        if not part:
            break
        text += part
    os.close(status)
    if text != _READY:
        why = text.removeprefix(_READY).decode("utf-8", "replace") or "its process ended or hangs"
        raise SandboxError(f"the sandbox could not start the program: {why}")


def _become_program(
    state: State, header: Mapping[str, Any], streams: list[int], channel: int | None, status: int
) -> NoReturn:
    """Confine this process, report it over the pipe ``status``, close that, run the program."""
    try:
        descriptors = [*streams, *(() if channel is None else (channel,)), status]
        keep_only(descriptors)
        status = len(descriptors) - 1
        os.set_inheritable(status, False)
        protected = isinstance(state.filesystem, IsolatedFilesystem)
        confine(header["limits"], state.user, state.filesystem.scratch, with_sockets=protected)
        folder = state.filesystem.program
        if header["mode"] == "command":
            _execute(header["argv"], folder, status)
        become_python(folder, state.filesystem.packages)
        files = [read_program(f"{folder}/{name}") for name in header["files"]]
    except BaseException as error:  # the program has not started, and must not
        with contextlib.suppress(OSError):  # no report is a failure, too
            os.write(status, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000])
        os._exit(127)
    try:
        os.write(status, _READY)
        os.close(status)
        if header["mode"] == "calls":
            answer_calls(files, 3)
        if header["mode"] == "tests":
            run_tests_and_end(files[0][1], 3)
        run_main(files[0])
    finally:
        os._exit(127)


def _execute(argv: list[str], folder: str, status: int) -> NoReturn:
    """Replace this process by the command ``argv``.

    Raises:
        OSError: if a file that is not the program's own (a compiler) cannot be executed.
    """
    command = [part.replace("{program}", folder) for part in argv]
    os.write(status, _READY)
    try:
        os.execve(command[0], command, dict(os.environ))
    except OSError as error:
        if command[0] == argv[0]:
            raise
        os.write(2, f"cannot be executed: {error}\n".encode())
    os._exit(127)


CORES = 2


def become_python(directory: str, packages: Sequence[str]) -> None:
    """Give this process the standard streams, path and builtins of a fresh interpreter.

    It imports from ``directory``, from the standard library, and from the folders ``packages``.
    """
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape")  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="surrogateescape")  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1
    )
    sys.path[:] = [directory, *sys.path, *packages]
    for name in [name for name in sys.modules if name.partition(".")[0] == "r1lit"]:
        del sys.modules[name]
    os.cpu_count = lambda: CORES  # what multiprocessing.Pool() starts
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))


def read_program(path: str) -> tuple[str, bytes]:
    """Return the path and content of a program's file."""
    with open(path, "rb") as file:
        return path, file.read()


def run_main(file: tuple[str, bytes]) -> NoReturn:
    """Run a program, given as path and content, and end the process as the interpreter would."""
    path, source = file
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = [path]
    status = 0
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as end:
        status = exit_status(end.code)
    except BaseException:
        traceback.print_exc()
        status = 1
    leave(status)


def exit_status(code: Any) -> int:
    """Return the exit status for what ``sys.exit`` was given; print it if it is a message."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def leave(status: int) -> NoReturn:
    """Wait for threads, run what was registered for the exit, flush, and end the process."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
        status = status or 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


FIRST_USER = 1_000_000_000
USERS = 500
"""User ids from ``FIRST_USER`` on are unused. Each launcher has ``USERS`` of them and gives its
sandboxes one each in turn, so that limits per user do not count other sandboxes."""

# what most programs import: a fork has it for nothing
for _name in (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "fractions",
    "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "random", "re",
    "statistics", "string", "threading", "traceback", "typing",
):  # fmt: skip
    __import__(_name)


def spare_user() -> int | None:
    """Return the first of ``USERS`` user ids to run programs as.

    ``None`` where this process may not change its own.
    """
    if os.geteuid() != 0:
        return None
    user = FIRST_USER + USERS * (os.getpid() % (1 << 22))
    with open("/proc/self/uid_map") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    for start, _, length in ranges:
        if start <= user and user + USERS <= start + length:
            return user
    return None


class Launcher:
    """Serves one parent over ``control``."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._user = spare_user()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._sandboxes: dict[int, tuple[int, int]] = {}
        self._num_launched = 0

    def serve(self) -> None:
        """Fork sandboxes until the parent closes the socket."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor != self._control.fileno():
                    self._reap(descriptor)
                elif not self._launch():
                    return

    def _launch(self) -> bool:
        text, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 3)
        if not text:
            return False
        client, done, *channel = descriptors
        settings = json.loads(text)
        namespaces = NAMESPACES | (CLONE_NEWUSER if self._user is None else 0)
        if not settings["protected"]:
            namespaces = 0
        user, group = os.geteuid(), os.getegid()
        self._num_launched += 1
        try:
            process = fork_into(namespaces)
        except OSError as error:
            with socket.socket(fileno=client) as connection:
                send_frame(connection, {"failed": f"no namespaces: {error}"})
            for descriptor in (done, *channel):
                os.close(descriptor)
            return True
        if process == 0:
            os.close(done)
            for other, (_, other_done) in self._sandboxes.items():
                os.close(other)
                os.close(other_done)
            self._control.close()
            self._become_init(client, channel, user, group, settings)
        for descriptor in (client, *channel):
            os.close(descriptor)
        ended = os.pidfd_open(process)
        self._sandboxes[ended] = (process, done)
        self._poll.register(ended, select.POLLIN)
        return True

    def _become_init(
        self,
        client: int,
        channel: list[int],
        user: int,
        group: int,
        settings: Mapping[str, Any],
    ) -> None:
        connection = socket.socket(fileno=client)
        try:
            if self._user is None and settings["protected"]:
                map_user(user, group)
            own = None if self._user is None else self._user + self._num_launched % USERS
            serve(connection, channel[0] if channel else None, own, settings)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has gone
        except SandboxError as error:
            send_frame(connection, {"failed": str(error)})
        except BaseException:
            send_frame(connection, {"failed": traceback.format_exc(limit=-3)})
        finally:
            os._exit(0)

    def _reap(self, ended: int) -> None:
        process, done = self._sandboxes.pop(ended)
        os.waitpid(process, 0)
        self._poll.unregister(ended)
        os.close(ended)
        os.close(done)


def launch(control: int) -> None:
    """Serve the parent over the socket ``control``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes
    if sys.stdin is not None:
        sys.stdin.close()
    Launcher(socket.socket(fileno=control)).serve()
