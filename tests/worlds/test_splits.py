"""Tests of what belongs to which split."""

import numpy as np
import pytest

from r1lit.worlds.splits import draw_distinct, hashed_split, listed_split


def test_a_list_is_cut_into_three_parts_of_60_20_and_20_percent():
    parts = [listed_split(range(100), split, "any") for split in ("corpus", "train", "held_out")]
    assert [len(part) for part in parts] == [60, 20, 20]
    assert sorted(i for part in parts for i in part) == list(range(100))
    assert all(part == sorted(part) for part in parts)


def test_a_hash_gives_the_same_shares():
    given = [hashed_split("any", str(i)) for i in range(2000)]
    assert given == [hashed_split("any", str(i)) for i in range(2000)]
    for split, share in (("corpus", 0.6), ("train", 0.2), ("held_out", 0.2)):
        assert given.count(split) / 2000 == pytest.approx(share, abs=0.03)


def test_distinct_draws_find_a_whole_pool_and_then_say_so():
    rng = np.random.default_rng(0)

    def draw() -> int:
        return int(rng.integers(50))

    assert sorted(draw_distinct(draw, str, 50, "split 'train'").values()) == list(range(50))
    with pytest.raises(ValueError, match="num_problems: 51 is more than split 'train' holds"):
        draw_distinct(draw, str, 51, "split 'train'")
