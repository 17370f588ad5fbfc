"""A chat model behind an endpoint: text in, a reply out."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from r1lit.endpoint.client import Client, Endpoint, MalformedReply, only_choice, token_count


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's reply; token counts are None where they are not known.

    ``finished`` is false if it was cut at the token limit.
    """

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finished: bool = True


class ServedModel:
    """A model behind ``/v1/chat/completions``: vLLM, ``transformers serve``, OpenAI and others.

    A call sends one user message and returns the reply. Threads may share it.

    Args:
        model: the model's name there.
        endpoint: where it is; a last ``/chat/completions`` of the URL is left out.
        temperature: 0 is greedy: the same reply each time, as far as the server is deterministic.
        max_tokens: of a reply.
        extra: further keys of the request, such as ``{"chat_template_kwargs": {...}}``.
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint = Endpoint(timeout_s=60.0, max_retries=4),
        temperature: float = 0.0,
        max_tokens: int = 1024,
        extra: dict[str, Any] | None = None,
    ) -> None:
        url = endpoint.url.rstrip("/").removesuffix("/chat/completions")
        self.client = Client(replace(endpoint, url=url))
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
    choice = only_choice(completion)
    text = choice["message"]["content"]
    if not isinstance(text, str):
        raise MalformedReply(f"content: {type(text).__name__}, not text")
    return Reply(
        text=text,
        prompt_tokens=token_count(completion, "prompt_tokens"),
        completion_tokens=token_count(completion, "completion_tokens"),
        finished=choice.get("finish_reason") != "length",
    )
