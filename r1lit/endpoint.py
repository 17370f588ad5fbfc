"""An OpenAI-compatible HTTP server, asked with retries: for engines and for judges.

Standard library only. One object may be used from many threads.
"""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any
from urllib.parse import urljoin

from r1lit.transport import ask, pause_s


class PermanentError(ValueError):
    """The server answers and will not do what it was asked; asking again changes nothing."""


class Endpoint:
    """Asks a server, and asks again with growing pauses while it is down, busy or broken.

    Pauses double from ``backoff_s`` up to a minute, each times a random factor from 1/2 to 3/2, so
    that many threads do not come back at once; a ``Retry-After`` of the server is heeded. Statuses
    408, 409, 425, 429 and 5xx are asked again, as are refused or torn connections, time-outs and
    replies that are not JSON. Every other status is an error at once: the same question gets the
    same answer.

    Args:
        base_url: up to and including the version, ``http://127.0.0.1:8000/v1``.
        timeout_s: wall-clock seconds one answer may take, connecting and reading together.
        max_retries: how often one question is asked again.
        backoff_s: the first pause, in seconds.
        api_key_env: the environment variable that holds the key, if the server wants one.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float = 3600.0,
        max_retries: int = 6,
        backoff_s: float = 1.0,
        api_key_env: str = "OPENAI_API_KEY",
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(
                f"base_url: {base_url!r} does not begin with http:// or https://;"
                " http://127.0.0.1:8000/v1 is usual"
            )
        if not timeout_s > 0:
            raise ValueError(f"timeout_s: {timeout_s} is not a positive number of seconds")
        if max_retries < 0:
            raise ValueError(f"max_retries: {max_retries} is negative; 0 asks once")
        if not backoff_s >= 0:
            raise ValueError(f"backoff_s: {backoff_s} is negative")
        self.base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        self.max_retries = max_retries
        self.backoff_s = backoff_s
        self.api_key_env = api_key_env

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at ``path``; see ``post``."""
        return self._ask(path, None, None)

    def post(
        self, path: str, payload: dict[str, Any], stop: threading.Event | None = None
    ) -> dict[str, Any]:
        """Return the JSON object that the server answers ``payload`` with.

        ``stop`` ends the asking early: once it is set, no further try is made.

        Raises:
            PermanentError: if the server answers with an error that asking again cannot mend.
            ValueError: naming the address, the last fault and the number of tries.
        """
        return self._ask(path, json.dumps(payload).encode(), stop)

    def _ask(self, path: str, body: bytes | None, stop: threading.Event | None) -> dict[str, Any]:
        url = urljoin(f"{self.base_url}/", path)
        stop = stop or threading.Event()
        fault = "it was not asked"
        for attempt in range(self.max_retries + 1):
            wait_s = None
            try:
                answer = ask(url, body, timeout_s=self.timeout_s, api_key_env=self.api_key_env)
            except (OSError, http.client.HTTPException) as error:
                fault = f"{type(error).__name__}: {error}"
            else:
                if answer.status == 200:
                    content, fault = _read(answer.body)
                    if content is not None:
                        return content
                else:
                    said = answer.said(2000) or http.client.responses.get(answer.status, "")
                    fault = f"status {answer.status}: {said}"
                    if not answer.passing:
                        raise PermanentError(f"base_url: {url} refused the request, {fault}")
                    wait_s = answer.wait_s
            if attempt < self.max_retries and stop.wait(pause_s(attempt, self.backoff_s, wait_s)):
                break
        raise ValueError(
            f"base_url: {url} gave no answer in {attempt + 1} tries; the last time, {fault}"
        )


def _read(body: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON object in ``body``, or what it is instead."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        return None, f"its answer is not JSON ({error})"
    if isinstance(content, dict):
        return content, ""
    return None, f"it answered with {type(content).__name__}, not a JSON object"
