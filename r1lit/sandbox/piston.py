"""A sandbox on another machine that speaks Piston's HTTP API, version 2.

One request runs a program once: ``POST /api/v2/execute``; ``GET /api/v2/runtimes`` lists the
languages. See https://piston.readthedocs.io. The server keeps its own limits as well, and refuses
a run whose limits are above them.
"""

from __future__ import annotations

import http.client
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from r1lit.errors import check_at_least, check_one_of
from r1lit.sandbox.base import Limits, Outcome, Program, Sandbox, SandboxError

_ALIASES = {"c++": ("c++", "cpp", "g++"), "python": ("python", "python3", "py")}
_LIMITS = {"TO": "wall time", "OL": "output", "EL": "output"}
_BUSY = (429, 500, 502, 503, 504)
_MAX_REPLY = 64 << 20


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirection is an error: programs and the token are for this server alone."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


class PistonSandbox(Sandbox):
    """Runs programs on the Piston server at ``url``, such as ``http://localhost:2000``.

    A server that is busy or cannot be reached is tried again, ``retries`` times, after 0.5 s, 1 s,
    2 s …; ``token`` goes into the ``Authorization`` header.
    """

    def __init__(self, url: str, retries: int = 4, token: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: {url!r} must start with http:// or https://")
        check_at_least("retries", retries, 0)
        self.url = url.rstrip("/")
        self.retries = retries
        self._token = token
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = token
        self._runtimes: dict[str, tuple[str, str]] | None = None

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the server.

        Raises:
            SandboxError: if it does not answer.
        """
        return tuple(self._known())

    def runs(self, program: Program, stdins: Sequence[bytes], limits: Limits) -> Iterator[Outcome]:
        """Run a program once per stdin, with one request each; see ``Sandbox.runs``."""
        known = self._known()
        check_one_of("program.language", program.language, known)
        language, version = known[program.language]
        request = {
            "language": language,
            "version": version,
            "files": [{"name": n, "content": text} for n, text in program.files.items()],
            "run_timeout": round(limits.wall_s * 1000),
            "run_memory_limit": limits.memory_bytes,
        }
        for stdin in stdins:
            text = stdin.decode("utf-8", "replace")
            start = time.monotonic()
            reply = self._ask("execute", {**request, "stdin": text}, limits.wall_s + 60)
            outcome = read_outcome(reply, limits, time.monotonic() - start)
            yield outcome
            if not outcome.compiled:
                return

    def _known(self) -> dict[str, tuple[str, str]]:
        if self._runtimes is None:
            found: dict[str, tuple[str, str]] = {}
            reply = self._ask("runtimes", None, 30.0)
            try:
                for runtime in reply:
                    names = {runtime["language"], *runtime.get("aliases", ())}
                    names |= {ours for ours, theirs in _ALIASES.items() if names & set(theirs)}
                    for name in names:
                        found[name] = (str(runtime["language"]), str(runtime["version"]))
            except _MALFORMED as error:
                raise SandboxError(f"Piston's list of runtimes cannot be read: {error!r}") from None
            self._runtimes = found
        return self._runtimes

    def _ask(self, what: str, content: Mapping[str, Any] | None, wait_s: float) -> Any:
        data = None if content is None else json.dumps(content).encode()
        address = f"{self.url}/api/v2/{what}"
        problem = ""
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(0.5 * 2 ** (attempt - 1))
            request = urllib.request.Request(address, data=data, headers=self._headers)
            try:
                with _OPENER.open(request, timeout=wait_s) as reply:
                    return json.loads(reply.read(_MAX_REPLY))
            except urllib.error.HTTPError as error:
                problem = f"{error.code} {_message(error)}"
                if error.code not in _BUSY:
                    break
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
                problem = str(error) or type(error).__name__
        if self._token:
            problem = problem.replace(self._token, "(token)")
        raise SandboxError(f"Piston at {address}: {problem}"[:500])


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read(10_000).decode("utf-8", "replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]


_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)


def read_outcome(reply: Any, limits: Limits, seconds: float) -> Outcome:
    """Read the reply to ``execute``.

    Servers before version 4 give no ``status``; there, a killed run that took all its time is taken
    for one that was out of time.

    Raises:
        SandboxError: if the reply is malformed, or says that the server failed.
    """
    try:
        return _read_outcome(reply, limits, seconds)
    except _MALFORMED as error:
        raise SandboxError(f"Piston's reply cannot be read: {error!r}"[:300]) from None


def _read_outcome(reply: Mapping[str, Any], limits: Limits, seconds: float) -> Outcome:
    compiled = reply.get("compile")
    if compiled is not None and (_code(compiled) != 0 or compiled.get("signal")):
        return Outcome(
            stderr=_bytes(compiled.get("stderr") or compiled.get("output")),
            exit_code=_code(compiled),
            compiled=False,
            seconds=seconds,
        )
    run = reply.get("run")
    if not isinstance(run, Mapping):
        raise SandboxError(f"Piston's reply has no run: {str(reply)[:200]}")
    status, name = run.get("status"), str(run.get("signal"))
    if status == "XX":
        raise SandboxError(f"Piston failed: {run.get('message')}")
    wall = run.get("wall_time")
    seconds = wall / 1000 if wall is not None and 0 <= wall < 1e9 else seconds
    limit = _LIMITS.get(status or "", "")
    if status is None and name == "SIGKILL" and seconds >= limits.wall_s:
        limit = "wall time"
    return Outcome(
        stdout=_bytes(run.get("stdout"))[: limits.output_bytes],
        stderr=_bytes(run.get("stderr"))[: limits.output_bytes],
        exit_code=_code(run),
        signal=signal.Signals[name].value if name in signal.Signals.__members__ else None,
        timed_out=limit == "wall time",
        limit=limit,
        seconds=seconds,
    )


def _code(filesystem: Mapping[str, Any]) -> int | None:
    code = filesystem.get("code")
    if code is not None and type(code) is not int:  # false is no exit code of 0
        raise TypeError(f"code is {code!r:.40}")
    return code


def _bytes(text: str | None) -> bytes:
    return (text or "").encode("utf-8", "surrogatepass")
