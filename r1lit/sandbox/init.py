"""The first process of a sandbox: it sets the scene, runs programs, and when it ends all end.

It is forked by the launcher into namespaces of its own and is process 1 there: the kernel kills
every other process of the namespace with it. (Where that is not to be had and the user allowed to
go without, it is a process like any, and adopts what its programs leave behind to kill it.)

Its client speaks to it over a socket, in frames:

    put   name, body             writes /program/name
    run   mode, argv or files, limits, keep; body = stdin
          -> exit_code, signal, timed_out, limit, seconds, split; body = stdout + stderr

A failure of the sandbox itself is answered with ``{"failed": why}``, and ends it. A program counts
as started, and its end as its own, only after its process has said that it is confined.

Modes: ``command`` executes ``argv``, where ``{program}`` stands for ``/program``. The others are
for this interpreter and ``files`` of ``/program``: ``main`` runs the first as a program, ``calls``
loads all in turn and answers calls, ``tests`` runs the tests in the first; the latter two speak
over the sandbox's channel, descriptor 3. ``keep`` names files of ``/scratch`` to move into
``/program`` after a run that ended well. The socket's end is the end of the sandbox.
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
from r1lit.sandbox.callee import answer_calls
from r1lit.sandbox.confine import confine, keep_only
from r1lit.sandbox.folders import Folders
from r1lit.sandbox.frames import receive_frame, send_frame
from r1lit.sandbox.kernel import adopt_orphans, die_with_parent
from r1lit.sandbox.tester import run_tests_and_end
from r1lit.sandbox.view import View
from r1lit.sandbox.watch import Watch, kill_all

INSIDE_USER = 65534
_READY = b"ready"
_START_S = 20.0


@dataclass(kw_only=True)
class Scene:
    """What all runs of one sandbox share.

    ``user`` is the id a program changes to; ``None`` where it has the only one there is.
    """

    client: socket.socket
    channel: int | None
    user: int | None
    stage: View | Folders
    sealed: bool = False


def map_user(outside_user: int, outside_group: int) -> None:
    """Name the user who made this user namespace ``INSIDE_USER``."""
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
    """Set the scene, say so, and run what the client sends until it closes."""
    die_with_parent()
    os.umask(0o022)
    stage: View | Folders
    if settings["protected"]:
        owner = INSIDE_USER if user is None else user
        stage = View(settings["with_tools"], settings["packages"], settings["scratch_bytes"], owner)
    else:
        adopt_orphans()
        stage = Folders(user, settings["packages"])
    os.umask(0o077)
    scene = Scene(client=client, channel=channel, user=user, stage=stage)
    send_frame(client, {"protections": protections(settings["protected"], user)})
    try:
        _serve(scene)
    finally:
        kill_all()
        stage.leave()


def protections(protected: bool, user: int | None) -> list[str]:
    """Say in words what holds a program here."""
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


def _serve(scene: Scene) -> None:
    client = scene.client
    while True:
        try:
            header, body = receive_frame(client)
        except (EOFError, ConnectionError):
            return
        if header["op"] == "put":
            with open(f"{scene.stage.program}/{header['name']}", "wb") as file:
                file.write(body)
            os.chmod(file.name, 0o444)
        else:
            _run(scene, header, body)


def _run(scene: Scene, header: Mapping[str, Any], stdin: bytes) -> None:
    keeps = header.get("keep", ())
    if not scene.sealed and not keeps:
        scene.stage.seal()
        scene.sealed = True
    channel = scene.channel if header["mode"] in ("calls", "tests") else None
    inputs, outputs, errors, told = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    program = os.fork()
    if program == 0:
        _become_program(scene, header, [inputs[0], outputs[1], errors[1]], channel, told[1])
    for descriptor in (inputs[0], outputs[1], errors[1], told[1]):
        os.close(descriptor)
    _wait_for_start(told[0])
    if channel is not None:
        os.close(channel)
        scene.channel = None
    sockets = isinstance(scene.stage, View)
    watch = Watch(program, header["limits"], scene.stage.proc, scene.client.fileno(), sockets)
    report, output, error = watch.until_end(inputs[1], outputs[0], errors[0], stdin)
    if report["exit_code"] == 0:
        for name in keeps:
            _keep(scene.stage, name)
    scene.stage.renew_scratch()
    send_frame(scene.client, {**report, "split": len(output)}, output + error)


def _keep(stage: View | Folders, name: str) -> None:
    """Move a regular file from the scratch folder to the program's; a link is not followed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(f"{stage.scratch}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as source, open(f"{stage.program}/{name}", "wb") as target:
            if stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                shutil.copyfileobj(source, target)
                os.fchmod(target.fileno(), 0o555)


def _wait_for_start(told: int) -> None:
    """Wait until the program's process says that it is confined and begins with the program.

    Raises:
        SandboxError: if it does not, with what it says instead.
    """
    text = b""
    while select.select([told], [], [], _START_S)[0]:
        part = os.read(told, 1 << 12)
        if not part:
            break
        text += part
    os.close(told)
    if text != _READY:
        why = text.removeprefix(_READY).decode("utf-8", "replace") or "its process ended or hangs"
        raise SandboxError(f"the sandbox could not start the program: {why}")


def _become_program(
    scene: Scene, header: Mapping[str, Any], streams: list[int], channel: int | None, tell: int
) -> NoReturn:
    """Confine this process, say so on the descriptor ``tell``, close that, and run the program."""
    try:
        descriptors = [*streams, *(() if channel is None else (channel,)), tell]
        keep_only(descriptors)
        tell = len(descriptors) - 1
        os.set_inheritable(tell, False)
        protected = isinstance(scene.stage, View)
        confine(header["limits"], scene.user, scene.stage.scratch, with_sockets=protected)
        folder = scene.stage.program
        if header["mode"] == "command":
            _execute(header["argv"], folder, tell)
        python_program.become_python(folder, scene.stage.packages)
        files = [python_program.read(f"{folder}/{name}") for name in header["files"]]
    except BaseException as error:  # nothing of the program has run, and nothing of it may
        with contextlib.suppress(OSError):  # silence is a failure as well
            os.write(tell, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000])
        os._exit(127)
    try:
        os.write(tell, _READY)
        os.close(tell)
        if header["mode"] == "calls":
            answer_calls(files, 3)
        if header["mode"] == "tests":
            run_tests_and_end(files[0][1], 3)
        python_program.run_main(files[0])
    finally:
        os._exit(127)


def _execute(argv: list[str], folder: str, tell: int) -> NoReturn:
    """Replace this process by the command ``argv``.

    Raises:
        OSError: if the kernel refuses to execute a file that is not the program's own.
    """
    command = [part.replace("{program}", folder) for part in argv]
    os.write(tell, _READY)
    try:
        os.execve(command[0], command, dict(os.environ))
    except OSError as error:
        if command[0] == argv[0]:
            raise
        os.write(2, f"cannot be executed: {error}\n".encode())
    os._exit(127)
