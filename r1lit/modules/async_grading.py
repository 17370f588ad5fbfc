"""Grading responses while others still decode.

B rows, one a response, of P prompts times G responses
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from transformers import PreTrainedTokenizerBase

from r1lit.batches import Problem, Verdict
from r1lit.verifiers import Grader

Judged = tuple[str, Verdict]
THREADS = 8  # each waits for worker processes, whose number is the verifiers' affair


class AsyncGrading:
    """The verdicts on a rollout: some begun while it is drawn, the rest when all of it is there.

    What a response gets does not depend on when it was begun. Only verifiers that work
    ``in_background`` begin early; the others are asked in this thread, at the end, all rows at
    once. Use as a context manager: what it leaves on an error is not waited for.

    Args:
        grader: decides.
        tokenizer: turns tokens into the text that is judged.
        problems: what each of the B rows answers.
    """

    def __init__(
        self, grader: Grader, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]
    ) -> None:
        self.grader = grader
        self.tokenizer = tokenizer
        self.problems = problems
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grading")
        self._begun: list[tuple[list[int], Future[list[Judged]]]] = []

    def begin(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Begin to grader rows that have finished, given their tokens; an engine's ``on_end``."""
        early = {
            row: said
            for row, said in zip(rows, tokens, strict=True)
            if self.grader.verifier_of(self.problems[row]).in_background
        }
        if early:
            future = self._threads.submit(self._judged, list(early), list(early.values()))
            self._begun.append((list(early), future))

    def finish(self, tokens_B: Sequence[Sequence[int]]) -> list[Judged]:
        """Return the text of every response and the verdict on it, in order.

        Raises:
            Exception: what the grader raised, about an early response too.
        """
        begun = [(rows, future) for rows, future in self._begun if not future.cancel()]
        rest = sorted(set(range(len(tokens_B))).difference(*(rows for rows, _ in begun)))
        judged = dict(zip(rest, self._judged(rest, [tokens_B[r] for r in rest]), strict=True))
        for rows, future in begun:
            judged.update(zip(rows, future.result(), strict=True))
        return [judged[row] for row in range(len(tokens_B))]

    def _judged(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> list[Judged]:
        if not rows:  # transformers 5 decodes no rows as one empty text
            return []
        texts = self.tokenizer.batch_decode(
            [list(said) for said in tokens], skip_special_tokens=True
        )
        verdicts = self.grader.verdicts(texts, [self.problems[row] for row in rows])
        return list(zip(texts, verdicts, strict=True))

    def __enter__(self) -> AsyncGrading:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=error is None, cancel_futures=True)
