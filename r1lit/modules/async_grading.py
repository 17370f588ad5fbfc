"""Grading responses while others are still generated.

B rows, one a response, of P prompts times G responses
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from transformers import PreTrainedTokenizerBase

from r1lit.batches import Problem, Response
from r1lit.rollout import Completion, texts_of
from r1lit.verifiers import Grader

THREADS = 8  # each waits for worker processes, whose number is the verifiers' affair


class AsyncGrading:
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
        self, grader: Grader, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]
    ) -> None:
        self.grader = grader
        self.tokenizer = tokenizer
        self.problems = problems
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grading")
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

    def finish(self, completions: Sequence[Completion]) -> tuple[Response, ...]:
        """Return the B graded responses, in order.

        Raises:
            Exception: what the grader raised, about an early response too.
        """
        begun = [(rows, future) for rows, future in self._begun if not future.cancel()]
        rest = sorted(set(range(len(completions))).difference(*(rows for rows, _ in begun)))
        graded = dict(zip(rest, self._grade(rest, [completions[r] for r in rest]), strict=True))
        for rows, future in begun:
            graded.update(zip(rows, future.result(), strict=True))
        return tuple(graded[row] for row in range(len(completions)))

    def _grade(self, rows: Sequence[int], completions: Sequence[Completion]) -> list[Response]:
        texts = texts_of(completions, self.tokenizer)
        problems = [self.problems[row] for row in rows]
        return [
            Response(
                text=text,
                problem=problem,
                verdict=verdict,
                num_tokens=completion.num_tokens,
                finished=completion.finished,
                version=completion.version,
            )
            for text, problem, verdict, completion in zip(
                texts, problems, self.grader.verdicts(texts, problems), completions, strict=True
            )
        ]

    def __enter__(self) -> AsyncGrading:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=error is None, cancel_futures=True)
