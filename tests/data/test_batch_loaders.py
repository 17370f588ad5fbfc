from __future__ import annotations

import numpy as np
import pytest
import torch

from r1lit.batches import Problem
from r1lit.data.loaders import (
    FixedSampler,
    GrowingSampler,
    PromptLoader,
    RowLoader,
    ShuffledSampler,
    shard,
)
from r1lit.data.packing import EncodedDocument, pack


def problems(size):
    return [Problem(uid=f"u{i}", question=f"q{i}", answer="1", source="t") for i in range(size)]


def prompt_loader(size=10, count=3, seed=5, *, reserve=0, offset=0, order=None, **options):
    return PromptLoader(
        problems(size + offset)[offset:],
        [(i,) for i in range(offset, size + offset)],
        order or ShuffledSampler(size, count + reserve, seed),
        group_size=4,
        num_reserve=reserve,
        **options,
    )


def row_loader(seed=5, count=4, order=None, **options):
    documents = [
        EncodedDocument(tokens=np.arange(i, i + 2 + i % 5, dtype=np.int32), num_prompt_tokens=1)
        for i in range(60)
    ]
    rows = pack([len(d) for d in documents], 12)
    return RowLoader(
        documents,
        rows,
        order(len(rows)) if order else ShuffledSampler(len(rows), count, seed),
        max_seq_len=12,
        pad_id=0,
        loss_on="all",
        **options,
    )


def uids(batch):
    return [p.uid for p in batch.problems]


