"""``r1lit-pairs``: preference pairs from responses and a judge, as R1 builds them.

    r1lit-pairs -c pairs.yaml
    r1lit-pairs --responses '[runs/general/responses.jsonl]' --dirpath runs/pairs --judge my.judge

The helpful reward model's pairs (Nature 645:633, Methods): each pair of responses is judged four
times, in both orders; it is kept when the mean difference exceeds 1; lengths are balanced. Writes

pairs.jsonl        prompt, chosen, rejected, difference, length_chosen, length_rejected, uid
card.json          counts, what was dropped and why, and statistics of length
judgements.jsonl   one line per judgement, in order of arrival; ``draw`` is its index

Run again after an interruption, it makes only the missing judgements. The files depend only on the
responses, the judgements and the seed.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jsonargparse import ArgumentParser
from tqdm.auto import tqdm

from r1lit.console import run_script
from r1lit.endpoint.chat import key_of
from r1lit.errors import check_at_least
from r1lit.files import JSONLFile, Record, read_existing, replace_file, write_records
from r1lit.refused import instantiated
from r1lit.seeding import generator, permutation
from r1lit.text.scored_text import ScoreOn, scored_part

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


Judge = Callable[..., float | None]
Judgements = dict[tuple[str, int], float]
"""The difference of first less second, by a pair's key and the number of the judgement."""


def build_pairs(
    responses: list[str],
    dirpath: str,
    judge: Judge,
    score_on: ScoreOn = "summary",
    think_prefilled: bool = False,
    num_judgements: int = 4,
    margin: float = 1.0,
    pairs_per_prompt: int = 1,
    balance: bool = True,
    judge_name: str | None = None,
    num_threads: int = 8,
    seed: int = 0,
) -> dict[str, Any]:
    """Build pairs and return their card.

    Args:
        responses: files as ``EvaluationModule`` writes them, or with uid, sample, question and
            response a line.
        dirpath: the folder to write to.
        judge: a ``r1lit.verifiers.PreferenceJudge``, such as ``GenerativePreference``, or a
            function of prompt, first and second.
        score_on: what is judged: the "summary", or the whole "response". Whole responses are
            written; `PreferenceDataModule` has its own ``score_on``.
        think_prefilled: the prompts ended in ``<think>``.
        num_judgements: of a pair; R1: 4.
        margin: what the mean difference must exceed; R1: 1.
        pairs_per_prompt: how many pairs of its responses are judged, at most.
        balance: whether pairs are dropped until length does not predict the chosen response.
        judge_name: names the judge in judgements.jsonl; judgements of other names are not reused.
        num_threads: concurrent judgements.
        seed: of pairs, orders and the balance.

    Raises:
        ValueError: if a number is out of range, or a file is missing or lacks a key.
    """
    check_at_least("num_judgements", num_judgements, 1)
    check_at_least("pairs_per_prompt", pairs_per_prompt, 1)
    check_at_least("num_threads", num_threads, 1)
    check_at_least("margin", margin, 0)
    records = [record for path in responses for record in _read(path)]
    dropped: Counter[str] = Counter()
    wanted = response_pairs(
        records,
        score_on=score_on,
        think_prefilled=think_prefilled,
        pairs_per_prompt=pairs_per_prompt,
        seed=seed,
        dropped=dropped,
    )
    folder = Path(dirpath)
    folder.mkdir(parents=True, exist_ok=True)
    name = judge_name or _name(judge)
    judged = _judge(wanted, judge, name, JSONLFile(folder / "judgements.jsonl", "dirpath"),
                    num_judgements=num_judgements, num_threads=num_threads, seed=seed)  # fmt: skip
    clear = keep_clear(
        ((p, [judged.get((p.key, index)) for index in range(num_judgements)]) for p in wanted),
        margin=margin,
        dropped=dropped,
    )
    pairs = balance_lengths(clear, seed=seed, dropped=dropped) if balance else clear
    numbers = {"num_judgements": num_judgements, "margin": margin}
    numbers |= {"pairs_per_prompt": pairs_per_prompt, "balance": balance, "seed": seed}
    card = {
        "responses": len(records),
        "pairs_compared": len(wanted),
        "judgements": len(judged),
        "dropped": dict(sorted(dropped.items())),
        "pairs": len(pairs),
        "mean_difference": sum(p.difference for p in pairs) / len(pairs) if pairs else None,
        "length_before_balance": length_card(clear),
        "length": length_card(pairs),
        "first_preferred": _share_first(wanted, judged, num_judgements, seed),
        "settings": {"judge": name, "score_on": score_on, **numbers},
    }
    write_records(folder / "pairs.jsonl", map(asdict, pairs))
    written = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
    replace_file(folder / "card.json", written.encode())
    return card


