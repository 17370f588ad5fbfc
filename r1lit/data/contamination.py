"""Contamination: held-out problems that are also trained on."""

from __future__ import annotations

from collections.abc import Sequence

from r1lit.batches import Problem
from r1lit.data.prompts import EncodedDocument


def _normal(question: str) -> str:
    return " ".join(question.split())


def refuse_contamination(train: Sequence[Problem], held_out: Sequence[Problem], key: str) -> None:
    """Check that no held-out problem is trained on, by uid or by the words of its question.

    White space does not count. ``key`` names the held-out problems in the configuration.

    Raises:
        ValueError: if one is, saying how many and naming the first.
    """
    uids = {problem.uid for problem in train}
    questions = {_normal(problem.question): problem.uid for problem in train}
    by_uid = [problem for problem in held_out if problem.uid in uids]
    if by_uid:
        raise ValueError(
            f"leak: {len(by_uid)} of {len(held_out)} problems of data.{key} have the uid of a"
            f" training problem, the first {by_uid[0].uid!r}; allow_overlap: true permits it"
        )
    by_text = [problem for problem in held_out if _normal(problem.question) in questions]
    if by_text:
        first = by_text[0]
        raise ValueError(
            f"leak: {len(by_text)} of {len(held_out)} problems of data.{key} ask a question that is"
            f" trained on, the first {first.uid!r}, in training"
            f" {questions[_normal(first.question)]!r}; allow_overlap: true permits it"
        )


def refuse_imitated(
    documents: Sequence[EncodedDocument],
    held_out: Sequence[Problem],
    prompts: Sequence[tuple[int, ...]],
) -> None:
    """Check that no validation prompt is the prompt of a training document, token by token.

    The same question in another template is not recognised.

    Raises:
        ValueError: if one is, saying how many and naming the first.
    """
    imitated = {tuple(d.tokens[: d.num_prompt_tokens].tolist()) for d in documents}
    leaked = [
        problem for problem, prompt in zip(held_out, prompts, strict=True) if prompt in imitated
    ]
    if leaked:
        raise ValueError(
            f"leak: {len(leaked)} of {len(held_out)} problems of data.validation have the prompt of"
            f" a document in data.documents, the first {leaked[0].uid!r}; allow_overlap: true"
            " permits it"
        )
