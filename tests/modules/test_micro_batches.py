"""Which rows share a backward pass."""

from __future__ import annotations

import random
from itertools import chain, pairwise

import pytest

from r1lit.modules.updates import split_rows


def draw(seed: int) -> tuple[list[int], list[int], list[int], int]:
    """Rows of shuffled groups of unequal size, as a minibatch has them; a prompt a group."""
    rng = random.Random(seed)
    num_groups, num_rows = rng.randint(1, 6), rng.randint(1, 30)
    prompt = [rng.randint(1, 12) for _ in range(num_groups)]
    groups = [rng.randrange(num_groups) for _ in range(num_rows)]
    responses = [rng.choice([1, 2, 7, rng.randint(1, 40)]) for _ in range(num_rows)]
    return groups, [prompt[g] for g in groups], responses, rng.choice([1, 20, 50, 100, 10_000])


def tokens(part: list[int], groups, prompts, responses, *, packed: bool) -> int:
    """How many tokens are computed for a micro-batch."""
    if packed:
        first = {groups[row]: row for row in reversed(part)}
        laid = sum(prompts[row] for row in first.values())
        copies = sum(prompts[row] // 8 for row in part if first[groups[row]] != row)
        return laid + copies + sum(responses[row] - 1 for row in part)
    return len(part) * max(prompts[row] + responses[row] for row in part)


@pytest.mark.parametrize("packed", [True, False])
def test_every_row_once_within_the_budget_and_no_more_parts_than_need_be(packed):
    kinds = set()
    for seed in range(300):
        *rows, max_tokens = draw(seed)
        parts = split_rows(*rows, max_tokens, packed=packed)
        assert sorted(chain(*parts)) == list(range(len(rows[0])))
        assert all(parts)
        for part in parts:
            fits = tokens(part, *rows, packed=packed) <= max_tokens
            assert fits or len(part) == 1, (seed, part)
            kinds.add((fits, len(part) == 1))
        for part, following in pairwise(parts):
            assert tokens([*part, following[0]], *rows, packed=packed) > max_tokens, seed
    assert kinds == {(True, True), (True, False), (False, True)}


def test_packed_rows_stay_by_their_group_in_order():
    for seed in range(100):
        groups, prompts, responses, max_tokens = draw(seed)
        order = list(chain(*split_rows(groups, prompts, responses, max_tokens, packed=True)))
        assert order == sorted(range(len(groups)), key=lambda row: (groups[row], row))


def test_padded_rows_go_longest_first():
    for seed in range(100):
        groups, prompts, responses, max_tokens = draw(seed)
        order = list(chain(*split_rows(groups, prompts, responses, max_tokens, packed=False)))
        lengths = [prompts[row] + responses[row] for row in order]
        assert lengths == sorted(lengths, reverse=True)


def test_a_prompt_counts_once_a_micro_batch():
    rows = ([0] * 4, [10] * 4, [6] * 4)
    # 10 + 4 x 5, and 10 // 8 for each further row
    assert split_rows(*rows, max_tokens=33, packed=True) == [[0, 1, 2, 3]]
    assert split_rows(*rows, max_tokens=32, packed=True) == [[0, 1, 2], [3]]
    assert split_rows(*rows, max_tokens=30, packed=False) == [[0], [1], [2], [3]]  # 16 each
    assert split_rows(*rows, max_tokens=32, packed=False) == [[0, 1], [2, 3]]


def test_no_rows():
    assert split_rows([], [], [], 10, packed=True) == []
    assert split_rows([], [], [], 10, packed=False) == []
