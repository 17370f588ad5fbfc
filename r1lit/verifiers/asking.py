"""Asking a judge that is a model until its reply can be read, and what it said last otherwise."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from r1lit.batches import Status
from r1lit.verifiers.endpoint import EndpointError, Reply
from r1lit.verifiers.judgements import CostLog

Model = Callable[[str], str | Reply]
"""Text in, text out; a ``Reply`` says what it cost as well."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Said(Generic[T]):
    """What was read of a judge's reply, or None with the status that says why."""

    value: T | None
    status: Status
    text: str


def ask(
    model: Model,
    prompt_of: Callable[[str], str],
    read: Callable[[str, str], T | None],
    status_of: Callable[[T], Status],
    *,
    name: str,
    attempts: int,
    costs: CostLog,
) -> Said[T]:
    """Ask up to ``attempts`` times, each with a new fence, until a reply can be read.

    An endpoint that fails has had its own retries and is not asked again.

    Args:
        model: replies.
        prompt_of: makes what is asked from the fence, a code that the judged text cannot know.
        read: reads a reply to the prompt of a fence; None if it says nothing that counts.
        status_of: what a value is logged as.
        name: names the judge in the log.
        attempts: at least 1.
        costs: where every request is logged.
    """
    said: Said[T] = Said(value=None, status="unparsed", text="")
    for attempt in range(1, attempts + 1):
        fence = secrets.token_hex(8)
        asked = time.perf_counter()
        reply = Reply(text="")
        try:
            answer = model(prompt_of(fence))
        except EndpointError as error:
            said = Said(
                value=None, status="timeout" if error.timed_out else "error", text=str(error)
            )
        else:
            reply = answer if isinstance(answer, Reply) else Reply(text=answer)
            value = read(reply.text, fence)
            status: Status = "unparsed" if value is None else status_of(value)
            said = Said(value=value, status=status, text=reply.text)
        costs.add(name, attempt, said.status, time.perf_counter() - asked, reply)
        if said.status != "unparsed":
            break
    return said


def key_of(*parts: str) -> str:
    """Return the key under which a judgement is kept: a digest of everything it depends on."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
