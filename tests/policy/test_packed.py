"""The layout of packed tokens, counted by hand, and the ways into and out of the rows."""

from __future__ import annotations

import pytest
import torch

from r1lit.policy.packed import (
    AttentionRows,
    FromRows,
    PackedTokens,
    ToRows,
    pack_responses,
    pack_tokens,
)

P, A, B, C = ([7, 8], [1, 2, 3], [4], [5, 6])


def pack(segments: list[list[int]], rows: list[list[int]]) -> PackedTokens:
    return pack_tokens([torch.tensor(segment) for segment in segments], rows)


def rows_of(packed: PackedTokens, rows: AttentionRows) -> list[list[list[int]]]:
    """The token ids of each bucket's rows, padding included."""
    flat = packed.ids_N[rows.index_F]
    sizes = [num_rows * width for num_rows, width in rows.bucket_shapes]
    return [
        bucket.view(shape).tolist()
        for bucket, shape in zip(flat.split(sizes), rows.bucket_shapes, strict=True)
    ]


def test_the_docstring_s_example():
    packed = pack([P, A, B], [[0, 1], [0, 2]])
    rows = packed.in_buckets
    assert len(packed) == 6
    assert packed.ids_N.tolist() == [7, 8, 1, 2, 3, 4]
    assert packed.position_N.tolist() == [0, 1, 2, 3, 4, 2]
    # 3 tokens fill less than 0.8 of 5 slots: two buckets, and no padding
    assert rows.bucket_shapes == ((1, 5), (1, 3))
    assert rows.index_F.tolist() == [0, 1, 2, 3, 4, 0, 1, 5]
    assert rows.owner_N.tolist() == [0, 1, 2, 3, 4, 7]
    assert rows.shared_M.tolist() == [0, 1]
    assert rows.copies_MC.tolist() == [[0, 5], [1, 6]]


def test_rows_of_like_length_share_a_bucket_longest_first():
    packed = pack([P, C, A], [[0, 1], [0, 2]])  # 4 tokens, then 5: 4 fill 0.8 of 5 slots
    rows = packed.in_buckets
    assert rows.bucket_shapes == ((2, 5),)
    assert rows.index_F.tolist() == [0, 1, 4, 5, 6, 0, 1, 2, 3, 0]  # the padding is token 0
    assert rows.owner_N.tolist() == [0, 1, 7, 8, 2, 3, 4]
    assert rows.copies_MC.tolist() == [[0, 5], [1, 6]]


def test_the_padding_is_nobody_s_slot():
    packed = pack([P, C, A], [[0, 1], [0, 2]])
    rows = packed.in_buckets
    padding = 9
    assert padding not in rows.owner_N.tolist()
    assert padding not in rows.copies_MC.flatten().tolist()


def test_prompts_shared_by_different_numbers_of_rows():
    packed = pack([P, [9], A, B, C, A, B], [[0, 2], [1, 5], [0, 3], [1, 6], [0, 4]])
    rows = packed.in_buckets
    num_slots = len(rows.index_F)
    assert rows.shared_M.tolist() == [0, 1, 2]
    assert rows.copies_MC.shape == (3, 3)
    assert [row.count(num_slots) for row in rows.copies_MC.tolist()] == [0, 0, 1]
    for token, copies in zip(rows.shared_M.tolist(), rows.copies_MC.tolist(), strict=True):
        assert {int(rows.index_F[c]) for c in copies if c < num_slots} == {token}
    assert packed.position_N.tolist() == [0, 1, 0, 2, 3, 4, 2, 2, 3, 1, 2, 3, 1]
    # the padding of a row is the first packed token, 7
    assert rows_of(packed, rows) == [
        [[7, 8, 1, 2, 3], [9, 1, 2, 3, 7], [7, 8, 5, 6, 7]], [[7, 8, 4]], [[9, 4]]
    ]  # fmt: skip


def test_one_row_of_one_token():
    packed = pack([[9]], [[0]])
    rows = packed.in_buckets
    assert (rows.bucket_shapes, rows.index_F.tolist()) == (((1, 1),), [0])
    assert rows.shared_M.shape == (0,) and len(rows.copies_MC) == 0
    token_NE = torch.randn(1, 3, requires_grad=True)
    ToRows.apply(token_NE, rows).sum().backward()
    assert token_NE.grad.tolist() == [[1.0] * 3]


