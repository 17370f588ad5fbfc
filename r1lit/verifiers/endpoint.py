"""A model behind an OpenAI-compatible chat endpoint: text in, text out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from r1lit.client import Client, MalformedReply, only_choice, token_count


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's reply; token counts are None where the endpoint gives none."""

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ChatEndpoint:
    """A model behind ``/v1/chat/completions``: vLLM, ``transformers serve``, OpenAI and others.

    A call sends one user message and returns the reply. Threads may share it.

    Args:
        base_url: up to and including the version, ``http://127.0.0.1:8000/v1``.
        model: the model's name there.
        api_key_env: the environment variable that holds the key; no key is sent if it is not set.
        temperature: 0 is greedy: the same reply each time, as far as the server is deterministic.
        max_tokens: of a reply.
        timeout_s: wall-clock seconds of one try.
        max_retries: how often a request is sent again; see ``Client``.
        backoff_s: the first pause before that, in seconds; it doubles.
        extra: further keys of the request, such as ``{"chat_template_kwargs": {...}}``.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key_env: str = "OPENAI_API_KEY",
        temperature: float = 0.0,
        max_tokens: int = 1024,
        timeout_s: float = 60.0,
        max_retries: int = 4,
        backoff_s: float = 1.0,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.client = Client(
            base_url.rstrip("/").removesuffix("/chat/completions"),
            timeout_s=timeout_s,
            max_retries=max_retries,
            backoff_s=backoff_s,
            api_key_env=api_key_env,
        )
        self.model = model
        self.settings = {"temperature": temperature, "max_tokens": max_tokens, **(extra or {})}
        self.name = f"{model} {json.dumps(self.settings, sort_keys=True)}"

    def __call__(self, prompt: str) -> Reply:
        """Return the model's reply to ``prompt``, in which lone surrogates become "?".

        Raises:
            RequestError: if there was none; see ``Client.request``.
        """
        content = prompt.encode("utf-8", "replace").decode("utf-8")
        messages = [{"role": "user", "content": content}]
        payload = {"model": self.model, "messages": messages, **self.settings}
        return self.client.request("chat/completions", _read, payload)


def _read(completion: dict[str, Any]) -> Reply:
    text = only_choice(completion)["message"]["content"]
    if not isinstance(text, str):
        raise MalformedReply(f"content: {type(text).__name__}, not text")
    return Reply(
        text=text,
        prompt_tokens=token_count(completion, "prompt_tokens"),
        completion_tokens=token_count(completion, "completion_tokens"),
    )
