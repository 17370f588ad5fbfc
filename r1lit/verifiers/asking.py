"""Asking a judge that is a model until its reply can be read, and what it said last otherwise."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from r1lit.batches import Status
from r1lit.verifiers.endpoint import EndpointError, Reply
from r1lit.verifiers.judgements import CostLog, Judgements

Model = Callable[[str], str | Reply]
"""Text in, text out; a ``Reply`` says what it cost as well."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Said(Generic[T]):
    """What was read of a judge's reply, or None with the status that says why."""

    value: T | None
    status: Status
    text: str


class GenerativeJudge:
    """A model that judges, what it said before, and a log of what that cost.

    Args:
        model: any callable from prompt to reply, such as ``ChatEndpoint``.
        cache: the file of judgements, made if absent; None keeps them in memory.
        log: a JSONL file to which every request's status, seconds and tokens are added.
        judge_name: names the model in cache and log; its own ``name`` if left out.
        attempts: how often one judgement is asked for before giving up.

    Raises:
        ValueError: for no attempts, or a cache and no name.
    """

    def __init__(
        self,
        model: Model,
        cache: str | None = None,
        log: str | None = None,
        judge_name: str | None = None,
        attempts: int = 3,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"attempts: {attempts} is not at least 1")
        self.model = model
        self.name = judge_name or str(getattr(model, "name", ""))
        if cache and not self.name:
            raise ValueError("judge_name: a cache needs one, as the model has no name of its own")
        self.attempts = attempts
        self.judgements = Judgements(Path(cache) if cache else None)
        self.costs = CostLog(Path(log) if log else None)

    def ask(
        self,
        prompt_of: Callable[[str], str],
        read: Callable[[str, str], T | None],
        status_of: Callable[[T], Status],
    ) -> Said[T]:
        """Ask until a reply can be read, each time with a new fence.

        An endpoint that fails has had its own retries and is not asked again.

        Args:
            prompt_of: makes what is asked from the fence, a code that the judged text cannot know.
            read: reads a reply to the prompt of a fence; None if it says nothing that counts.
            status_of: what a value is logged as.
        """
        said: Said[T] = Said(value=None, status="unparsed", text="")
        for attempt in range(1, self.attempts + 1):
            fence = secrets.token_hex(8)
            asked = time.perf_counter()
            reply = Reply(text="")
            try:
                answer = self.model(prompt_of(fence))
            except EndpointError as error:
                said = Said(
                    value=None, status="timeout" if error.timed_out else "error", text=str(error)
                )
            else:
                reply = answer if isinstance(answer, Reply) else Reply(text=answer)
                value = read(reply.text, fence)
                status: Status = "unparsed" if value is None else status_of(value)
                said = Said(value=value, status=status, text=reply.text)
            self.costs.add(self.name, attempt, said.status, time.perf_counter() - asked, reply)
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
