"""pass@k, cons@k and reflection words against hand-computed values and brute force."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from r1lit.metrics import REFLECTION_WORDS, Graded, cons_at_k, count_reflection_words, pass_at_k


def responses(keys: str) -> list[Graded]:
    """Upper case is right, lower case wrong, a dot casts no vote."""
    return [Graded(right=key.isupper(), vote=None if key == "." else key) for key in keys]


def plain_vote(subset: tuple[Graded, ...]) -> float:
    keys = [g.vote for g in subset if g.vote is not None]
    if not keys:
        return 0.0
    most = max(keys.count(key) for key in keys)
    tied = {key for key in keys if keys.count(key) == most}
    return sum(key.isupper() for key in tied) / len(tied)


@pytest.mark.parametrize("num_samples", [1, 4, 7])
def test_pass_at_k_is_the_share_of_subsets_that_hold_a_right_one(num_samples):
    for num_right in range(num_samples + 1):
        samples = [True] * num_right + [False] * (num_samples - num_right)
        for k in range(1, num_samples + 1):
            subsets = list(combinations(samples, k))
            share = sum(any(subset) for subset in subsets) / len(subsets)
            assert pass_at_k(num_samples, num_right, k) == pytest.approx(share, abs=1e-12)


def test_pass_at_k_by_hand():
    assert pass_at_k(16, 5, 1) == 5 / 16
    assert pass_at_k(5, 2, 2) == pytest.approx(1 - 3 / 10)
    assert pass_at_k(10_000, 1, 5_000) == pytest.approx(0.5)  # C(10000, 5000) overflows a float


@pytest.mark.parametrize("arguments", [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_pass_at_k_refuses_impossible_counts(arguments):
    with pytest.raises(ValueError, match="must lie in"):
        pass_at_k(*arguments)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("AAb", [2 / 3, 2 / 3, 1.0]),
        ("Abb", [1 / 3, 1 / 3, 0.0]),
        ("Ab", [1 / 2, 1 / 2]),  # a tie of right and wrong is worth a half
        ("A...", [1 / 4, 1 / 2, 3 / 4, 1.0]),  # the voteless leave the election to A
        ("...", [0.0, 0.0, 0.0]),
        ("ABc", [2 / 3, 2 / 3, 2 / 3]),  # two right keys, one wrong, all tied
    ],
)
def test_cons_at_k_by_hand(keys, expected):
    assert cons_at_k(responses(keys)) == pytest.approx(expected)


def test_cons_at_k_is_the_mean_vote_of_all_subsets():
    rng = np.random.default_rng(0)
    for _ in range(60):
        num_samples = int(rng.integers(1, 9))
        group = responses("".join(rng.choice(list("AABbbcd."), num_samples)))
        estimate = cons_at_k(group)
        assert len(estimate) == num_samples
        for k in range(1, num_samples + 1):
            votes = [plain_vote(subset) for subset in combinations(group, k)]
            assert estimate[k - 1] == pytest.approx(sum(votes) / len(votes), abs=1e-12)


def test_cons_at_k_ends_are_pass_at_1_and_the_plain_vote():
    group = responses("AbAcbAdbbAAeff..")
    estimate = cons_at_k(group)
    assert estimate[0] == 5 / 16
    assert estimate[-1] == 1.0  # five A against four b
    assert estimate == pytest.approx(cons_at_k(group[::-1]), abs=1e-12)


def test_cons_at_k_stays_exact_for_64_samples():
    estimate = cons_at_k(responses("A" * 40 + "b" * 24))
    exact = [
        sum(
            math.comb(40, a) * math.comb(24, k - a) * (1.0 if 2 * a > k else 0.5 * (2 * a == k))
            for a in range(max(0, k - 24), min(40, k) + 1)
        )
        / math.comb(64, k)
        for k in range(1, 65)
    ]
    assert estimate == pytest.approx(exact, rel=1e-12)


def test_a_key_judged_both_ways_is_worth_its_share():
    group = [Graded(right=right, vote="7") for right in (True, False, False)]
    assert cons_at_k(group) == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def test_reflection_words_are_the_papers_ten():
    printed = "wait, mistake, however, but, retry, error, verify, wrong, evaluate, check"
    assert ", ".join(REFLECTION_WORDS) == printed


def test_reflection_words_count_whole_words_in_any_case():
    text = "Wait. wait, WAIT! await waiting; but: butter. Check-check (errors, error)\nHowever"
    counts = count_reflection_words(text)
    assert {word: count for word, count in counts.items() if count} == {
        "wait": 3,
        "but": 1,
        "check": 2,
        "error": 1,
        "however": 1,
    }
    assert set(counts) == set(REFLECTION_WORDS)


def test_a_chain_that_changes_languages_reflects_no_less():
    mixed = "等等， 8 + 7 = 15 < 54. But 8 * 7 = 56 > 54。错误。 重试： 验证： wait"
    counts = {word: n for word, n in count_reflection_words(mixed).items() if n}
    assert counts == {"wait": 2, "but": 1, "error": 1, "retry": 1, "verify": 1}
