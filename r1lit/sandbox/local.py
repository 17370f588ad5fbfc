"""The sandbox of this machine: Linux namespaces, resource limits and a seccomp filter.

Python runs in it, and languages whose compiler or interpreter is found (``TOOLCHAINS``). Of the
installed packages tests see all, programs two that they may name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from r1lit.errors import check_one_of
from r1lit.sandbox.base import (
    Limits,
    Outcome,
    Program,
    Sandbox,
    SandboxError,
    receive_frame,
    send_frame,
    to_bytes,
)
from r1lit.sandbox.confine import lacking

BINARY = "program.out"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A language's toolchain: how a file is compiled, and how the result is run.

    ``compilers`` and ``runners`` are programs of which one is needed, best first; without compilers
    the file itself is run, without runners the binary. Flags go before the file. ``smallest`` is a
    program that every working compiler accepts. A runner needs ``memory_bytes`` of address space,
    and it and a compiler ``processes`` (threads count) to start, so limits are at least these; a
    compiler gets ``compiler_memory_bytes`` of its own. A runner finds libraries in ``libraries`` of
    its home, which it would look up in ``/proc``.
    """

    compilers: tuple[str, ...] = ()
    compiler_flags: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    runner_flags: tuple[str, ...] = ()
    smallest: str = ""
    memory_bytes: int = 1
    compiler_memory_bytes: int = 1
    processes: int = 1
    libraries: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True where this machine has the whole toolchain."""
        return all(not names or find_tool(names) for names in (self.compilers, self.runners))

    def run_command(self, file: str) -> list[str]:
        """Return the command that runs ``file``."""
        if not self.runners:
            return [file]
        path = os.path.realpath(str(find_tool(self.runners)))
        home = os.path.dirname(os.path.dirname(path))
        folders = ":".join(f"{home}/{name}" for name in self.libraries)
        start = ["/usr/bin/env", f"LD_LIBRARY_PATH={folders}"] if folders else []
        return [*start, path, *self.runner_flags, file]


TOOLCHAINS = {
    "c++": Toolchain(
        compilers=("g++", "clang++"),
        compiler_flags=("-std=c++17", "-O2", "-w", "-pipe", "-o", BINARY),
        smallest="int main() {}",
    ),
    "java": Toolchain(
        runners=("java",),
        runner_flags=(
            *("-ea", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1"),
            *("-XX:CompressedClassSpaceSize=64m", "-XX:ReservedCodeCacheSize=64m"),
        ),
        memory_bytes=3 << 30,
        processes=64,
        libraries=("lib", "lib/server"),
    ),
    "javascript": Toolchain(runners=("node", "nodejs"), processes=32),
    "bash": Toolchain(runners=("bash",)),
    "typescript": Toolchain(
        compilers=("tsc",),
        compiler_flags=("--target", "es2020", "--outFile", BINARY),
        runners=("node", "nodejs"),
        smallest="let x = 1",
        compiler_memory_bytes=3 << 30,
        processes=32,
    ),
    "php": Toolchain(runners=("php",)),
}
"""The languages beside Python. C# is not among them: Mono needs ``/proc``, which is hidden."""


def find_tool(names: Sequence[str]) -> str | None:
    """Return the path of the first of some programs that this machine has, or ``None``."""
    found = (shutil.which(name, path="/usr/bin:/bin") for name in names)
    return next((path for path in found if path), None)


def compile_command(language: str, file: str) -> list[str]:
    """Return the command that compiles ``file`` to ``BINARY`` in the current folder.

    Raises:
        ValueError: if this machine has no compiler for it.
    """
    toolchain = TOOLCHAINS[language]
    path = find_tool(toolchain.compilers)
    if path is None:
        names = " or ".join(toolchain.compilers)
        raise ValueError(f"language: {language!r} needs {names} in /usr/bin")
    return [path, *toolchain.compiler_flags, file]


LIBRARIES = ("numpy", "sortedcontainers")
"""Packages that programs may import where they are installed."""


