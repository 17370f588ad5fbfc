"""The sandbox of this machine: Linux namespaces, resource limits and a seccomp filter."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from r1lit.sandbox.base import Limits, Outcome, Program, Sandbox, SandboxError, to_bytes
from r1lit.sandbox.compilers import BINARY, COMPILERS, compile_command, compiler_of
from r1lit.sandbox.frames import receive_frame, send_frame

START_SECONDS = 20.0
COMPILE_LIMITS = Limits(wall_s=30.0, cpu_s=30.0, file_bytes=64 << 20, output_bytes=1 << 16)
_PACKAGE = str(Path(__file__).resolve().parents[2])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from r1lit.sandbox.launcher import main;"
    "sys.path.remove(sys.argv[1]); main(int(sys.argv[2]))"
)
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/scratch",
    "TMPDIR": "/scratch",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
}


class Box:
    """One sandbox in use: it holds the files and runs of one program. Close it after use."""

    def __init__(self, client: socket.socket, done: int) -> None:
        self._client = client
        self._done = done

    def put(self, name: str, content: str | bytes) -> None:
        """Write ``/program/name``, before the first run."""
        body = to_bytes(content) if isinstance(content, str) else content
        self._send({"op": "put", "name": name}, body)

    def start(self, request: Mapping[str, Any], limits: Limits, stdin: bytes = b"") -> None:
        """Start a run; see ``init`` for what a request holds."""
        self._send({"op": "run", **request, "limits": asdict(limits)}, stdin)

    def outcome(self, wait_s: float) -> Outcome:
        """Wait for the end of a run that ``start`` started.

        Raises:
            SandboxError: if the sandbox fails or ends, or gives none within ``wait_s``.
        """
        report, body = self._hear(wait_s)
        split = report.pop("split")
        return Outcome(stdout=body[:split], stderr=body[split:], **report)

    def ready(self) -> list[str]:
        """Wait until the scene is set; return what protects us from the program, in words.

        Raises:
            SandboxError: saying why it cannot be.
        """
        try:
            header, _ = self._hear(START_SECONDS)
        except SandboxError as error:
            raise SandboxError(
                "this machine does not let r1lit protect itself from programs; allow user"
                " namespaces (sysctl kernel.unprivileged_userns_clone=1, or AppArmor's"
                " kernel.apparmor_restrict_unprivileged_userns=0), use a remote sandbox, or pass"
                f" allow_unprotected=True: {error}"
            ) from error
        found: list[str] = header["protections"]
        return found

    def close(self) -> None:
        """Kill what runs and wait until every process is gone."""
        if self._done >= 0:
            with contextlib.suppress(OSError):  # a forked copy may hold it: end it for all
                self._client.shutdown(socket.SHUT_RDWR)
            self._client.close()
            os.read(self._done, 1)
            os.close(self._done)
            self._done = -1

    def _send(self, header: Mapping[str, Any], body: bytes) -> None:
        try:
            send_frame(self._client, header, body)
        except OSError as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error

    def _hear(self, wait_s: float) -> tuple[dict[str, Any], bytes]:
        self._client.settimeout(wait_s)
        try:
            header, body = receive_frame(self._client)
        except (EOFError, OSError) as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error
        if "failed" in header:
            raise SandboxError(header["failed"])
        return header, body

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class LocalSandbox(Sandbox):
    """Runs programs on this machine. Threads may share it; a forked copy starts its own launcher.

    The first use finds out whether this machine offers protection. Where it does not, programs are
    refused with a ``SandboxError``, unless ``allow_unprotected``: then they run with limits and a
    system call filter only, and can read whatever this user can.
    """

    def __init__(self, allow_unprotected: bool = False) -> None:
        self.allow_unprotected = allow_unprotected
        self._protected = True
        self._compiling: set[str] = set()
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._pid = os.getpid()

    @property
    def languages(self) -> tuple[str, ...]:
        """Python, and those with a compiler on this machine."""
        return ("python", *(name for name in COMPILERS if compiler_of(name)))

    def open(
        self, scratch_bytes: int, with_tools: bool = False, channel: socket.socket | None = None
    ) -> Box:
        """Return a fresh sandbox; ``with_tools`` shows it compilers, ``channel`` goes to a run.

        Raises:
            SandboxError: if it cannot be made.
        """
        try:
            return self._open(scratch_bytes, with_tools, channel, self._protected)[0]
        except SandboxError:
            if not (self.allow_unprotected and self._protected):
                raise
        box, _ = self._open(scratch_bytes, with_tools, channel, False)
        self._protected = False
        return box

    def protections(self) -> list[str]:
        """Return what protects this machine from programs, in words.

        Raises:
            SandboxError: if nothing does and that is not allowed.
        """
        self.open(1 << 20).close()
        box, on = self._open(1 << 20, False, None, self._protected)
        box.close()
        return on

    def _open(
        self, scratch_bytes: int, with_tools: bool, channel: socket.socket | None, protected: bool
    ) -> tuple[Box, list[str]]:
        settings = {
            "protected": protected,
            "with_tools": with_tools,
            "scratch_bytes": scratch_bytes,
        }
        ours, theirs = socket.socketpair()
        done, done_theirs = os.pipe()
        descriptors = [theirs.fileno(), done_theirs]
        if channel is not None:
            descriptors.append(channel.fileno())
        try:
            with self._lock:
                control = self._launcher()
                socket.send_fds(control, [json.dumps(settings).encode()], descriptors)
        except OSError as error:
            os.close(done)
            ours.close()
            raise SandboxError(f"the launcher has ended: {error}") from error
        finally:
            os.close(done_theirs)
            theirs.close()
        box = Box(ours, done)
        try:
            return box, box.ready()
        except BaseException:
            box.close()
            raise

    def runs(self, program: Program, stdins: Sequence[bytes], limits: Limits) -> Iterator[Outcome]:
        """Run a program once per stdin, in one sandbox; see ``Sandbox.runs``."""
        if program.language not in self.languages:
            raise ValueError(
                f"program.language: {program.language!r} is none of {list(self.languages)}"
            )
        main = next(iter(program.files))
        compiled = program.language in COMPILERS
        request: dict[str, Any] = {"python": [main]}
        with self.open(limits.scratch_bytes, with_tools=compiled) as box:
            for name, content in program.files.items():
                box.put(name, content)
            if compiled:
                refusal = compile_in(box, program.language, main)
                if refusal is not None:
                    self._check_compiler(program.language, main)
                    yield refusal
                    return
                request = {"argv": ["{program}/" + BINARY]}
            for stdin in stdins:
                box.start(request, limits, stdin)
                yield box.outcome(limits.wall_s + START_SECONDS)

    def _check_compiler(self, language: str, file: str) -> None:
        """Raise ``SandboxError`` unless the smallest program compiles; asked once a language."""
        if language in self._compiling:
            return
        with self.open(16 << 20, with_tools=True) as box:
            box.put(file, COMPILERS[language].smallest)
            refusal = compile_in(box, language, file)
        if refusal is not None:
            reason = refusal.stderr.decode("utf-8", "replace")[:300] or refusal.limit
            raise SandboxError(f"the compiler of {language} does not work in the sandbox: {reason}")
        self._compiling.add(language)

    def close(self) -> None:
        """End the launcher and with it every sandbox; a later call starts a new one."""
        if self._pid != os.getpid():  # forked: it belongs to the parent
            return
        with self._lock:
            self._finalizer() if self._process else None
            self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"allow_unprotected": self.allow_unprotected}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        LocalSandbox.__init__(self, **state)

    def _launcher(self) -> socket.socket:
        if self._pid != os.getpid():
            self._forget()
        if self._control is None or self._process is None or self._process.poll() is not None:
            self._control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            with theirs:
                self._process = start_launcher(theirs)
            self._finalizer = weakref.finalize(
                self, _end, self._process, self._control, os.getpid()
            )
        return self._control


def start_launcher(control: socket.socket) -> subprocess.Popen[bytes]:
    """Start the launcher process, with nothing of this process's environment."""
    return subprocess.Popen(
        [
            os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
            *("-I", "-S", "-c", _START, _PACKAGE, str(control.fileno())),
        ],
        pass_fds=[control.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )


def compile_in(box: Box, language: str, file: str) -> Outcome | None:
    """Compile ``/program/file`` within the sandbox; return the outcome if it is refused."""
    request = {"argv": compile_command(language, "{program}/" + file), "keep": [BINARY]}
    box.start(request, COMPILE_LIMITS)
    outcome = box.outcome(COMPILE_LIMITS.wall_s + START_SECONDS)
    return None if outcome.ok else replace(outcome, compiled=False)


def _end(process: subprocess.Popen[bytes], control: socket.socket, pid: int) -> None:
    """Let the launcher end, unless this process was forked from the one that started it."""
    if os.getpid() == pid:
        control.close()
        process.kill()
        process.wait()
