"""A small server of ``/v1/completions`` that scores prompts with a real model, as vLLM does."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from r1lit.policy import Policy


class ScoringServer:
    """Tells prompt log-probs in vLLM's form and in OpenAI's older one (``echo``).

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
        self.bodies: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer.bodies.append(body)
                    data = json.dumps({"choices": [outer.choice(body)]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

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
