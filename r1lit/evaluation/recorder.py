"""Judges responses in a thread of its own and writes them down, while others are still drawn."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tqdm.auto import tqdm

from r1lit.evaluation.eval_metrics import measure
from r1lit.jsonl import Lines, Record
from r1lit.problems import Problem, Response
from r1lit.rewards import RewardFunction
from r1lit.rollout import Draw
from r1lit.verifiers import Grader

MOST = 256  # responses judged at a time


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A response that waits for its verdict; ``sample`` counts from 0 within its problem."""

    problem: Problem
    sample: int
    prompt: str
    draw: Draw
    groups: Mapping[str, Any]


class Recorder:
    """Takes responses from any thread, judges them in the order they come and appends their lines.

    What ends the judging (a verifier that fails, a full disk) is raised by the next ``add`` and by
    leaving the context. Leaving it waits for what has been added, even after an error elsewhere:
    a response that was drawn is kept.
    """

    def __init__(
        self, lines: Lines, grader: Grader, measures: Sequence[RewardFunction], bar: tqdm
    ) -> None:
        self._lines = lines
        self._judge = grader
        self._measures = measures
        self._bar = bar
        self._waiting: queue.SimpleQueue[Drawn | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)

    def __enter__(self) -> Recorder:
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

    def add(self, drawn: Drawn) -> None:
        """Hand a response over."""
        if self._failure is not None:
            raise self._failure
        self._waiting.put(drawn)

    def _work(self) -> None:
        last = False
        while not last:
            batch, last = self._take()
            if not batch or self._failure is not None:
                continue
            try:
                self._lines.append(self._records(batch))
            except BaseException as error:  # carried to the thread that draws, and raised there
                self._failure = error
            else:
                self._bar.update(len(batch))

    def _take(self) -> tuple[list[Drawn], bool]:
        """Wait for a response, and take those that wait behind it."""
        batch: list[Drawn] = []
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

    def _records(self, batch: list[Drawn]) -> list[Record]:
        verdicts = self._judge.verdicts([d.draw.text for d in batch], [d.problem for d in batch])
        responses = [
            Response(
                text=drawn.draw.text,
                problem=drawn.problem,
                verdict=verdict,
                num_tokens=drawn.draw.num_tokens,
                finished=drawn.draw.finished,
            )
            for drawn, verdict in zip(batch, verdicts, strict=True)
        ]
        measured = measure(self._measures, responses)
        return [
            {
                "uid": drawn.problem.uid,
                "sample": drawn.sample,
                "source": drawn.problem.source,
                "groups": dict(drawn.groups),
                "prompt": drawn.prompt,
                "question": drawn.problem.question,
                "answer": drawn.problem.answer,
                "response": response.text,
                "value": response.verdict.value,
                "status": response.verdict.status,
                "reason": response.verdict.reason,
                "canonical": response.verdict.canonical,
                "judge_seconds": round(response.verdict.seconds, 6),
                "measures": measured[row],
                "num_tokens": response.num_tokens,
                "finished": response.finished,
            }
            for row, (drawn, response) in enumerate(zip(batch, responses, strict=True))
        ]
