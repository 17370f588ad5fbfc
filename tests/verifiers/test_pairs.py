"""Pairs of answer and gold answer that were ever judged wrongly, or could be, by verifier and kind.

Each line of a file in ``pairs/`` has a kind, a gold answer, what the verifier needs besides it
(``meta``), and answers that are right and wrong for it. A pair that is found to be judged wrongly
is added there, with others of its kind.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from r1lit.batches import Problem
from r1lit.verifiers import ChoiceVerifier, ExactVerifier, Game24Verifier, MathVerifier, Verifier

FOLDER = Path(__file__).with_name("pairs")
TAGGED: dict[str, Callable[[], Verifier]] = {"exact": ExactVerifier, "game24": Game24Verifier}
WHOLE: dict[str, Callable[[], Verifier]] = {
    "choice": ChoiceVerifier,
    "exact_free": ExactVerifier,
    "last_expression": lambda: MathVerifier(num_workers=1, last_expression=True),
    "boxed": lambda: MathVerifier(num_workers=1),
}
"""Verifiers by file: answers of the first stand in answer tags, of the others are responses."""


def rows(name: str) -> list[dict]:
    text = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", [*TAGGED, *WHOLE])
def test_pairs(name: str):
    verifier = {**TAGGED, **WHOLE}[name]()
    pairs = [
        (row, answer, right)
        for row in rows(name)
        for right in ("right", "wrong")
        for answer in row.get(right, [])
    ]
    verdicts = verifier.verify_batch(
        [f"<answer> {answer} </answer>" if name in TAGGED else answer for _, answer, _ in pairs],
        [
            Problem(uid="", question="", answer=row["gold"], source="", meta=row.get("meta", {}))
            for row, _, _ in pairs
        ],
    )
    verifier.close()
    failed = [
        (row["kind"], answer, right, verdict.status, verdict.reason)
        for (row, answer, right), verdict in zip(pairs, verdicts, strict=True)
        if (verdict.status == "right") != (right == "right")
        or verdict.status not in ("right", "wrong", "unparsed")
    ]
    assert failed == []


def test_every_line_is_whole():
    for name in (*TAGGED, *WHOLE):
        lines = rows(name)
        assert all(set(row) <= {"kind", "gold", "meta", "right", "wrong"} for row in lines)
        assert all(row.get("right") or row.get("wrong") for row in lines)
        kinds = [row["kind"] for row in lines]
        assert len(kinds) == len(set(kinds))
