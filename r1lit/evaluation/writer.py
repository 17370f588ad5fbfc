"""Grades and writes responses in its own thread, while others are still generated."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from r1lit.evaluation.eval_metrics import eval_metrics_of
from r1lit.evaluation.records import response_record
from r1lit.files import JSONLFile, Record
from r1lit.problems import Problem, Response
from r1lit.rewards import RewardFunction
from r1lit.rollout import Completion, texts_of
from r1lit.verifiers import Grader

MOST = 256  # responses graded at a time


@dataclass(frozen=True, kw_only=True)
class Ungraded:
    """A completion that waits for its verdict; ``sample`` counts from 0 within its problem.

    ``search`` are the numbers of the search that made it, if one did.
    """

    problem: Problem
    sample: int
    prompt: str
    completion: Completion
    groups: Mapping[str, Any]
    search: Mapping[str, float] | None = None


class ResponseWriter:
    """Takes completions from any thread, grades them in order of arrival and appends lines.

    An error in its thread (a verifier that fails, a full disk) is raised by the next ``add`` and
    on leaving the context. Leaving it waits until every completion added is written, even after an
    error elsewhere.
    """

    def __init__(
        self,
        responses: JSONLFile,
        grader: Grader,
        eval_metrics: Sequence[RewardFunction],
        tokenizer: PreTrainedTokenizerBase,
        bar: tqdm,
    ) -> None:
        self._responses = responses
        self._grader = grader
        self._eval_metrics = eval_metrics
        self._tokenizer = tokenizer
        self._bar = bar
        self._waiting: queue.SimpleQueue[Ungraded | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="response-writer", daemon=True)

    def __enter__(self) -> ResponseWriter:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._waiting.put(None)
        self._thread.join()
        if self._failure is not None and (error is None or isinstance(error, Exception)):
            raise self._failure

    def add(self, ungraded: Sequence[Ungraded]) -> None:
        """Queue completions."""
        if self._failure is not None:
            raise self._failure
        for one in ungraded:
            self._waiting.put(one)

    def _work(self) -> None:
        last = False
        while not last:
            batch, last = self._take()
            if not batch or self._failure is not None:
                continue
            try:
                self._responses.append(self._records(batch))
            except BaseException as error:  # carried to the thread that generates, and raised there
                self._failure = error
            else:
                self._bar.update(len(batch))

    def _take(self) -> tuple[list[Ungraded], bool]:
        """Wait for a completion; return all that are queued, and whether the queue has ended."""
        batch: list[Ungraded] = []
        item = self._waiting.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= MOST:
                return batch, False
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _records(self, batch: list[Ungraded]) -> list[Record]:
        texts = texts_of([one.completion for one in batch], self._tokenizer)
        verdicts = self._grader.verdicts(texts, [one.problem for one in batch])
        responses = [
            Response(
                text=text,
                problem=one.problem,
                verdict=verdict,
                num_tokens=one.completion.num_tokens,
                finished=one.completion.finished,
            )
            for one, text, verdict in zip(batch, texts, verdicts, strict=True)
        ]
        scores = eval_metrics_of(self._eval_metrics, responses)
        return [
            {
                **response_record(response, one.sample),
                "groups": dict(one.groups),
                "prompt": one.prompt,
                "grade_seconds": round(response.verdict.seconds, 6),
                "eval_metrics": own,
                **({} if one.search is None else {"search": dict(one.search)}),
            }
            for one, response, own in zip(batch, responses, scores, strict=True)
        ]
