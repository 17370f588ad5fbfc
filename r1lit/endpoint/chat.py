"""A chat model behind an endpoint: text in, reply out; and a cache of replies on disk."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r1lit.endpoint.client import Client, Endpoint, MalformedReply, only_choice, token_count


@dataclass(frozen=True, kw_only=True)
class ChatReply:
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

    def __call__(self, prompt: str) -> ChatReply:
        """Return the model's reply to ``prompt``, in which lone surrogates become "?".

        Raises:
            RequestError: if there was none; see ``Client.request``.
        """
        content = prompt.encode("utf-8", "replace").decode("utf-8")
        messages = [{"role": "user", "content": content}]
        payload = {"model": self.model, "messages": messages, **self.settings}
        return self.client.request("chat/completions", _read, payload)

    def probabilities(
        self, prompt: str, tokens: Sequence[str], system: str = ""
    ) -> dict[str, float] | None:
        """Return how likely each of ``tokens`` begins the reply, 0 beyond the five likeliest.

        None from a server that sends no log-probs.

        Raises:
            RequestError: if there was no reply.
        """
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt.encode("utf-8", "replace").decode()})
        payload = {"model": self.model, "messages": messages, **self.settings, "max_tokens": 1,
                   "temperature": 1.0, "logprobs": True, "top_logprobs": 5}  # fmt: skip

        def read(completion: dict[str, Any]) -> dict[str, float] | None:
            logprobs = only_choice(completion).get("logprobs")
            if not logprobs or not logprobs["content"]:
                return None
            top = logprobs["content"][0]["top_logprobs"]
            found = {item["token"]: math.exp(item["logprob"]) for item in top}
            return {token: found.get(token, 0.0) for token in tokens}

        return self.client.request("chat/completions", read, payload)


def _read(completion: dict[str, Any]) -> ChatReply:
    choice = only_choice(completion)
    text = choice["message"]["content"]
    if not isinstance(text, str):
        raise MalformedReply(f"content: {type(text).__name__}, not text")
    return ChatReply(
        text=text,
        prompt_tokens=token_count(completion, "prompt_tokens"),
        completion_tokens=token_count(completion, "completion_tokens"),
        finished=choice.get("finish_reason") != "length",
    )


_WAIT_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS reply (key TEXT PRIMARY KEY, value TEXT)"


class ReplyCache:
    """JSON values by key, in an SQLite file, or in memory without one.

    Every operation opens the file again, so threads, forked processes and other programs may share
    it; SQLite's locks keep them apart (not on network disks, which do not keep locks). What ``put``
    has returned from survives a kill.

    Raises:
        ValueError: if ``path`` is a file of another kind.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._memory: dict[str, Any] = {}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with closing(self._connect(path)) as connection, connection:
                    connection.execute(_TABLE)
            except sqlite3.DatabaseError as error:
                raise ValueError(f"cache: {path} is not a cache of replies: {error}") from error

    def get(self, key: str) -> Any:
        """Return the value that was kept under a key, or None."""
        if self.path is None:
            return self._memory.get(key)
        with closing(self._connect(self.path)) as connection:
            row = connection.execute("SELECT value FROM reply WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: str, value: Any) -> None:
        """Keep a JSON value. The first one stays when two processes put one each.

        Raises:
            ValueError: if the file cannot be written.
        """
        if self.path is None:
            self._memory.setdefault(key, value)
            return
        try:
            with closing(self._connect(self.path)) as connection, connection:
                statement = "INSERT OR IGNORE INTO reply VALUES (?, ?)"
                connection.execute(statement, (key, json.dumps(value)))
        except sqlite3.OperationalError as error:  # such as a full disk
            raise ValueError(f"cache: {self.path} cannot be written: {error}") from error

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=_WAIT_S)


def key_of(*parts: str) -> str:
    """Return the key of a reply: a digest of everything it depends on."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
