"""Shares of the roofline: each part and each way of a product is there, and is a share."""

from __future__ import annotations

import json

import pytest

from benchmarks import roofline

PARTS = {"rollout", "forward without gradients", "forward", "backward", "optimiser"}


@pytest.mark.long
def test_all_parts_are_measured_at_a_tiny_size():
    rows = roofline.measure(1, 1, tiny=True)
    shares = {row["part"]: row["median"] for row in rows if not row["part"].endswith("seconds")}
    seconds = [row for row in rows if row["part"].endswith("seconds")]
    assert shares.keys() > PARTS and len(seconds) == len(PARTS)
    assert all(0 < share < 3 for name, share in shares.items() if name != "optimiser")
    ways = {row["way"] for row in rows if row["part"].startswith("products")}
    assert ways == {"PyTorch", "oneDNN packed", "MKL packed"}
    table = roofline.table(rows)
    assert len(table.splitlines()) == 2 + len(rows) - len(seconds)


def test_the_committed_rows_name_their_processor():
    rows = json.loads(roofline.FILE.read_text())
    for threads in {row["threads"] for row in rows}:
        own = [row for row in rows if row["threads"] == threads]
        assert {row["part"] for row in own} > PARTS
        assert all(row["machine"] and row["instructions"] and row["repeats"] >= 2 for row in own)
