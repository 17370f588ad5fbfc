"""Requests to servers with an OpenAI-compatible API.

Engines, judges and teachers share pooled connections of ``httpx2``, a total deadline for each try,
retries, and the one place where an API key is taken out of what came back. All requests of a
process run in one event loop, in a thread of its own. Redirects are not followed, and proxies and
.netrc of the environment are not used.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from http.client import responses
from typing import Any, TypeVar
from urllib.parse import urljoin

import httpx2

from r1lit.errors import check_above, check_at_least
from r1lit.waiting import event_loop

MAX_BYTES = 64 * 1024**2
MAX_MESSAGE = 500
LONGEST_PAUSE_S = 60.0
SILENT_S = 5.0
MALFORMED_RETRIES = 2
MALFORMED_LIMIT = 8
SECRET_LENGTH = 8
_PASSING = {408, 409, 425, 429}
_MISCONFIGURED = {401, 403, 404, 405}

T = TypeVar("T")
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The address of a server, and when a request to it is sent again.

    Tried again are refused and torn connections, time-outs, statuses 408, 409, 425, 429 and 5xx,
    and, ``MALFORMED_RETRIES`` times at most, replies that cannot be read. Pauses double from
    ``backoff_s`` up to a minute, times a random factor from 1/2 to 3/2; a ``Retry-After`` in
    seconds takes their place. From the second failure on each retry is warned of, one in
    ``SILENT_S`` seconds; any other status is an error. So is a connection that is refused before
    the server has answered once: it is not there.

    Args:
        url: up to and including the version, ``http://127.0.0.1:8000/v1``.
        timeout_s: wall-clock seconds of one try, connecting, sending and reading together.
        max_retries: how often one request is sent again.
        backoff_s: the first pause, in seconds.
        api_key_env: the environment variable that holds the key; without it no key is sent. A key
            of 8 characters or more is replaced in everything that a server sends back.
    """

    url: str = "http://127.0.0.1:8000/v1"
    timeout_s: float = 3600.0
    max_retries: int = 6
    backoff_s: float = 1.0
    api_key_env: str = "OPENAI_API_KEY"

    def __post_init__(self) -> None:
        check_url(self.url)
        check_above("timeout_s", self.timeout_s, 0, finite=False)
        check_at_least("max_retries", self.max_retries, 0, "0 sends a request once")
        check_at_least("backoff_s", self.backoff_s, 0)


def check_url(url: str, key: str = "url") -> None:
    """Raise a ValueError that names ``key`` for what is no address of a server."""
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"{key}: {url!r} is not a URL ({error})") from error
    if parts.userinfo:
        raise ValueError(f"{key}: it holds a password; use api_key_env")
    if parts.scheme not in ("http", "https") or not parts.host or (parts.port or 1) > 65535:
        raise ValueError(f"{key}: {url!r} is not like http://127.0.0.1:8000/v1")


class RequestError(ValueError):
    """A request got no usable reply in all its tries.

    ``timed_out``: none came at all. ``unreached``: there was no connection to the server.
    """

    def __init__(
        self,
        message: str,
        timed_out: bool = False,
        wait_s: float | None = None,
        unreached: bool = False,
    ) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.wait_s = wait_s
        self.unreached = unreached


class MalformedReply(RequestError):
    """The server replied, and its replies could not be read as what was requested."""


class PermanentError(RequestError):
    """The server refuses the request; the same request again would be refused again."""


class SetupError(PermanentError):
    """Key, address or model are wrong, so that no request to this server can succeed."""