def test_batch_i_depends_on_the_seed_and_i_alone():
    forwards, backwards = prompt_loader(), prompt_loader()
    expected = [uids(forwards.batch(i)) for i in range(20)]
    assert [uids(backwards.batch(i)) for i in reversed(range(20))] == expected[::-1]
    assert [uids(prompt_loader(seed=6).batch(i)) for i in range(20)] != expected
    assert [forwards.batch(i).iteration for i in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(("size", "count"), [(10, 3), (12, 4), (7, 7), (5, 8), (1, 2)])
def test_no_problem_repeats_within_a_pass_though_batches_span_passes(size, count):
    loader = prompt_loader(size, count)
    drawn = [uid for i in range(3 * size) for uid in uids(loader.batch(i))]
    passes = [drawn[start : start + size] for start in range(0, len(drawn), size)]
    assert len(passes) == 3 * count
    assert all(sorted(p) == sorted(f"u{i}" for i in range(size)) for p in passes)
    if size > 4:
        assert passes[0] != passes[1] != passes[2]


def test_items_that_come_late_are_drawn_from_then_on_and_as_often_as_any_other():
    grown = prompt_loader(10, order=GrowingSampler({0: 6, 4: 10}, 3, seed=5))
    early = [uid for i in range(4) for uid in uids(grown.batch(i))]
    assert sorted(early) == sorted([f"u{i}" for i in range(6)] * 2)
    late = [uid for i in range(4, 14) for uid in uids(grown.batch(i))]
    for start in (0, 10, 20):
        assert sorted(late[start : start + 10]) == sorted(f"u{i}" for i in range(10))
    again = prompt_loader(10, order=GrowingSampler({0: 6, 4: 10}, 3, seed=5))
    assert [uids(again.batch(i)) for i in (9, 2, 4)] == [uids(grown.batch(i)) for i in (9, 2, 4)]


def test_items_that_are_all_there_from_the_start_are_drawn_as_ever():
    grown = prompt_loader(order=GrowingSampler({0: 10}, 3, seed=5))
    assert [uids(grown.batch(i)) for i in range(9)] == [
        uids(prompt_loader().batch(i)) for i in range(9)
    ]
    assert grown.resume_key == prompt_loader().resume_key and len(grown) == len(prompt_loader())


def test_prompts_go_with_their_problems():
    batch = prompt_loader().batch(2)
    assert [f"u{prompt[0]}" for prompt in batch.prompts] == uids(batch)
    assert (batch.group_size, batch.num_prompts) == (4, 3)


def test_the_length_is_one_pass_or_what_is_asked_for():
    assert len(prompt_loader(10, 3)) == 3
    assert len(prompt_loader(2, 3)) == 1
    assert len(prompt_loader(10, 3, num_batches=50)) == 50
    assert [b.iteration for b in prompt_loader(10, 3)] == [0, 1, 2]


def test_the_next_epoch_continues():
    loader = prompt_loader()
    iterations = [b.iteration for _ in range(3) for b in loader]
    assert iterations == list(range(9))


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
def test_shares_of_all_processes_make_the_batch(world_size):
    options = {"size": 30, "count": 12, "reserve": 6}
    whole = prompt_loader(**options).batch(4)
    parts = [
        prompt_loader(**options, rank=r, world_size=world_size).batch(4) for r in range(world_size)
    ]
    assert {(p.num_prompts, len(p.problems)) for p in parts} == {
        (12 // world_size, 18 // world_size)
    }
    rolled_out = [uid for p in parts for uid in uids(p)[: p.num_prompts]]
    reserve = [uid for p in parts for uid in uids(p)[p.num_prompts :]]
    assert rolled_out == uids(whole)[:12]
    assert reserve == uids(whole)[12:]


def test_what_does_not_divide_among_processes_is_named():
    with pytest.raises(ValueError, match=r"^data.rollout.prompts_per_iteration: 3 does not.* 2 "):
        prompt_loader(count=3, rank=0, world_size=2)
    with pytest.raises(ValueError, match=r"^data.rollout.num_reserve_prompts: 1 does not.* 2 "):
        prompt_loader(count=4, reserve=1, rank=0, world_size=2)
    with pytest.raises(ValueError, match=r"^data.packing.train_batch_size: 4 does not.* 3 "):
        row_loader(count=4, rank=0, world_size=3)


@pytest.mark.parametrize("size", [1, 5, 64, 65, 500])
@pytest.mark.parametrize("world_size", [1, 3])
def test_validation_takes_every_problem_once_in_order(size, world_size):
    if size < world_size:
        with pytest.raises(ValueError, match="are too few for 3 processes"):
            FixedSampler(size, 64, world_size)
        return
    loaders = [
        prompt_loader(size, order=FixedSampler(size, 64, world_size), rank=r, world_size=world_size)
        for r in range(world_size)
    ]
    assert len({len(loader) for loader in loaders}) == 1
    for _ in range(2):
        batches = list(zip(*loaders, strict=True))
        assert [b.iteration for b, *_ in batches] == list(range(len(loaders[0])))
        seen = [uid for parts in batches for part in parts for uid in uids(part)]
        assert seen == [f"u{i}" for i in range(size)]


def test_validation_batches_hold_no_more_than_asked():
    sizes = [len(FixedSampler(500, 64).indices(i)) for i in range(8)]
    assert sum(sizes) == 500 and max(sizes) <= 64 and min(sizes) >= 62


def test_share_is_contiguous():
    assert [list(shard(range(7), r, 3)) for r in range(3)] == [[0, 1], [2, 3], [4, 5, 6]]


@pytest.mark.parametrize("make", [prompt_loader, row_loader])
def test_a_loaded_state_continues_behind_the_last_batch_yielded(make):
    loader = make(num_batches=6)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    assert loader.state_dict()["num_yielded"] == 4
    resumed = make(num_batches=6)
    resumed.load_state_dict(loader.state_dict())
    assert next(iter(resumed)).iteration == next(iterator).iteration == 4


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"seed": 6}, "seed was 5 and is 6"),
        ({"count": 4}, "items_per_batch was 3 and is 4"),
        ({"offset": 1}, "data was"),
        ({"count": 2, "reserve": 1}, "num_reserve_prompts was 0 and is 1"),
    ],
)
def test_the_state_of_another_run_is_refused(other, key):
    state = prompt_loader().state_dict()
    with pytest.raises(ValueError, match=rf"^ckpt_path: .*{key}"):
        prompt_loader(**other).load_state_dict(state)


def test_the_state_does_not_depend_on_the_number_of_processes():
    state = prompt_loader(count=4, rank=0, world_size=2).state_dict()
    assert state == prompt_loader(count=4).state_dict()


def test_rows_of_a_pass_come_once_and_ranks_share_them():
    loader = row_loader()
    num_rows = len(loader.rows)
    halves = [row_loader(rank=r, world_size=2) for r in range(2)]
    drawn = []
    for i in range(num_rows):
        batch = loader.batch(i)
        assert batch.iteration == i and batch.input_ids_RL.shape == (4, 12)
        parts = torch.cat([half.batch(i).input_ids_RL for half in halves])
        assert torch.equal(parts, batch.input_ids_RL)
        drawn += [tuple(row) for row in batch.input_ids_RL.tolist()]
    passes = [sorted(drawn[k : k + num_rows]) for k in range(0, len(drawn), num_rows)]
    assert all(p == passes[0] for p in passes)
    assert len(set(passes[0])) == num_rows
    assert drawn[:num_rows] != drawn[num_rows : 2 * num_rows]


def test_rows_to_validate_on_come_in_order_every_time():
    loader = row_loader(order=lambda size: FixedSampler(size, 4))
    once, again = ([b.input_ids_RL for b in loader] for _ in range(2))
    assert torch.equal(torch.cat(once), torch.cat(again))
    assert len(torch.cat(once)) == len(loader.rows)
