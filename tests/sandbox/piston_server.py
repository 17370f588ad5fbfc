"""A real server that speaks Piston's API and runs what it is sent in the local sandbox."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from r1lit.sandbox import Limits, LocalSandbox, Outcome, Program

RUNTIMES = [
    {"language": "python", "version": "3.11.7", "aliases": ["py", "python3"]},
    {"language": "c++", "version": "12.2.0", "aliases": ["cpp", "g++"], "runtime": "gcc"},
]
MOST_MS = 10_000


class PistonServer(ThreadingHTTPServer):
    """``troubles`` are status codes that the next requests get instead of an answer, or replies."""

    daemon_threads = True

    def __init__(self, with_status: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sandbox = LocalSandbox()
        self.with_status = with_status
        self.troubles: list[Any] = []
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: PistonServer

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, RUNTIMES) if self.path == "/api/v2/runtimes" else self._unknown()

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.troubles:
            trouble = self.server.troubles.pop(0)
            if not isinstance(trouble, int):
                return self._answer(200, trouble)
            message = f"trouble with {self.headers.get('Authorization')}"
            return self._answer(trouble, {"message": message}, {"Location": self.server.url})
        if self.path != "/api/v2/execute":
            return self._unknown()
        request = json.loads(text)
        self.server.requests.append(request)
        if request["run_timeout"] > MOST_MS:
            message = f"run_timeout cannot exceed the configured limit of {MOST_MS}"
            return self._answer(400, {"message": message})
        limits = Limits(
            wall_s=request["run_timeout"] / 1000,
            memory_bytes=request["run_memory_limit"],
            output_bytes=1 << 16,
        )
        files = {file["name"]: file["content"] for file in request["files"]}
        program = Program(language=request["language"], files=files)
        outcome = self.server.sandbox.run(program, request["stdin"].encode(), limits)
        stage = self._stage(outcome)
        body = {"language": request["language"], "version": request["version"]}
        if not outcome.compiled:
            body |= {"compile": stage, "run": None}
        elif request["language"] == "c++":
            body |= {"compile": {"stdout": "", "stderr": "", "code": 0, "signal": None}}
        self._answer(200, {"run": stage, **body})

    def _stage(self, outcome: Outcome) -> dict[str, Any]:
        out, err = outcome.stdout.decode("utf-8", "replace"), outcome.stderr.decode()
        name = signal.Signals(outcome.signal).name if outcome.signal else None
        stage: dict[str, Any] = {
            "stdout": out, "stderr": err, "output": out + err, "code": outcome.exit_code,
            "signal": name,
        }  # fmt: skip
        if self.server.with_status:
            status = "RE" if outcome.exit_code else "SG" if name else None
            status = {"wall time": "TO", "CPU time": "TO", "output": "OL"}.get(
                outcome.limit, status
            )
            stage |= {"status": status, "wall_time": round(1000 * outcome.seconds)}
        return stage

    def _unknown(self) -> None:
        self._answer(404, {"message": "Not Found"})

    def _answer(self, code: int, content: Any, headers: dict[str, str] | None = None) -> None:
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def serving(with_status: bool = True) -> Iterator[PistonServer]:
    server = PistonServer(with_status)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.sandbox.close()