class Client:
    """Sends requests to an endpoint, and again while it is down, busy or broken.

    One object may be used from many threads, pickled, and used on after a fork.

    Args:
        endpoint: where, and how often.
        key: the setting that names the endpoint, for errors.
    """

    def __init__(self, endpoint: Endpoint, key: str = "endpoint.url") -> None:
        self.endpoint = endpoint
        self.key = key
        self.url = endpoint.url.rstrip("/")
        self._num_read = self._num_malformed = 0
        self._was_reached = False
        self._warned_at = -SILENT_S
        self._http: tuple[int, httpx2.AsyncClient] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_http": None}

    def request(
        self,
        path: str,
        read: Callable[[dict[str, Any]], T],
        payload: dict[str, Any] | None = None,
        stop: threading.Event | None = None,
    ) -> T:
        """Send ``payload``, again if need be, and return ``read`` of the reply; see ``send``.

        Args:
            path: relative to the endpoint's URL.
            read: extracts the result from the reply, and checks it.
            payload: the JSON object to post; None gets.
            stop: once it is set, no further try is made.

        Raises:
            SetupError: as ``send``, when nothing listens at the address from the start, and when
                ``MALFORMED_LIMIT`` requests got malformed replies before any other got a good one.
            PermanentError: as ``send``.
            MalformedReply: if the last reply could not be read.
            RequestError: if there was none.
        """
        stop, fault = stop or threading.Event(), f"{self.key}: {self._address(path)} gave no answer"
        most = self.endpoint.max_retries
        for attempt in range(most + 1):
            try:
                result = run(self.send(path, read, payload))
                self._num_read += 1
                return result
            except PermanentError:
                raise
            except RequestError as error:
                last = error
            if last.unreached and not self._was_reached:
                raise SetupError(
                    f"{fault}, {last}; start the server, or correct the address"
                ) from last
            malformed = isinstance(last, MalformedReply)
            retries = min(most, MALFORMED_RETRIES) if malformed else most
            pause_s = self._pause_s(attempt, last.wait_s)
            if 1 <= attempt < retries and not malformed:
                times = "twice" if attempt == 1 else f"{attempt + 1} times"
                left = f"tries left: {retries - attempt}, the next in {pause_s:.0f} s"
                self._warn(f"{fault} {times}, {last}; {left}")
            if attempt >= retries or stop.wait(pause_s):
                break
        message = f"{fault} in {attempt + 1} tries; the last time, {last}"
        self._num_malformed += malformed
        if malformed and not self._num_read and self._num_malformed >= MALFORMED_LIMIT:
            raise SetupError(f"{message}; no reply of this server could be read so far") from last
        raise type(last)(message, timed_out=last.timed_out) from last

    async def send(
        self,
        path: str,
        read: Callable[[dict[str, Any]], T],
        payload: dict[str, Any] | None = None,
    ) -> T:
        """Send ``payload`` once and return ``read`` of the JSON object that the server replies.

        Strings of that object hold neither the API key nor lone surrogates. A reply is malformed
        if ``read`` raises ``MalformedReply`` or any error that reading wrong content raises.

        Raises:
            SetupError: on status 3xx, 401, 403, 404 and 405.
            PermanentError: on another status that is not tried again.
            MalformedReply: if the reply cannot be read.
            RequestError: if there is none in time.
        """
        key, address = self._api_key(), self._address(path)
        body = None if payload is None else json.dumps(payload).encode()
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                status, wait_s, content = await self._exchange(address, body, key)
        except TimeoutError:
            raise RequestError(
                f"no reply in {self.endpoint.timeout_s:g} s", timed_out=True
            ) from None
        except httpx2.HTTPError as error:
            unreached = isinstance(error, httpx2.ConnectError)
            words = _redacted(f"{type(error).__name__}: {error}", key)
            raise RequestError(words, unreached=unreached) from None
        self._was_reached = True
        text = content.decode("utf-8-sig", "replace")
        if status == 200:  # a long reply is read while others come in
            asked = (payload or {}).get("model")
            return await asyncio.to_thread(_read, text, key, partial(self._read_of, asked, read))
        text = _redacted(text, key)
        fault = f"status {status}: {_short(text) or responses.get(status, '')}"
        if status in _PASSING or status >= 500:
            raise RequestError(fault, wait_s=wait_s)
        kind = SetupError if status in _MISCONFIGURED or status // 100 == 3 else PermanentError
        raise kind(f"{self.key}: {address} refused the request, {fault}")

    def _read_of(self, asked: Any, read: Callable[[dict[str, Any]], T], reply: dict[str, Any]) -> T:
        """Return a reply of the model that was asked, as ``read`` reads it."""
        answered = reply.get("model")
        if not (isinstance(asked, str) and isinstance(answered, str) and answered):
            return read(reply)
        if not is_same_model(asked, answered):
            raise SetupError(
                f"{self.key}: {self.url} was asked for the model {asked!r} and answered as"
                f" {_short(answered)!r}; name the model as the server does"
            )
        return read(reply)

    async def _exchange(
        self, address: str, body: bytes | None, key: str
    ) -> tuple[int, float | None, bytes]:
        """Return status, seconds of Retry-After and body."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        method = "GET" if body is None else "POST"
        content = bytearray()
        connections = self._connections()
        async with connections.stream(method, address, content=body, headers=headers) as reply:
            async for chunk in reply.aiter_raw():  # raw: a small compressed body may be a huge one
                content += chunk
                if len(content) > MAX_BYTES:
                    raise MalformedReply(f"a reply longer than {MAX_BYTES:,} bytes")
        wait = reply.headers.get("Retry-After", "").strip()  # seconds; a date is not read
        return reply.status_code, float(wait) if wait.isdecimal() else None, bytes(content)

    def _address(self, path: str) -> str:
        return urljoin(f"{self.url}/", path)

    def _api_key(self) -> str:
        name = self.endpoint.api_key_env
        key = os.environ.get(name, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise SetupError(f"api_key_env: {name} has characters that are not allowed in a key")
        return key

    def _connections(self) -> httpx2.AsyncClient:
        """Return the pool of this process; a fork must not share its parent's sockets."""
        if self._http is None or self._http[0] != os.getpid():
            # heeds SSL_CERT_FILE; takes time that a request without TLS need not wait for
            tls = ssl.create_default_context() if self.url.startswith("https:") else False
            # below uvicorn's 5 s: a connection that both sides give up at once tears a request
            limits = httpx2.Limits(keepalive_expiry=2.0)
            client = httpx2.AsyncClient(timeout=None, trust_env=False, verify=tls, limits=limits)
            self._http = os.getpid(), client
        return self._http[1]

    def _warn(self, message: str) -> None:
        """Warn, unless another of many requests under way just did."""
        now = time.monotonic()
        if now - self._warned_at >= SILENT_S:
            self._warned_at = now
            warnings.warn(message, stacklevel=3)

    def _pause_s(self, attempt: int, wait_s: float | None) -> float:
        if wait_s is not None:
            return min(wait_s, LONGEST_PAUSE_S)
        pause_s = min(self.endpoint.backoff_s * 2.0**attempt, LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1.5)


