"""Asking a model behind an OpenAI-compatible endpoint, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from r1lit.transport import ask, pause_s

_MISCONFIGURED = {401, 403, 404, 405}


class EndpointError(Exception):
    """An endpoint gave no reply. ``timed_out`` tells silence from a failure."""

    def __init__(self, message: str, timed_out: bool = False, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.wait_s = wait_s


class _Refused(EndpointError):
    """Asking the same again is no use."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a model said; tokens are None where the endpoint does not count them."""

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ChatEndpoint:
    """A model behind ``/v1/chat/completions``: vLLM, ``transformers serve``, OpenAI and others.

    A call sends one user message and returns the reply. A request that fails for a passing reason
    (no connection, a time-out, status 408, 409, 425, 429 or 5xx, a reply that is no completion) is
    sent again up to ``retries`` times, after ``backoff_s`` seconds, doubled each time up to 60 and
    varied at random, or after what the server asks for by Retry-After. Threads may share it.
    Proxies set in the environment are not used.

    Args:
        url: where the API is, such as ``http://localhost:8000/v1``.
        model: the model's name there.
        api_key_env: the environment variable that holds the key; no key is sent if it is not set.
        temperature: 0 asks for the same reply each time, as far as the server keeps to it.
        max_tokens: of a reply.
        timeout_s: wall-clock seconds for one request, connecting and reading together.
        retries: how often a failed request is sent again.
        backoff_s: seconds before the first of them.
        extra: further keys of the request, such as ``{"chat_template_kwargs": {...}}``.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key_env: str = "OPENAI_API_KEY",
        temperature: float = 0.0,
        max_tokens: int = 1024,
        timeout_s: float = 60.0,
        retries: int = 4,
        backoff_s: float = 1.0,
        extra: dict[str, Any] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: {url!r} is not like http://localhost:8000/v1")
        if not timeout_s > 0 or backoff_s < 0 or retries < 0:
            raise ValueError(
                f"timeout_s: {timeout_s} must be positive, backoff_s: {backoff_s} and"
                f" retries: {retries} not negative"
            )
        self.url = url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        self.model = model
        self.api_key_env = api_key_env
        self.timeout_s = timeout_s
        self.retries = retries
        self.backoff_s = backoff_s
        self.settings = {"temperature": temperature, "max_tokens": max_tokens, **(extra or {})}
        self.name = f"{model} {json.dumps(self.settings, sort_keys=True)}"

    def __call__(self, prompt: str) -> Reply:
        """Return the model's reply to ``prompt``.

        Raises:
            EndpointError: if there was none after all retries.
            ValueError: on status 401, 403, 404 or 405: key, url or model are wrong.
        """
        # a lone surrogate is no text to send
        content = prompt.encode("utf-8", "replace").decode("utf-8")
        messages = [{"role": "user", "content": content}]
        body = json.dumps({"model": self.model, "messages": messages, **self.settings}).encode()
        attempt = 0
        while True:
            try:
                return self._ask(body)
            except _Refused:
                raise
            except EndpointError as error:
                if attempt == self.retries:
                    raise
                time.sleep(pause_s(attempt, self.backoff_s, error.wait_s))
            attempt += 1

    def _ask(self, body: bytes) -> Reply:
        try:
            answer = ask(self.url, body, timeout_s=self.timeout_s, api_key_env=self.api_key_env)
        except TimeoutError as error:
            message = f"{self.url}: no reply in {self.timeout_s:g} s"
            raise EndpointError(message, timed_out=True) from error
        except (OSError, http.client.HTTPException) as error:
            message = f"{self.url}: {type(error).__name__}: {error}"
            raise EndpointError(message) from error
        status, said = answer.status, answer.said(300)
        if status in _MISCONFIGURED:
            raise ValueError(f"url: {self.url} answers {status} to model {self.model!r}: {said}")
        if answer.passing:
            raise EndpointError(f"{self.url}: status {status}: {said}", wait_s=answer.wait_s)
        if status != 200:
            raise _Refused(f"{self.url}: status {status}: {said}")
        return self._read(answer.body, said)

    def _read(self, content: bytes, said: str) -> Reply:
        try:
            completion = json.loads(content)
            text = completion["choices"][0]["message"]["content"]
            usage = completion.get("usage") or {}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise EndpointError(f"{self.url}: not a completion: {said}") from error
        if not isinstance(text, str) or not isinstance(usage, dict):
            raise EndpointError(f"{self.url}: a completion without text: {said}")
        return Reply(
            text=text,
            prompt_tokens=usage.get("prompt_tokens"),
            completion_tokens=usage.get("completion_tokens"),
        )
