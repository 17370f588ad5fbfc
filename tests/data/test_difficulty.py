"""Prompts chosen by running pass rate: weights, rests, shares of sources, and resumed runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from metrics_page import assert_documented
from tiny import data, grpo_config, merge, metrics, model

from r1lit.batches import Problem
from r1lit.cli import main
from r1lit.data.difficulty import Difficulty, DifficultySampler, Record

NOVAL = {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}


def sampler_of(size: int = 8, count: int = 4, seed: int = 0, **options: Any) -> DifficultySampler:
    problems = [
        Problem(uid=str(k), question=str(k), answer="1", source="odd" if k % 2 else "even")
        for k in range(size)
    ]
    return DifficultySampler(problems, {0: size}, count, seed, Difficulty(**options))


def drawn(sampler: DifficultySampler, batches: int, right: dict[str, int]) -> list[list[str]]:
    """Take batches whose problem k has ``right[k]`` of 4 responses right (2 where none is said)."""
    found = []
    for i in range(sampler.num_learnt, sampler.num_learnt + batches):
        found.append([str(k) for k in sampler.indices(i)])
        sampler.learn(i, {uid: (right.get(uid, 2), 4) for uid in found[-1]})
    return found


def test_solved_and_hopeless_problems_rest_and_are_tried_again() -> None:
    sampler = sampler_of(size=4, count=2, retire_after=2, retry_after=3)
    right = {"0": 0, "1": 4}
    visits: dict[str, list[int]] = {uid: [] for uid in "0123"}
    for i in range(40):
        batch = [str(k) for k in sampler.indices(i)]
        assert len(set(batch)) == 2
        for uid in batch:
            visits[uid].append(i)
        logged = sampler.learn(i, {uid: (right.get(uid, 2), 4) for uid in batch})
    assert logged["train/difficulty/num_solved"] <= 1 >= logged["train/difficulty/num_hopeless"]
    for uid in "01":  # two visits, and then each retry ends in another rest of three iterations
        assert len(visits[uid]) > 3
        assert all(b - a > 3 for a, b in zip(visits[uid][1:], visits[uid][2:], strict=False))
    assert min(len(visits[uid]) for uid in "23") > max(len(visits[uid]) for uid in "01")
    right["0"] = 2  # hopeless no more
    drawn(sampler, 12, right)
    assert sampler.records["0"].streak == 0 and sampler.pool("0") == "medium"


def test_running_rate_by_hand() -> None:
    sampler = sampler_of(size=2, count=1, memory=0.5)
    for share in (1.0, 0.5, 0.0):  # 1, then 0.75, then 0.375
        sampler._record("0", 0, share)
    assert sampler.records["0"] == Record(0.375, streak=-1, rests_until=0)
    assert sampler.pool("0") == "medium" and sampler.pool("1") == "new"


def test_weights_decide_how_often() -> None:
    weights = {"new": 1.0, "hard": 0.0, "medium": 1.0, "easy": 3.0}
    counts: Counter[str] = Counter()
    for seed in range(2000):
        sampler = sampler_of(size=3, count=1, seed=seed, weights=weights)
        sampler.records = {"0": Record(0.1), "1": Record(0.5), "2": Record(0.9)}
        counts.update(map(str, sampler.indices(0)))
    assert counts["0"] == 0 and counts["2"] / counts["1"] == pytest.approx(3, rel=0.2)


@pytest.mark.parametrize(("share", "count"), [(0.75, 4), (0.6, 5), (0.5, 3)])
def test_sources_have_their_shares(share: float, count: int) -> None:
    sampler = sampler_of(size=40, count=count, sources={"odd": share, "even": 1 - share})
    batches = drawn(sampler, 200, {})
    odd = [sum(int(uid) % 2 for uid in batch) for batch in batches]
    assert sum(odd) / (200 * count) == pytest.approx(share, abs=0.02)
    assert all(abs(number - share * count) < 1 for number in odd)


def test_who_rests_fills_a_batch_that_has_no_others() -> None:
    sampler = sampler_of(size=4, count=4, retire_after=1, retry_after=9)
    assert all(len(set(batch)) == 4 for batch in drawn(sampler, 3, dict.fromkeys("0123", 0)))


def test_a_state_goes_on_as_the_run_would_have() -> None:
    whole, again = sampler_of(), sampler_of()
    right = {"0": 0, "1": 4, "2": 1}
    drawn(whole, 5, right)
    state = json.loads(json.dumps(whole.state_dict()))
    rest = drawn(whole, 10, right)
    again.load_state_dict(state)
    assert drawn(again, 10, right) == rest
    with pytest.raises(ValueError, match=r"data\.difficulty: the prompts of iteration 17"):
        again.indices(17)


@pytest.mark.long
def test_a_run_is_resumed_to_the_bit(tmp_path: Path, policy: Path) -> None:
    change = merge(
        merge(NOVAL, data(difficulty={"retire_after": 1, "retry_after": 2}, num_iterations=5)),
        model(collector={"class_path": "r1lit.collect.DynamicSampling"}),
    )
    change = merge(change, data(rollout={"num_reserve_prompts": 4}))
    main(["fit", "-c", str(grpo_config(tmp_path / "whole", policy, change))])
    half = grpo_config(tmp_path / "half", policy, merge(change, data(num_iterations=2)))
    main(["fit", "-c", str(half)])
    whole_again = grpo_config(tmp_path / "half", policy, change)
    main(["fit", "-c", str(whole_again), "--ckpt_path", "last"])
    rows = [
        [
            {k: v for k, v in row.items() if k.startswith("train/")}
            for row in metrics(tmp_path / run)
        ]
        for run in ("whole", "half")
    ]
    assert len(rows[0]) == 5 and rows[0] == rows[1]
    assert_documented(set(rows[0][0]))
    # an untrained policy solves nothing, so that all that were tried rest
    assert rows[0][0]["train/difficulty/new"] == 1.0
    assert rows[0][0]["train/difficulty/num_hopeless"] >= 4
    assert all(row["train/difficulty/num_hopeless"] > 0 for row in rows[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": {"new": 1.0}}, "weights: .* new, hard, medium, easy"),
        ({"hard": 0.8, "easy": 0.2}, r"hard: 0\.8 and easy: 0\.2"),
        ({"memory": 1.0}, r"memory: 1\.0 is not in"),
        ({"retire_after": 0}, "retire_after: 0"),
        ({"sources": {"odd": 0.5}}, r"sources: \['odd'\] are not the sources"),
        ({"sources": {"odd": 0.5, "even": 0.0}}, "sources: .* above 0"),
    ],
)
def test_bad_input(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sampler_of(**options)


def test_too_few_problems_and_staleness_are_refused() -> None:
    with pytest.raises(ValueError, match=r"an iteration takes 9 problems, and data\.train has 8"):
        sampler_of(count=9)
    with pytest.raises(ValueError, match=r"not by r1lit\.collect\.Ahead"):
        sampler_of().indices(1)
