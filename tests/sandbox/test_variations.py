"""Drawn arguments keep what all recorded calls have in common."""

from __future__ import annotations

import json
import random

import pytest

from r1lit.sandbox.plain import encode
from r1lit.sandbox.variations import contracts_of, variation


def drawn(lists: list[list[object]]) -> list[list[object]]:
    """Return the lists of 3,000 variations of calls of one list and a number."""
    texts = [json.dumps([json.loads(encode(((items, 2), {}))), []]) for items in lists]
    rng = random.Random(0)
    contracts = contracts_of(texts)
    drawn = (variation(rng.choice(texts), texts, contracts, rng) for _ in range(3000))
    trees = [json.loads(text)[0] for text in drawn]
    numbers = [tree[1][0][1][0][1] for tree in trees]
    return [[int(item[1], 16) for item in items] for items in numbers]


def test_what_every_recorded_call_sorts_stays_sorted_through_several_changes():
    lists = drawn([[1, 4, 9], [], [5, 7]])
    assert all(items == sorted(items) for items in lists)
    assert all(len(items) == len({*items}) for items in lists)
    assert {len(items) for items in lists} >= {0, 1, 2, 3, 4}


@pytest.mark.parametrize("lists", [[[1, 4, 9], [9, 1, 4, 4]], [[3, 1]]])
def test_what_one_call_has_unsorted_is_drawn_unsorted(lists):
    assert sum(items != sorted(items) for items in drawn(lists)) > 100