def _judge(
    wanted: Sequence[ResponsePair],
    judge: Judge,
    name: str,
    lines: JSONLFile,
    *,
    num_judgements: int,
    num_threads: int,
    seed: int,
) -> Judgements:
    """Return all judgements; those not yet in the file are made and appended.

    A judgement made in the other order under another seed is made again, so that both orders of a
    pair come equally often.
    """
    lines.cut_torn_line()
    turned = {
        (pair.key, index): way
        for pair in wanted
        for index, way in enumerate(orders(pair, num_judgements, seed))
    }
    judged = {
        (line["key"], line["draw"]): float(line["difference"])
        for line in lines.read()
        if line["judge"] == name and turned.get((line["key"], line["draw"])) == line["turned"]
    }
    parameters = inspect.signature(judge).parameters
    compare = partial(_compare, judge, takes_index="judgement_index" in parameters)
    missing = [
        (pair, index)
        for pair in wanted
        for index in range(num_judgements)
        if (pair.key, index) not in judged
    ]
    total = len(wanted) * num_judgements
    bar = tqdm(total=total, initial=total - len(missing), desc="judging", unit="judgement")
    with bar, ThreadPoolExecutor(num_threads) as pool:
        futures = {
            pool.submit(compare, pair, index, turned[pair.key, index]): (pair, index)
            for pair, index in missing
        }
        try:
            for future in as_completed(futures):
                pair, index = futures[future]
                difference = future.result()
                bar.update()
                if difference is None:
                    continue
                judged[pair.key, index] = difference
                record = {
                    "key": pair.key,
                    "draw": index,
                    "judge": name,
                    "uid": pair.uid,
                    "samples": list(pair.samples),
                    "turned": turned[pair.key, index],
                    "difference": difference,
                }
                lines.append([record])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {key: judged[key] for key in turned if key in judged}


def _compare(
    judge: Judge, pair: ResponsePair, index: int, turned: bool, *, takes_index: bool
) -> float | None:
    """Return the difference of first less second, in whichever order they are shown."""
    first, second = pair.scored_part[::-1] if turned else pair.scored_part
    options = {"judgement_index": index} if takes_index else {}
    difference = judge(pair.prompt, first, second, **options)
    if difference is None:
        return None
    if not isinstance(difference, int | float) or difference != difference:
        raise ValueError(f"judge: it returned {difference!r}, not a number or None")
    return float(-difference if turned else difference)


def _share_first(
    wanted: Sequence[ResponsePair], judged: Judgements, num_judgements: int, seed: int
) -> float | None:
    """Return how often the response shown first won, ties left out; 0.5 is unbiased."""
    firsts = []
    for pair in wanted:
        for index, turned in enumerate(orders(pair, num_judgements, seed)):
            difference = judged.get((pair.key, index))
            if difference:
                firsts.append((difference > 0) != turned)
    return sum(firsts) / len(firsts) if firsts else None


def _read(path: str) -> list[Record]:
    records = read_existing(Path(path), "responses")
    for number, record in enumerate(records, start=1):
        missing = [k for k in ("uid", "sample", "question", "response") if k not in record]
        if missing:
            raise ValueError(f"responses: {path}, line {number} has no {missing[0]!r}")
    return records


def _name(judge: Judge) -> str:
    own = getattr(judge, "name", None)
    return str(own or getattr(judge, "__qualname__", type(judge).__qualname__))


def parser() -> ArgumentParser:
    """Return the parser of the command's arguments."""
    made = ArgumentParser(
        prog="r1lit-pairs",
        description="Preference pairs from responses and a judge.",
        exit_on_error=False,
    )
    made.add_argument("-c", "--config", action="config")
    made.add_function_arguments(build_pairs)
    return made


def main(args: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the command; ``args`` is ``sys.argv[1:]`` if left out.

    Raises:
        ValueError: on bad input, an unknown key too.
    """
    given = instantiated(parser(), args)
    options = {key: value for key, value in vars(given).items() if key != "config"}
    card = build_pairs(**options)
    print(json.dumps(card, indent=1, ensure_ascii=False))
    return card


def run() -> None:
    """Run the console script."""
    run_script("r1lit-pairs", main)


if __name__ == "__main__":
    run()
