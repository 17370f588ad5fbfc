"""Grading of completions, some of them while others are still generated."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from transformers import PreTrainedTokenizerBase

from r1lit.batches import Problem, Response, Verdict
from r1lit.rollout.request import Completion, texts_of
from r1lit.verifiers import Grader

THREADS = 8  # at least: each waits for worker processes, whose number is the verifiers' affair


def graded(
    completions: Sequence[Completion],
    problems: Sequence[Problem],
    grader: Grader,
    tokenizer: PreTrainedTokenizerBase,
) -> list[Response]:
    """Return completions as responses with verdicts, in order; problems are aligned with them.

    A verdict that a completion brings, from its episode or a checkpoint, stays.
    """
    texts = texts_of(completions, tokenizer)
    verdicts = [c.verdict or (c.transcript.verdict if c.transcript else None) for c in completions]
    open_rows = [row for row, verdict in enumerate(verdicts) if verdict is None]
    decided = grader.verdicts([texts[r] for r in open_rows], [problems[r] for r in open_rows])
    by_row = dict(zip(open_rows, decided, strict=True))
    return [
        Response(
            text=text,
            problem=problem,
            verdict=verdict or by_row[row],
            num_tokens=completion.num_tokens,
            finished=completion.finished,
            version=completion.version,
            num_environment_tokens=completion.num_environment_tokens,
            transcript=completion.transcript,
        )
        for row, (text, problem, verdict, completion) in enumerate(
            zip(texts, problems, verdicts, completions, strict=True)
        )
    ]


class BackgroundGrading:
    """Grades the completions of one rollout, some of them while others are still generated.

    The verdict on a response does not depend on when its grading begins. Only verifiers that work
    ``in_background`` begin early; the others are called in this thread at the end, all rows at
    once. Use as a context manager: after an error, gradings under way are not waited for.

    Args:
        grader: decides.
        tokenizer: turns tokens into the text that is graded.
        problems: what each of the B rows answers.
    """

    def __init__(
        self,
        grader: Grader,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Problem],
    ) -> None:
        self.grader = grader
        self.tokenizer = tokenizer
        self.problems = problems
        most = max(THREADS, *(grader.verifier_of(p).num_workers for p in problems))
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="grading")
        self._begun: list[tuple[list[int], Future[list[Response]]]] = []

    def begin(self, rows: Sequence[int], completions: Sequence[Completion]) -> None:
        """Begin to grade rows that have ended; an engine's ``on_finished``."""
        early = {
            row: completion
            for row, completion in zip(rows, completions, strict=True)
            if self.grader.verifier_of(self.problems[row]).in_background
        }
        if early:
            future = self._threads.submit(self._grade, list(early), list(early.values()))
            self._begun.append((list(early), future))

    def decided(self) -> dict[int, Verdict]:
        """Return the verdicts that there are by now, by their rows."""
        done = [(rows, f.result()) for rows, f in self._begun if f.done() and not f.exception()]
        return {r: x.verdict for rows, own in done for r, x in zip(rows, own, strict=True)}

    def finish(self, completions: Sequence[Completion]) -> tuple[Response, ...]:
        """Return the B graded responses, in order.

        Raises:
            Exception: what a verifier raised, about an early response too.
        """
        begun = [(rows, future) for rows, future in self._begun if not future.cancel()]
        rest = sorted(set(range(len(completions))).difference(*(rows for rows, _ in begun)))
        graded = dict(zip(rest, self._grade(rest, [completions[r] for r in rest]), strict=True))
        for rows, future in begun:
            graded.update(zip(rows, future.result(), strict=True))
        return tuple(graded[row] for row in range(len(completions)))

    def _grade(self, rows: Sequence[int], completions: Sequence[Completion]) -> list[Response]:
        return graded(
            completions, [self.problems[row] for row in rows], self.grader, self.tokenizer
        )

    def __enter__(self) -> BackgroundGrading:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=error is None, cancel_futures=True)
