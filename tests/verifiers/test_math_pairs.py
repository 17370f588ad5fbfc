"""Pairs of answer and gold answer that were ever judged wrongly, or could be, by kind.

Each line of ``pairs/mathematics.jsonl`` has a kind, a gold answer, and answers that are right and
wrong for it. A pair that is found to be judged wrongly is added there, with others of its kind.
"""

import json
from pathlib import Path

import pytest
from verifiers.test_math_families import judge

from r1lit.verifiers import MathVerifier

PAIRS = Path(__file__).with_name("pairs") / "mathematics.jsonl"
ROWS = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted({row["kind"] for row in ROWS}))
def test_pairs(math_verifier: MathVerifier, kind: str):
    pairs = [
        (answer, row["gold"], right)
        for row in ROWS
        for right in ("right", "wrong")
        for answer in row.get(right, [])
        if row["kind"] == kind
    ]
    verdicts = judge(math_verifier, [(answer, gold) for answer, gold, _ in pairs])
    failed = [
        (pair, verdict.status, verdict.reason)
        for pair, verdict in zip(pairs, verdicts, strict=True)
        if (verdict.status == "right") != (pair[2] == "right")
        or verdict.status not in ("right", "wrong", "unparsed")
    ]
    assert failed == []


def test_every_line_has_both_or_says_which():
    assert all(set(row) <= {"kind", "gold", "right", "wrong"} for row in ROWS)
    assert all(row.get("right") or row.get("wrong") for row in ROWS)
    golds = [(row["kind"], row["gold"]) for row in ROWS]
    assert len(golds) == len(set(golds))