_NEWEST = r"[-:@](latest|main|preview)"
_VERSION = re.compile(rf"({_NEWEST}|-\d{{4}}-\d\d-\d\d|[-@]\d{{3,8}}|@[\w.-]+)+$")


def is_same_model(asked: str, answered: str) -> bool:
    """Return whether a server's name of a model is the one requested, or that with a version.

    >>> is_same_model("gpt-4o", "gpt-4o-2024-08-06"), is_same_model("org/a-7b", "a-7B@main")
    (True, True)
    >>> is_same_model("gpt-4o", "gpt-4o-mini"), is_same_model("a-7b", "a-7b-instruct")
    (False, False)
    >>> is_same_model("a-latest", "a-20241022"), is_same_model("a:70b", "a:8b")
    (True, False)
    """

    def names(text: str) -> tuple[str, str]:
        text = text.strip().rstrip("/").casefold()
        return text, re.split(r"[/\\]", text)[-1].removesuffix(".gguf")

    (whole, own), (answered_whole, answered_own) = names(asked), names(answered)
    wanted = {whole, own, re.sub(f"{_NEWEST}$", "", own)}
    return bool(wanted & {answered_whole, answered_own, _VERSION.sub("", answered_own)} - {""})


def begin(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine in the process's event loop for requests; return at once."""
    return asyncio.run_coroutine_threadsafe(coroutine, event_loop("http"))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result, from the process's event loop for requests."""
    future = begin(coroutine)
    try:
        return future.result()
    except BaseException:  # Ctrl-C in this thread ends it too
        future.cancel()
        raise


def in_parallel(
    work: Callable[[Item, threading.Event], T], items: Sequence[Item], num_threads: int
) -> list[T]:
    """Return ``work(item, stop)`` of each item, in order, ``num_threads`` at a time.

    The first failure sets ``stop`` and is raised once those under way have ended.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(min(num_threads, max(1, len(items)))) as pool:
        futures = [pool.submit(work, item, stop) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def only_choice(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the one choice of a completion; none or several are a ``MalformedReply``."""
    choices = reply["choices"]
    if not isinstance(choices, list) or len(choices) != 1:
        raise MalformedReply(f"choices: {_short(repr(choices))} is not a list of one")
    return choices[0]


def token_count(reply: dict[str, Any], key: str) -> int | None:
    """Return a count of the reply's ``usage``, or None where there is none that can be true."""
    usage = reply.get("usage")
    count = usage.get(key) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count < 2**31 else None


def _read(text: str, key: str, read: Callable[[dict[str, Any]], T]) -> T:
    try:
        reply = json.loads(text)
        if "\\" in text or (key and key in text):
            reply = _cleaned(reply, key)
    except (ValueError, RecursionError) as error:
        raise MalformedReply(f"its answer is not JSON ({_redacted(str(error), key)})") from None
    if not isinstance(reply, dict):
        raise MalformedReply(f"it answered with {type(reply).__name__}, not a JSON object")
    try:
        return read(reply)
    except RequestError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        fault = f"its reply lacks what was requested ({type(error).__name__}: {error})"
        raise MalformedReply(f"{fault}: {_short(_redacted(text, key))}") from error


def _cleaned(value: Any, key: str) -> Any:
    """Return JSON content without the API key, and with lone surrogates replaced."""
    if isinstance(value, str):
        text = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return _redacted(text, key)
    if isinstance(value, list):
        return [_cleaned(item, key) for item in value]
    if isinstance(value, dict):
        return {_cleaned(name, key): _cleaned(item, key) for name, item in value.items()}
    return value


def _redacted(text: str, key: str) -> str:
    """Return a text without the key: as it is, escaped as JSON does, or as addresses do."""
    if len(key) < SECRET_LENGTH:
        return text
    forms = (rf"(?:\\?{re.escape(c)}|\\u{ord(c):04x}|%{ord(c):02x})" for c in key)
    return re.sub("".join(forms), "[API key]", text, flags=re.IGNORECASE)


def _short(text: str) -> str:
    return " ".join(text.split())[:MAX_MESSAGE]
