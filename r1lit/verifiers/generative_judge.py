"""A judge that is a model: a judgement is requested until its reply can be read."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from r1lit.endpoint import Reply, ReplyCache
from r1lit.endpoint.client import RequestError, SetupError
from r1lit.errors import check_at_least
from r1lit.files import append_records
from r1lit.problems import Status

Model = Callable[[str], str | Reply]
"""Text in, text out; a ``Reply`` holds its cost as well."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Judgement(Generic[T]):
    """What was read from a judge's last reply, or None with the status that gives the reason.

    ``text`` is the reply, or the error of the last request.
    """

    value: T | None
    status: Status
    text: str


class GenerativeJudge:
    """A model that judges, a cache of its judgements, and a log of their cost.

    Args:
        model: any callable from prompt to reply, such as ``ServedModel``.
        cache: the file of judgements, made if absent; None keeps them in memory.
        log: a JSONL file to which every request's status, seconds and tokens are added.
        judge_name: names the model in cache and log; its own ``name`` if left out.
        attempts: how often one judgement is requested before giving up.

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
        check_at_least("attempts", attempts, 1)
        self.model = model
        self.name = judge_name or str(getattr(model, "name", ""))
        if cache and not self.name:
            raise ValueError("judge_name: a cache needs one, as the model has no name of its own")
        self.attempts = attempts
        self.judgements = ReplyCache(Path(cache) if cache else None)
        self.costs = CostLog(Path(log) if log else None)

    def request(
        self,
        prompt_of: Callable[[str], str],
        read: Callable[[str, str], T | None],
        status_of: Callable[[T], Status],
    ) -> Judgement[T]:
        """Send prompts, each with a new fence, until a reply can be read.

        A request that fails has had its own retries and is not sent again.

        Args:
            prompt_of: makes the prompt from the fence, a code that the judged text cannot know.
            read: reads a reply to the prompt of a fence; None if it holds no valid judgement.
            status_of: what a value is logged as.

        Raises:
            SetupError: if key, address or model are wrong: no response is to blame for that.
        """
        for attempt in range(1, self.attempts + 1):
            fence, start = secrets.token_hex(8), time.perf_counter()
            reply, value, error_text = Reply(text=""), None, None
            try:
                answer = self.model(prompt_of(fence))
            except SetupError:
                raise
            except RequestError as error:
                status: Status = "timeout" if error.timed_out else "error"
                error_text = str(error)
            else:
                reply = answer if isinstance(answer, Reply) else Reply(text=answer)
                value = read(reply.text, fence)
                status = "unparsed" if value is None else status_of(value)
            seconds = time.perf_counter() - start
            self.costs.add(self.name, attempt, status, seconds, reply, error_text)
            judgement = Judgement(value=value, status=status, text=error_text or reply.text)
            if status != "unparsed":
                break
        return judgement


class CostLog:
    """One line of JSON per request to a judge, and their sums.

    A line has the ``time`` (Unix, seconds) the request began, ``judge``, ``attempt``, ``status``,
    ``seconds``, the endpoint's ``prompt_tokens`` and ``completion_tokens`` (null where it counts
    none), and ``error``, the reason of a request without a reply (else null).
    ``totals`` has the sums of this process: requests, seconds, tokens of either kind, and
    requests by status. Without ``path`` there are only the sums.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.totals: dict[str, float] = {}
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "totals": self.totals}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def add(
        self,
        judge: str,
        attempt: int,
        status: Status,
        seconds: float,
        reply: Reply,
        error: str | None = None,
    ) -> None:
        """Log one request that took ``seconds`` until now."""
        numbers = {
            "seconds": round(seconds, 4),
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
        }
        with self._lock:
            for key, value in {"requests": 1, status: 1, **numbers}.items():
                self.totals[key] = self.totals.get(key, 0) + (value or 0)
        if self.path is not None:
            began = round(time.time() - seconds, 3)
            line = {"time": began, "judge": judge, "attempt": attempt, "status": status, **numbers}
            append_records(self.path, [{**line, "error": error}])
