"""A real server that speaks Piston's API and runs what it is sent in the local sandbox."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from http_server import HTTPServer, Received, send

from r1lit.sandbox import Limits, LocalSandbox, Outcome, Program

RUNTIMES = [
    {"language": "python", "version": "3.11.7", "aliases": ["py", "python3"]},
    {"language": "c++", "version": "12.2.0", "aliases": ["cpp", "g++"], "runtime": "gcc"},
]
MOST_MS = 10_000


class PistonServer(HTTPServer):
    """``troubles`` are status codes that the next requests get instead of an answer, or replies."""

    def __init__(self, with_status: bool = True) -> None:
        self.sandbox = LocalSandbox()
        self.with_status = with_status
        self.troubles: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        super().__init__(self._answer)

    def close(self) -> None:
        super().close()
        self.sandbox.close()

    def _answer(self, request: Received) -> Any:
        if request.method == "GET":
            known = request.path == "/api/v2/runtimes"
            return RUNTIMES if known else (404, {"message": "Not Found"})
        if self.troubles:
            return self._trouble(self.troubles.pop(0), request)
        if request.path != "/api/v2/execute":
            return 404, {"message": "Not Found"}
        self.requests.append(request.body)
        if request.body["run_timeout"] > MOST_MS:
            message = f"run_timeout cannot exceed the configured limit of {MOST_MS}"
            return 400, {"message": message}
        return self._run(request.body)

    def _trouble(self, trouble: Any, request: Received) -> Any:
        if not isinstance(trouble, int):
            return 200, trouble if isinstance(trouble, bytes) else json.dumps(trouble)
        message = {"message": f"trouble with {request.headers.get('Authorization')}"}
        return lambda handler: send(handler, trouble, message, Location=self.url)

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        limits = Limits(
            wall_s=request["run_timeout"] / 1000,
            memory_bytes=request["run_memory_limit"],
            output_bytes=1 << 16,
        )
        files = {file["name"]: file["content"] for file in request["files"]}
        program = Program(language=request["language"], files=files)
        outcome = self.sandbox.run(program, request["stdin"].encode(), limits)
        stage = self._stage(outcome)
        body = {"language": request["language"], "version": request["version"]}
        if not outcome.compiled:
            body |= {"compile": stage, "run": None}
        elif request["language"] == "c++":
            body |= {"compile": {"stdout": "", "stderr": "", "code": 0, "signal": None}}
        return {"run": stage, **body}

    def _stage(self, outcome: Outcome) -> dict[str, Any]:
        out, err = outcome.stdout.decode("utf-8", "replace"), outcome.stderr.decode()
        name = signal.Signals(outcome.signal).name if outcome.signal else None
        stage: dict[str, Any] = {
            "stdout": out, "stderr": err, "output": out + err, "code": outcome.exit_code,
            "signal": name,
        }  # fmt: skip
        if self.with_status:
            status = "RE" if outcome.exit_code else "SG" if name else None
            status = {"wall time": "TO", "CPU time": "TO", "output": "OL"}.get(
                outcome.limit, status
            )
            stage |= {"status": status, "wall_time": round(1000 * outcome.seconds)}
        return stage


@contextmanager
def serving(with_status: bool = True) -> Iterator[PistonServer]:
    server = PistonServer(with_status)
    try:
        yield server
    finally:
        server.close()
