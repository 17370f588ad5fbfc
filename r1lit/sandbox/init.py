"""The init process of one sandbox: it sets up the file system and runs programs for its client.

The launcher forks it into new namespaces, where it is process 1: when it ends, the kernel kills all
other processes there. Without namespaces (``allow_unprotected``) it adopts orphaned processes, so
that it can kill them.

The client sends frames over a socket:

    put   name, body             writes /program/name
    run   mode, argv or files, limits, keep; body = stdin
          -> exit_code, signal, timed_out, limit, seconds, split; body = stdout + stderr

If the sandbox itself fails, it answers ``{"failed": reason}`` and ends. A run counts only after its
process has reported that it is confined.

Modes: ``command`` executes ``argv``, where ``{program}`` stands for ``/program``. The others use
this Python interpreter and ``files`` of ``/program``: ``main`` runs the first one, ``calls`` loads
all of them and serves function calls, ``tests`` runs the tests in the first one; the last two use
the sandbox's channel as descriptor 3. ``keep`` names files of ``/scratch`` to move to ``/program``
after a run with exit code 0. The sandbox ends when the client closes the socket.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from r1lit.sandbox import python_program
from r1lit.sandbox.base import SandboxError
from r1lit.sandbox.calls import answer_calls
from r1lit.sandbox.confine import confine, keep_only
from r1lit.sandbox.container import receive_frame, send_frame
from r1lit.sandbox.filesystem import IsolatedFilesystem, OpenFilesystem
from r1lit.sandbox.kernel import adopt_orphans, die_with_parent
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
            with open(f"{state.filesystem.program}/{header['name']}", "wb") as file:
                file.write(body)
            os.chmod(file.name, 0o444)
        else:
            _run(state, header, body)


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
        python_program.become_python(folder, state.filesystem.packages)
        files = [python_program.read(f"{folder}/{name}") for name in header["files"]]
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
        python_program.run_main(files[0])
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
