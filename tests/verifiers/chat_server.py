"""A small real server of ``/v1/chat/completions`` that can also fail, hang and answer garbage."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = str | tuple[int, str] | Callable[[BaseHTTPRequestHandler], None]
"""A completion's text, a status with a body, or whatever a handler does."""


class ChatServer:
    """Answers each request by ``answer(prompt, how many requests came before)``.

    ``requests`` are the bodies that came, ``headers`` their headers. With ``keep_alive`` it leaves
    connections open; ``num_connections`` counts them.
    """

    def __init__(self, answer: Callable[[str, int], Answer], keep_alive: bool = False) -> None:
        self.answer = answer
        self.keep_alive = keep_alive
        self.num_connections = 0
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if server.keep_alive else "HTTP/1.0"

            def setup(self) -> None:
                super().setup()
                with server._lock:
                    server.num_connections += 1

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))
                with server._lock:
                    before = len(server.requests)
                    server.requests.append(body)
                    server.headers.append(dict(self.headers))
                    server._at_once += 1
                    server.most_at_once = max(server.most_at_once, server._at_once)
                try:
                    self._reply(server.answer(body["messages"][-1]["content"], before))
                except (BrokenPipeError, ConnectionResetError):
                    pass
                finally:
                    with server._lock:
                        server._at_once -= 1

            def _reply(self, answer: Answer) -> None:
                if self.path != "/v1/chat/completions":
                    answer = (404, "no such path")
                if callable(answer):
                    answer(self)
                    return
                if isinstance(answer, tuple):
                    send(self, *answer)
                    return
                message = {"role": "assistant", "content": answer}
                usage = {"prompt_tokens": 50, "completion_tokens": len(answer.split())}
                send(self, 200, json.dumps({"choices": [{"message": message}], "usage": usage}))

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


def send(handler: BaseHTTPRequestHandler, status: int, body: str, **headers: str) -> None:
    data = body.encode()
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def hang(seconds: float) -> Answer:
    return lambda handler: time.sleep(seconds)


def drip(seconds: float) -> Answer:
    """A byte now and then, so that no single read times out."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)

    return answer


def cut(handler: BaseHTTPRequestHandler) -> None:
    """Promise much, send little, and hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"mess')