def test_every_row_fills_most_of_its_bucket():
    lengths = [3, 100, 57, 81, 80, 1, 64, 79, 58, 2]
    packed = pack([[row] * n for row, n in enumerate(lengths)], [[row] for row in range(10)])
    rows = packed.in_buckets
    assert rows.bucket_shapes == ((3, 100), (2, 79), (2, 58), (1, 3), (1, 2), (1, 1))
    by_length = iter(sorted(lengths, reverse=True))
    for num_rows, width in rows.bucket_shapes:
        held = [next(by_length) for _ in range(num_rows)]
        assert held[0] == width and held[-1] >= 0.8 * width
    padding = len(rows.index_F) - sum(lengths)
    assert padding < 0.25 * sum(lengths)


def test_end_to_end_there_is_no_padding():
    packed = pack([P, C, A], [[0, 1], [0, 2]])
    rows = packed.end_to_end
    assert rows_of(packed, rows) == [[[7, 8, 1, 2, 3]], [[7, 8, 5, 6]]]
    assert rows.start_R1.tolist() == [0, 5, 9] and rows.start_R1.dtype == torch.int32
    assert len(rows.index_F) == 9


@pytest.mark.parametrize("kind", ["in_buckets", "end_to_end"])
def test_gradients_of_the_way_in_and_out_are_those_of_indexing(kind):
    packed = pack([P, [9], A, B, C, A, B], [[0, 2], [1, 5], [0, 3], [1, 6], [0, 4]])
    rows = getattr(packed, kind)
    token_NE = torch.randn(len(packed), 3, dtype=torch.float64, requires_grad=True)
    rows_FE = ToRows.apply(token_NE, rows)
    assert torch.equal(rows_FE, token_NE[rows.index_F])
    # what is said of the padding must not count: its gradient is 0 in a model, so it is here
    real_F = torch.zeros(len(rows.index_F), dtype=torch.bool)
    real_F[rows.owner_N] = True
    real_F[rows.copies_MC[rows.copies_MC < len(real_F)]] = True
    weight_FE = torch.randn_like(rows_FE) * real_F[:, None]
    (found,) = torch.autograd.grad((rows_FE * weight_FE).sum(), token_NE)
    (expected,) = torch.autograd.grad((token_NE[rows.index_F] * weight_FE).sum(), token_NE)
    torch.testing.assert_close(found, expected)

    slot_FE = torch.randn_like(rows_FE, requires_grad=True)
    back_NE = FromRows.apply(slot_FE, rows)
    assert torch.equal(back_NE, slot_FE[rows.owner_N])
    weight_NE = torch.randn_like(back_NE)
    (found,) = torch.autograd.grad((back_NE * weight_NE).sum(), slot_FE)
    (expected,) = torch.autograd.grad((slot_FE[rows.owner_N] * weight_NE).sum(), slot_FE)
    torch.testing.assert_close(found, expected)
    assert torch.equal(FromRows.apply(ToRows.apply(token_NE, rows), rows), token_NE)


def test_responses_are_packed_without_their_last_token_and_prompts_once():
    prompts = [P, [9, 9, 9], P, P]
    response_BT = torch.tensor([[1, 2, 3], [4, 5, 0], [6, 0, 0], [1, 2, 3]])
    mask_BT = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()
    packed, predictor_K, target_K = pack_responses(prompts, response_BT, mask_BT)
    rows = packed.in_buckets
    # the prompts, then each response but its last token; equal responses are packed twice
    assert packed.ids_N.tolist() == [7, 8, 9, 9, 9, 1, 2, 4, 1, 2]
    assert packed.position_N.tolist() == [0, 1, 0, 1, 2, 2, 3, 3, 2, 3]
    assert predictor_K.tolist() == [1, 5, 6, 4, 7, 1, 1, 8, 9]
    assert target_K.tolist() == [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert [shape[0] for shape in rows.bucket_shapes] == [3, 1]  # widths 4, 4, 4 and 2
    assert rows.shared_M.tolist() == [0, 1]


def test_only_single_token_responses():
    response_BT, mask_BT = torch.tensor([[3], [4]]), torch.ones(2, 1, dtype=torch.bool)
    packed, predictor_K, target_K = pack_responses([P, P], response_BT, mask_BT)
    assert packed.ids_N.tolist() == P
    assert (predictor_K.tolist(), target_K.tolist()) == ([1, 1], [3, 4])
