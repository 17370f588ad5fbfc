"""An OpenAI-compatible HTTP server, asked with retries: for engines and for judges.

Standard library only. One object may be used from many threads.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

RETRIED = (408, 425, 429, 500, 502, 503, 504)
LONGEST_WAIT_S = 60.0


class Refused(ValueError):
    """The server answers and will not do what it was asked; asking again changes nothing."""


class Endpoint:
    """Asks a server, and asks again with growing pauses while it is down, busy or broken.

    Pauses double from ``backoff_s`` up to a minute, each times a random factor from 1/2 to 3/2, so
    that many threads do not come back at once; a ``Retry-After`` of the server is heeded. Statuses
    408, 425, 429 and 5xx are asked again, as are refused or torn connections, time-outs and replies
    that are not JSON. Every other status is an error at once: the same question gets the same
    answer.

    Args:
        base_url: up to and including the version, ``http://127.0.0.1:8000/v1``.
        timeout_s: seconds one answer may take.
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
            Refused: if the server answers with an error that asking again cannot mend.
            ValueError: naming the address, the last fault and the number of tries.
        """
        return self._ask(path, json.dumps(payload).encode(), stop)

    def _ask(self, path: str, body: bytes | None, stop: threading.Event | None) -> dict[str, Any]:
        url = urllib.parse.urljoin(f"{self.base_url}/", path)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if os.environ.get(self.api_key_env):
            headers["Authorization"] = f"Bearer {os.environ[self.api_key_env]}"
        stop = stop or threading.Event()
        fault = "it was not asked"
        for attempt in range(self.max_retries + 1):
            asked_to_wait = None
            try:
                request = urllib.request.Request(url, data=body, headers=headers)
                with urllib.request.urlopen(request, timeout=self.timeout_s) as reply:
                    answer = json.loads(reply.read())
                if isinstance(answer, dict):
                    return answer
                fault = f"it answered with {type(answer).__name__}, not a JSON object"
            except urllib.error.HTTPError as error:
                said = error.read(2000).decode("utf-8", "replace").strip()
                fault = f"status {error.code}: {said or error.reason}"
                if error.code not in RETRIED:
                    raise Refused(f"base_url: {url} refused the request, {fault}") from error
                asked_to_wait = error.headers.get("Retry-After")
            except json.JSONDecodeError as error:
                fault = f"its answer is not JSON ({error})"
            except (OSError, http.client.HTTPException) as error:
                fault = f"{type(error).__name__}: {error}"
            if attempt < self.max_retries and stop.wait(self._pause(attempt, asked_to_wait)):
                break
        raise ValueError(
            f"base_url: {url} gave no answer in {attempt + 1} tries; the last time, {fault}"
        )

    def _pause(self, attempt: int, asked_to_wait: str | None) -> float:
        if asked_to_wait is not None and asked_to_wait.strip().isdigit():
            return min(float(asked_to_wait), LONGEST_WAIT_S)
        longest = min(self.backoff_s * 2.0**attempt, LONGEST_WAIT_S)
        return longest * random.uniform(0.5, 1.5)
