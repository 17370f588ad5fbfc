"""From responses to preference pairs: which to compare, which to keep, and balanced lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from r1lit.seeding import generator, permutation
from r1lit.text.scored_text import ScoreOn, scored_part
from r1lit.verifiers.generative_judge import key_of

NUM_BINS = 10


@dataclass(frozen=True, kw_only=True)
class ResponsePair:
    """Two responses to one prompt that a judge compares; it is shown ``scored_part`` of each."""

    uid: str
    prompt: str
    samples: tuple[int, int]
    responses: tuple[str, str]
    scored_part: tuple[str, str]

    @property
    def key(self) -> str:
        """A digest of everything that a judgement of the pair depends on, except the judge."""
        return key_of(self.uid, self.prompt, *map(str, self.samples), *self.scored_part)


@dataclass(frozen=True, kw_only=True)
class PreferencePair:
    """A compared pair; ``difference``, above 0, is the mean judgement of chosen less rejected.

    Lengths are in characters of what the judge was shown.
    """

    uid: str
    prompt: str
    chosen: str
    rejected: str
    difference: float
    length_chosen: int
    length_rejected: int

    @property
    def excess(self) -> int:
        """By how many characters the chosen response is longer."""
        return self.length_chosen - self.length_rejected


def response_pairs(
    records: Iterable[Mapping[str, Any]],
    *,
    score_on: ScoreOn,
    think_prefilled: bool,
    pairs_per_prompt: int,
    seed: int,
    dropped: Counter[str],
) -> list[ResponsePair]:
    """Return which responses to compare: pairs of different texts, sampled by seed and prompt.

    Responses that were cut at the token limit or have nothing to score are left out; of equal texts
    the first stays. ``dropped`` counts them, and prompts with fewer than two left.
    """
    by_prompt: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        by_prompt.setdefault(str(record["uid"]), []).append(record)
    found = []
    for uid, own in sorted(by_prompt.items()):
        texts: dict[str, Mapping[str, Any]] = {}
        for record in sorted(own, key=lambda record: int(record["sample"])):
            text = scored_part(record["response"], score_on, think_prefilled)
            if not record.get("finished", True):
                dropped["responses_unfinished"] += 1
            elif not text:
                dropped["responses_with_nothing_to_see"] += 1
            elif text in texts:
                dropped["responses_repeated"] += 1
            else:
                texts[text] = record
        both = list(combinations(texts.items(), 2))
        if not both:
            dropped["prompts_with_fewer_than_two_responses"] += 1
        for i in sorted(permutation(len(both), seed, "pairs", uid)[:pairs_per_prompt]):
            (text_a, a), (text_b, b) = both[i]
            found.append(
                ResponsePair(
                    uid=uid,
                    prompt=str(a["question"]),
                    samples=(int(a["sample"]), int(b["sample"])),
                    responses=(a["response"], b["response"]),
                    scored_part=(text_a, text_b),
                )
            )
    return found


def orders(pair: ResponsePair, num_judgements: int, seed: int) -> list[bool]:
    """Return for each judgement whether the second response is shown first.

    Both orders come equally often, shuffled; with an odd number the extra one is random.
    """
    shuffled = permutation(num_judgements, seed, "orders", pair.key)
    first = int(generator(seed, "first", pair.key).integers(2))
    return [bool((index + first) % 2) for index in shuffled]


def keep_clear(
    judged: Iterable[tuple[ResponsePair, Sequence[float | None]]],
    *,
    margin: float,
    dropped: Counter[str],
) -> list[PreferencePair]:
    """Return the pairs whose mean difference exceeds ``margin``, chosen first.

    Differences are of the first response less the second, whatever order they were shown in. A pair
    with a judgement missing is dropped: the orders of the others need not balance.
    """
    pairs = []
    for pair, differences in judged:
        given = [d for d in differences if d is not None]
        if len(given) < len(differences):
            dropped["pairs_not_judged"] += 1
            continue
        mean = sum(given) / len(given)
        if not abs(mean) > margin:
            dropped["pairs_within_margin"] += 1
            continue
        best = 0 if mean > 0 else 1
        pairs.append(
            PreferencePair(
                uid=pair.uid,
                prompt=pair.prompt,
                chosen=pair.responses[best],
                rejected=pair.responses[1 - best],
                difference=abs(mean),
                length_chosen=len(pair.scored_part[best]),
                length_rejected=len(pair.scored_part[1 - best]),
            )
        )
    return pairs


def balance_lengths(
    pairs: Sequence[PreferencePair], *, seed: int, dropped: Counter[str]
) -> list[PreferencePair]:
    """Return a subset of the pairs, in order, in which length does not predict the chosen response.

    Pairs are put into ten bins by the difference of the two lengths (deciles); in each bin, pairs
    are dropped at random until the longer response is chosen as often as the shorter one. Pairs of
    equal lengths stay.
    """
    apart = np.array([abs(pair.excess) for pair in pairs], dtype=float)
    uneven = apart > 0
    if not uneven.any():
        return list(pairs)
    edges = np.quantile(apart[uneven], np.linspace(0, 1, NUM_BINS + 1)[1:-1])
    bins = np.searchsorted(edges, apart, side="right")
    kept = {i for i in range(len(pairs)) if not uneven[i]}
    for b in range(NUM_BINS):
        own = [i for i in range(len(pairs)) if uneven[i] and bins[i] == b]
        longer = [i for i in own if pairs[i].excess > 0]
        shorter = [i for i in own if pairs[i].excess < 0]
        size = min(len(longer), len(shorter))
        for name, side in (("longer", longer), ("shorter", shorter)):
            order = permutation(len(side), seed, "balance", b, name)
            kept.update(side[i] for i in order[:size])
    dropped["pairs_for_balance_of_length"] += len(pairs) - len(kept)
    return [pairs[i] for i in sorted(kept)]


def length_card(pairs: Sequence[PreferencePair]) -> dict[str, Any]:
    """Return how often the longer response is chosen, and its mean excess in characters."""
    uneven = [pair for pair in pairs if pair.excess]
    longer = sum(pair.excess > 0 for pair in uneven)
    return {
        "pairs": len(pairs),
        "share_longer_chosen": longer / len(uneven) if uneven else None,
        "mean_excess_characters": sum(p.excess for p in pairs) / len(pairs) if pairs else None,
    }