def packages() -> list[str]:
    """Return the folders of this interpreter's installed packages."""
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if os.path.basename(path) in names and os.path.isdir(path)]


def libraries(sources: Iterable[str]) -> list[str]:
    """Return the folders of the libraries that a program imports, and of no other package."""
    text = "\n".join(sources)
    found = [
        os.path.join(folder, name)
        for library in LIBRARIES
        if re.search(rf"^[ \t]*+(?:import|from)[ \t][^\n]*\b{library}\b", text, re.MULTILINE)
        for folder in packages()
        for name in (library, f"{library}.libs")
    ]
    return [path for path in found if os.path.isdir(path)]


COMPILE_LIMITS = Limits(wall_s=30.0, cpu_s=30.0, file_bytes=64 << 20, output_bytes=1 << 16)
_PACKAGE = str(Path(__file__).resolve().parents[2])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from r1lit.sandbox.init import launch;"
    "sys.path.remove(sys.argv[1]); launch(int(sys.argv[2]))"
)
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/scratch",
    "TMPDIR": "/scratch",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
}


class LocalSandbox(Sandbox):
    """Runs programs on this machine. Threads may share it; a forked copy starts its own launcher.

    The first use finds out whether this machine offers protection. Where it does not, programs are
    refused with a ``SandboxError``, unless ``allow_unprotected``: then they run with limits and a
    system call filter only, and can read whatever this user can. Other systems than Linux have no
    such filter, so programs are refused there in any case.
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
        """Python, and those whose compiler or interpreter this machine has."""
        return ("python", *(name for name, tools in TOOLCHAINS.items() if tools.complete))

    def open(
        self,
        scratch_bytes: int,
        with_tools: bool = False,
        channel: socket.socket | None = None,
        packages: Sequence[str] = (),
        wait: bool = True,
    ) -> Container:
        """Return a fresh sandbox.

        ``with_tools`` shows it compilers, ``packages`` are folders of packages that programs may
        import, ``channel`` goes to one run. Without ``wait``, call ``Container.ready`` before use.

        Raises:
            SandboxError: if it cannot be made.
        """
        settings = {
            "with_tools": with_tools,
            "scratch_bytes": scratch_bytes,
            "packages": list(packages),
        }
        container = self._open(settings, channel, self._protected)
        try:
            if wait:
                container.ready()
            return container
        except BaseException as error:
            container.close()
            may_retry = self.allow_unprotected and self._protected
            if not (may_retry and isinstance(error, SandboxError)):
                raise
        container = self._open(settings, channel, False)
        container.ready()
        self._protected = False
        return container

    def protections(self) -> list[str]:
        """Return the protections of this machine from programs, in words.

        Raises:
            SandboxError: if nothing does and that is not allowed.
        """
        self.open(1 << 20).close()
        settings = {"with_tools": False, "scratch_bytes": 1 << 20, "packages": []}
        with self._open(settings, None, self._protected) as container:
            return container.ready()

    def _open(
        self, settings: Mapping[str, Any], channel: socket.socket | None, protected: bool
    ) -> Container:
        settings = {**settings, "protected": protected}
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
        return Container(ours, done)

    def runs(self, program: Program, stdins: Sequence[bytes], limits: Limits) -> Iterator[Outcome]:
        """Run a program once per stdin, in one sandbox; see ``Sandbox.runs``."""
        check_one_of("program.language", program.language, self.languages)
        main = next(iter(program.files))
        toolchain = TOOLCHAINS.get(program.language)
        request: dict[str, Any] = {"mode": "main", "files": [main]}
        chosen = [] if toolchain else libraries(program.files.values())
        with self.open(limits.scratch_bytes, toolchain is not None, packages=chosen) as container:
            for name, content in program.files.items():
                container.put(name, content)
            if toolchain is not None and toolchain.compilers:
                refusal = compile_in(container, program.language, main)
                if refusal is not None:
                    self._check_compiler(program.language, main)
                    yield refusal
                    return
            if toolchain is not None:
                file = BINARY if toolchain.compilers else main
                request = {
                    "mode": "command",
                    "argv": toolchain.run_command("{program}/" + file),
                }
                limits = replace(
                    limits,
                    memory_bytes=max(limits.memory_bytes, toolchain.memory_bytes),
                    processes=max(limits.processes, toolchain.processes),
                )
            for stdin in stdins:
                container.start(request, limits, stdin)
                yield container.outcome(limits.wall_s + START_SECONDS)

    def _check_compiler(self, language: str, file: str) -> None:
        """Raise ``SandboxError`` unless the smallest program compiles; tried once a language."""
        if language in self._compiling:
            return
        with self.open(16 << 20, with_tools=True) as container:
            container.put(file, TOOLCHAINS[language].smallest)
            refusal = compile_in(container, language, file)
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
        if lacks := lacking():
            raise SandboxError(
                f"this machine cannot isolate programs: {lacks}; run r1lit on Linux (on macOS in a"
                " container, on Windows in WSL), or stdin_code with a Piston server"
            )
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


def compile_in(container: Container, language: str, file: str) -> Outcome | None:
    """Compile ``/program/file`` within the sandbox; return the outcome if it is refused."""
    argv = compile_command(language, "{program}/" + file)
    request = {"mode": "command", "argv": argv, "keep": [BINARY]}
    toolchain, limits = TOOLCHAINS[language], COMPILE_LIMITS
    limits = replace(
        limits,
        memory_bytes=max(limits.memory_bytes, toolchain.compiler_memory_bytes),
        processes=max(limits.processes, toolchain.processes),
    )
    container.start(request, limits)
    outcome = container.outcome(limits.wall_s + START_SECONDS)
    return None if outcome.ok else replace(outcome, compiled=False)


def _end(process: subprocess.Popen[bytes], control: socket.socket, pid: int) -> None:
    """Let the launcher end, unless this process was forked from the one that started it."""
    if os.getpid() == pid:
        control.close()
        process.kill()
        process.wait()


START_SECONDS = 20.0


class Container:
    """One running sandbox, with the files and runs of one program. Close it after use."""

    def __init__(self, client: socket.socket, done: int) -> None:
        self._client = client
        self._done = done

    def put(self, name: str, content: str | bytes) -> None:
        """Write ``/program/name``, before the first run; a name may have folders."""
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
        report, body = self._receive_message(wait_s)
        split = report.pop("split")
        return Outcome(stdout=body[:split], stderr=body[split:], **report)

    def ready(self) -> list[str]:
        """Wait until the sandbox is set up; return its protections, one line each.

        Raises:
            SandboxError: if it cannot be set up, with the reason.
        """
        try:
            header, _ = self._receive_message(START_SECONDS)
        except SandboxError as error:
            if isinstance(error.__cause__, TimeoutError):
                raise
            raise SandboxError(
                "this machine cannot isolate programs; allow user"
                " namespaces (sysctl kernel.unprivileged_userns_clone=1, or AppArmor's"
                " kernel.apparmor_restrict_unprivileged_userns=0), use a remote sandbox, or pass"
                f" allow_unprotected=True: {error}"
            ) from error
        found: list[str] = header["protections"]
        return found

    def stop(self) -> None:
        """Kill the program, without waiting for its end."""
        with contextlib.suppress(OSError):  # shut down: a forked copy may hold it open
            self._client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Kill the program and wait until every process is gone."""
        if self._done >= 0:
            self.stop()
            self._client.close()
            os.read(self._done, 1)
            os.close(self._done)
            self._done = -1

    def _send(self, header: Mapping[str, Any], body: bytes) -> None:
        try:
            send_frame(self._client, header, body)
        except OSError as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error

    def _receive_message(self, wait_s: float) -> tuple[dict[str, Any], bytes]:
        self._client.settimeout(wait_s)
        try:
            header, body = receive_frame(self._client)
        except TimeoutError as error:
            raise SandboxError(
                f"the sandbox has not answered for {wait_s:g} s; the machine may be overloaded"
            ) from error
        except (EOFError, OSError) as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error
        if "failed" in header:
            raise SandboxError(header["failed"])
        return header, body

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
