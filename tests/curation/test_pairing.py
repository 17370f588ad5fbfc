"""Pairs of responses: which are compared, in which order, which are kept, and their lengths."""

from __future__ import annotations

from collections import Counter

from r1lit.curation.pairs import (
    PreferencePair,
    ResponsePair,
    balance_lengths,
    keep_clear,
    length_card,
    orders,
    response_pairs,
)


def record(uid: str, sample: int, response: str, **more) -> dict:
    return {"uid": uid, "sample": sample, "question": f"Q {uid}?", "response": response, **more}


def two(uid: str = "u", parts: tuple[str, str] = ("a", "b")) -> ResponsePair:
    return ResponsePair(uid=uid, prompt="Q?", samples=(0, 1), responses=parts, scored_part=parts)


def pair(n: int, excess: int) -> PreferencePair:
    return PreferencePair(
        uid=str(n), prompt="Q?", chosen="c", rejected="r", difference=2.0,
        length_chosen=100 + excess, length_rejected=100,
    )  # fmt: skip


def compared(records, pairs_per_prompt=1, seed=0, score_on="summary"):
    dropped: Counter[str] = Counter()
    found = response_pairs(records, score_on=score_on, think_prefilled=False,
                       pairs_per_prompt=pairs_per_prompt, seed=seed, dropped=dropped)  # fmt: skip
    return found, dict(dropped)


def test_a_judge_is_shown_summaries_and_whole_responses_are_kept():
    said = ["<think> hm </think> Yes.", "<think> ah </think> No."]
    found, dropped = compared([record("u", n, text) for n, text in enumerate(said)])
    assert [c.scored_part for c in found] == [("Yes.", "No.")] and dropped == {}
    assert found[0].responses == tuple(said) and found[0].prompt == "Q u?"


def test_what_cannot_be_compared_is_left_out_and_counted():
    found, dropped = compared(
        [
            record("u", 0, "<think> a </think> Yes."),
            record("u", 1, "<think> b </think> Yes."),  # the same summary
            record("u", 2, "<think> never ends"),
            record("u", 3, "<think> c </think> No.", finished=False),
            record("v", 0, "Alone."),
        ]
    )
    assert found == []
    assert dropped == {
        "responses_repeated": 1,
        "responses_with_nothing_to_see": 1,
        "responses_unfinished": 1,
        "prompts_with_fewer_than_two_responses": 2,
    }


def test_pairs_are_drawn_by_seed_and_prompt_whatever_the_order_of_the_lines():
    records = [record(uid, n, f"{uid} says {n}.") for uid in "uvwxyz" for n in range(4)]
    found, _ = compared(records, pairs_per_prompt=2)
    assert [c.uid for c in found] == [uid for uid in "uvwxyz" for _ in range(2)]
    assert len({c.scored_part for c in found}) == 12
    assert compared(records[::-1], pairs_per_prompt=2)[0] == found
    assert compared(records, pairs_per_prompt=2, seed=1)[0] != found
    assert len(compared(records, pairs_per_prompt=100)[0]) == 6 * 6


def test_both_orders_come_equally_often_in_random_places():
    drawn = [tuple(orders(two(str(n)), 4, seed=0)) for n in range(50)]
    assert all(sum(own) == 2 for own in drawn) and len(set(drawn)) == 6
    assert {sum(orders(two(str(n)), 3, seed=0)) for n in range(20)} == {1, 2}


def test_a_pair_is_kept_when_its_mean_difference_exceeds_the_margin():
    dropped: Counter[str] = Counter()
    judged = [
        (two("first", ("good", "b")), [4.0, 1.0, 2.0, 1.0]),  # mean 2
        (two("second", ("a", "better")), [-3.0, 0.0, -3.0, 0.0]),  # mean -1.5
        (two("edge"), [1.0, 1.0, 1.0, 1.0]),  # 1 does not exceed 1
        (two("split"), [9.0, -9.0, 9.0, -9.0]),
        (two("silent"), [9.0, 9.0, 9.0, None]),
    ]
    kept = keep_clear(judged, margin=1.0, dropped=dropped)
    assert [(p.uid, p.chosen, p.rejected) for p in kept] == [
        ("first", "good", "b"),
        ("second", "better", "a"),
    ]
    assert [(p.difference, p.excess) for p in kept] == [(2.0, 3), (1.5, 5)]
    assert dropped == {"pairs_within_margin": 2, "pairs_not_judged": 1}


def test_after_balancing_length_tells_nothing_in_any_bin():
    """Four in five chosen are longer, the more so the further apart the two are."""
    pairs = [pair(n, (1 + n % 40) * (-1 if n % 5 == 0 and n % 40 < 30 else 1)) for n in range(400)]
    assert length_card(pairs)["share_longer_chosen"] > 0.8
    dropped: Counter[str] = Counter()
    kept = balance_lengths(pairs, seed=0, dropped=dropped)
    card = length_card(kept)
    assert card["share_longer_chosen"] == 0.5
    assert abs(card["mean_excess_characters"]) < 0.5
    assert dropped["pairs_for_balance_of_length"] == len(pairs) - len(kept)
    assert kept == balance_lengths(pairs, seed=0, dropped=dropped)
    assert [int(p.uid) for p in kept] == sorted(int(p.uid) for p in kept)
    assert kept != balance_lengths(pairs, seed=1, dropped=dropped)


def test_pairs_of_equal_lengths_stay():
    even = [pair(n, 0) for n in range(3)]
    dropped: Counter[str] = Counter()
    assert balance_lengths(even, seed=0, dropped=dropped) == even and not dropped
    mixed = [*even, pair(3, 7)]  # nothing to balance the longer one with
    assert balance_lengths(mixed, seed=0, dropped=dropped) == even
    assert length_card(even)["share_longer_chosen"] is None
