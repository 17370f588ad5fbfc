"""Contamination: held-out problems that are also trained on."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Problem
from r1lit.data.prompts import EncodedDocument
from r1lit.text.wording import squeezed


def refuse_contamination(train: Sequence[Problem], held_out: Sequence[Problem], key: str) -> None:
    """Check that no held-out problem is trained on, by uid or by the words of its question.

    White space does not count. ``key`` names the held-out problems in the configuration.

    Raises:
        ValueError: if one is, saying how many and naming the first.
    """
    uids = {problem.uid for problem in train}
    questions = {squeezed(problem.question): problem.uid for problem in train}
    by_uid = [problem for problem in held_out if problem.uid in uids]
    if by_uid:
        raise ValueError(
            f"contamination: {len(by_uid)} of {len(held_out)} problems of data.{key} have the uid"
            f" of a training problem, the first {by_uid[0].uid!r}; allow_overlap: true permits it"
        )
    by_text = [problem for problem in held_out if squeezed(problem.question) in questions]
    if by_text:
        first = by_text[0]
        raise ValueError(
            f"contamination: {len(by_text)} of {len(held_out)} problems of data.{key} ask a"
            f" question that is trained on, the first {first.uid!r}, in training"
            f" {questions[squeezed(first.question)]!r}; allow_overlap: true permits it"
        )


def refuse_contaminated_documents(
    documents: Sequence[EncodedDocument],
    held_out: Sequence[Problem],
    prompts: Sequence[tuple[int, ...]],
) -> None:
    """Check that no validation prompt is the prompt of a training document, token by token.

    The same question in another template is not recognised.

    Raises:
        ValueError: if one is, saying how many and naming the first.
    """
    trained = {tuple(d.tokens[: d.num_prompt_tokens].tolist()) for d in documents}
    found = [
        problem for problem, prompt in zip(held_out, prompts, strict=True) if prompt in trained
    ]
    if found:
        raise ValueError(
            f"contamination: {len(found)} of {len(held_out)} problems of data.validation have"
            f" the prompt of a document in data.documents, the first {found[0].uid!r};"
            " allow_overlap: true permits it"
        )
