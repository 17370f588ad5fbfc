"""A small OpenAI-compatible server over real HTTP, whose faults are asked for."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class CompletionServer:
    """Answers ``/v1/completions`` with the prompt's length and the seed.

    ``faults`` maps how often a prompt was asked for (from 1) to the status it gets then; -1 hangs
    up. ``limit`` is how many it answers before it is dead: every later connection is torn. A
    ``greedy`` one does not look at the seed. As vLLM it returns ``token_ids`` and, if asked,
    log-probs, and reads token ids as the text ``reads``. ``change`` alters each reply before it is
    sent.
    """

    def __init__(
        self,
        faults: dict[int, int] | None = None,
        limit: int | None = None,
        is_vllm: bool = False,
        greedy: bool = False,
        change: Callable[[dict[str, Any]], None] | None = None,
        reads: str | None = None,
    ) -> None:
        self.faults = faults or {}
        self.limit = limit
        self.is_vllm = is_vllm
        self.bodies: list[dict[str, Any]] = []
        self.tries: Counter[str] = Counter()
        self.num_answered = 0
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                if self.path == "/version" and outer.is_vllm:
                    self.answer(200, {"version": "0.0"})
                else:
                    self.answer(404, {"detail": "Not Found"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/detokenize":
                    self.answer(404 if reads is None else 200, {"prompt": reads})
                    return
                with outer._lock:
                    outer.bodies.append(body)
                    name = f"{body['prompt']} {body['seed']}"
                    outer.tries[name] += 1
                    status = outer.faults.get(outer.tries[name], 200)
                    if outer.limit is not None and outer.num_answered >= outer.limit:
                        status = -1
                    outer.num_answered += status == 200
                    outer._at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer._at_once)
                try:
                    outer.pause.wait(0.02)
                    if status == -1:
                        self.connection.close()
                        return
                    if status != 200:
                        self.answer(status, {"error": {"message": f"fault {status}"}})
                        return
                    text = f"{len(body['prompt'])} seed {0 if greedy else body['seed']}"
                    choice: dict[str, Any] = {
                        "text": text,
                        "finish_reason": "stop" if body["seed"] % 2 else "length",
                    }
                    if is_vllm and body.get("return_token_ids"):
                        choice["token_ids"] = [10, 11, body["seed"] % 100]
                        if "logprobs" in body:
                            choice["logprobs"] = {"token_logprobs": [-0.5, 0.0, -2]}
                    reply = {"choices": [choice], "usage": {"completion_tokens": 7}}
                    if change is not None:
                        change(reply)
                    self.answer(200, reply)
                finally:
                    with outer._lock:
                        outer._at_once -= 1

            def answer(self, status: int, content: Any) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.pause = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *args: None  # type: ignore[method-assign]
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
