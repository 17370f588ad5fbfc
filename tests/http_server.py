"""The HTTP server of all tests: a real one, on a free port of this machine."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from r1lit.policy import Policy

Answer = Any
"""A JSON value, a status with a body, what a handler does, or ``HANG_UP``."""
HANG_UP: Answer = object()


@dataclass(frozen=True)
class Received:
    """A request; ``index`` counts those before it."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]
    index: int


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # of 5, a burst of requests on a busy machine is reset


class HTTPServer:
    """Answers each request by ``answer``; ``bodies`` and ``headers`` are those of all posts.

    With ``keep_alive`` it leaves connections open; ``num_connections`` counts them.
    """

    def __init__(self, answer: Callable[[Received], Answer], keep_alive: bool = False) -> None:
        self.answer = answer
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.num_connections = self.most_at_once = self._at_once = 0
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler(keep_alive))
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.base_url = f"{self.url}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self, keep_alive: bool) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"

            def setup(self) -> None:
                super().setup()
                with server.lock:
                    server.num_connections += 1

            def do_GET(self) -> None:
                self.reply(server.answer(Received("GET", self.path, None, dict(self.headers), 0)))

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                body, headers = json.loads(text), dict(self.headers)
                with server.lock:
                    index = len(server.bodies)
                    server.bodies.append(body)
                    server.headers.append(headers)
                    server._at_once += 1
                    server.most_at_once = max(server.most_at_once, server._at_once)
                try:
                    self.reply(server.answer(Received("POST", self.path, body, headers, index)))
                finally:
                    with server.lock:
                        server._at_once -= 1

            def reply(self, answer: Answer) -> None:
                if answer is HANG_UP:
                    self.connection.close()
                    return
                if callable(answer):
                    with suppress(BrokenPipeError, ConnectionResetError):
                        answer(self)
                    return
                status, content = answer if isinstance(answer, tuple) else (200, answer)
                with suppress(BrokenPipeError, ConnectionResetError):
                    send(self, status, content)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


def send(handler: BaseHTTPRequestHandler, status: int, content: Any, **headers: str) -> None:
    """Send a reply: text as it is, all else as JSON."""
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


# faults


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


# OpenAI's API


class ChatServer(HTTPServer):
    """Answers ``/v1/chat/completions`` by ``answer(prompt, how many requests came before)``.

    A text is the completion's.
    """

    def __init__(self, answer: Callable[[str, int], Answer], keep_alive: bool = False) -> None:
        def chat(request: Received) -> Answer:
            if request.path != "/v1/chat/completions":
                return 404, "no such path"
            text = answer(request.body["messages"][-1]["content"], request.index)
            if not isinstance(text, str):
                return text
            message = {"role": "assistant", "content": text}
            usage = {"prompt_tokens": 50, "completion_tokens": len(text.split())}
            return {"choices": [{"message": message}], "usage": usage}

        super().__init__(chat, keep_alive)


class CompletionServer(HTTPServer):
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
        self.faults, self.limit, self.is_vllm = faults or {}, limit, is_vllm
        self.greedy, self.change, self.reads = greedy, change, reads
        self.tries: Counter[str] = Counter()
        self.num_answered = 0
        super().__init__(self._answer)

    def _answer(self, request: Received) -> Answer:
        if request.method == "GET":
            known = request.path == "/version" and self.is_vllm
            return {"version": "0.0"} if known else (404, {"detail": "Not Found"})
        if request.path == "/detokenize":
            with self.lock:
                self.bodies.remove(request.body)
            return 404 if self.reads is None else 200, {"prompt": self.reads}
        body = request.body
        with self.lock:
            name = f"{body['prompt']} {body['seed']}"
            self.tries[name] += 1
            status = self.faults.get(self.tries[name], 200)
            if self.limit is not None and self.num_answered >= self.limit:
                status = -1
            self.num_answered += status == 200
        time.sleep(0.02)
        if status != 200:
            return HANG_UP if status == -1 else (status, {"error": {"message": f"fault {status}"}})
        choice: dict[str, Any] = {
            "text": f"{len(body['prompt'])} seed {0 if self.greedy else body['seed']}",
            "finish_reason": "stop" if body["seed"] % 2 else "length",
        }
        if self.is_vllm and body.get("return_token_ids"):
            choice["token_ids"] = [10, 11, body["seed"] % 100]
            if "logprobs" in body:
                choice["logprobs"] = {"token_logprobs": [-0.5, 0.0, -2]}
        reply = {"choices": [choice], "usage": {"completion_tokens": 7}}
        if self.change is not None:
            self.change(reply)
        return reply


class ScoringServer(HTTPServer):
    """Scores prompts with a real model: in vLLM's form and in OpenAI's older one (``echo``).

    ``spells_ids`` is whether ``return_tokens_as_token_ids`` is heeded, which is vLLM's alone.
    """

    def __init__(
        self,
        model: Policy,
        tokenizer: PreTrainedTokenizerBase,
        spells_ids: bool = True,
        tells: bool = True,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.spells_ids, self.tells = spells_ids, tells
        self._computing = threading.Lock()
        super().__init__(self._answer)

    def _answer(self, request: Received) -> Answer:
        with self._computing:
            return {"choices": [self.choice(request.body)]}

    @torch.no_grad()
    def choice(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = body["prompt"]
        logp_SV = self.model.model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
        k = body.get("prompt_logprobs", body.get("logprobs"))
        own: list[float | None] = [None]
        tops: list[dict[int, float] | None] = [None]
        for place, token in enumerate(ids[1:]):
            likeliest = logp_SV[place].topk(k).indices.tolist() if k else []
            own.append(float(logp_SV[place, token]))
            tops.append({t: float(logp_SV[place, t]) for t in [*likeliest, token]})
        if not self.tells:
            return {"text": ""}
        if "prompt_logprobs" in body:
            assert body["max_tokens"] == 1
            return {
                "text": "a",
                "prompt_logprobs": [
                    top and {str(t): {"logprob": p, "rank": 1} for t, p in top.items()}
                    for top in tops
                ],
            }
        assert body["echo"] and body["max_tokens"] == 0
        spell = self.spelling(body)
        return {
            "text": "",
            "logprobs": {
                "token_logprobs": own,
                "top_logprobs": [top and {spell(t): p for t, p in top.items()} for top in tops],
            },
        }

    def spelling(self, body: dict[str, Any]) -> Any:
        if body.get("return_tokens_as_token_ids") and self.spells_ids:
            return "token_id:{}".format
        return lambda token: self.tokenizer.decode([token])
