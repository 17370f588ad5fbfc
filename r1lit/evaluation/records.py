"""Records of graded responses: writing and reading the lines of ``responses.jsonl``.

`r1lit test` and `r1lit predict` write them to an evaluation's folder, `ResponseTable` to a training
run's; reports, comparisons, curation and the experiments read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from r1lit.files import JSONLFile, Record
from r1lit.problems import Response, Transcript


def response_record(response: Response, sample: int) -> Record:
    """Return the line of a graded response; ``sample`` counts from 0 within its problem."""
    problem, verdict = response.problem, response.verdict
    return {
        "uid": problem.uid,
        "sample": sample,
        "source": problem.source,
        "question": problem.question,
        "answer": problem.answer,
        "response": response.text,
        "value": verdict.value,
        "status": verdict.status,
        "reason": verdict.reason,
        "canonical": verdict.canonical,
        "num_tokens": response.num_tokens,
        "finished": response.finished,
        **({"problem": problem.meta["problem"]} if "problem" in problem.meta else {}),
        **({"details": dict(verdict.details)} if verdict.details else {}),
        **({} if response.transcript is None else _episode(response.transcript)),
    }


def _episode(transcript: Transcript) -> Record:
    return {
        "turns": [dict(message) for message in transcript.messages],
        "ended": transcript.ended,
        "num_calls": transcript.num_calls,
        "num_invalid": transcript.num_invalid,
    }


def merged(groups: Mapping[str, list[Record]]) -> dict[str, list[Record]]:
    """Return the groups with those of one problem as one: its responses had a prompt each."""
    found: dict[str, list[Record]] = {}
    for uid, records in groups.items():
        for record in records:
            found.setdefault(record.get("problem", uid), []).append(record)
    return found


def eval_metrics_in(record: Record) -> dict[str, float]:
    """Return the eval metrics of a line; a training run's lines have rewards instead, so none.

    Lines written before the key was renamed have ``measures``.
    """
    return dict(record.get("eval_metrics", record.get("measures", {})) or {})


def by_problem(
    records: Iterable[Record], num_samples: int | None = None
) -> dict[str, list[Record]]:
    """Return the responses to each problem by uid, ordered by sample.

    With ``num_samples``, at most so many of each. The first of repeated samples counts; problems
    stand in the order in which they first appear.
    """
    found: dict[str, dict[int, Record]] = {}
    for record in records:
        if num_samples is None or record["sample"] < num_samples:
            found.setdefault(record["uid"], {}).setdefault(record["sample"], record)
    return {uid: [own[g] for g in sorted(own)] for uid, own in found.items()}


Which = int | Literal["first", "last"]
"""An evaluation of a training run: the first, the last, or that at an iteration."""


def read_evaluation(path: Path, key: str = "run", which: Which = "last") -> list[Record]:
    """Return the responses of one evaluation, in the order of their lines.

    Of a training run's file, which has responses of training and of several evaluations, they are
    those of the evaluation ``which``.

    Raises:
        ValueError: if a line is no record, or there is no evaluation at that iteration; ``key``
            names the file in the error.
    """
    found: list[Record] = []
    of: tuple[str, int] | None = None
    iterations: list[int] = []
    for record in JSONLFile(path, key).read():
        this = (record["split"], record["iteration"]) if "split" in record else None
        if this is not None and this[0] == "train":
            continue
        if this != of:
            if of is not None and which in ("first", of[1]):
                break
            found, of = [], this
            iterations.append(record.get("iteration", 0))
        found.append(record)
    if which not in ("first", "last") and (of is None or of[1] != which):
        has = ", ".join(map(str, iterations)) or "none"
        raise ValueError(f"{key}: {path} has no evaluation at iteration {which}; it has {has}")
    return found
