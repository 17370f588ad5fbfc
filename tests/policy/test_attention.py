"""Packed tokens, and attention over them and over caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import make_policy
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from r1lit import device
from r1lit.device import Backend, backend
from r1lit.policy import Policy, Responses, is_packed
from r1lit.policy.attention import (
    AttentionRows,
    FromRows,
    PackedTokens,
    ToRows,
    attend_cached,
    pack_responses,
    pack_tokens,
)
from r1lit.policy.block_attention import CachedLayer
from r1lit.policy.support import enable_packed

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


RESPONSES = Responses(
    prompts=[[5, 6, 7, 8], [5, 6, 7, 8], [9, 10], [9]],
    response_BT=torch.tensor([[11, 12, 13], [14, 15, 0], [16, 0, 0], [3, 4, 5]]),
    mask_BT=torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool(),
)


class RowByRow(Backend):
    """A backend's varlen attention, for CPUs: PyTorch's own attention, one row after another."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], int]] = []

    def attends_end_to_end(self, query: Tensor, value: Tensor, dropout: float) -> bool:
        return True

    def varlen_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        start_R1: Tensor,
        longest: int,
        scaling: float,
    ) -> Tensor:
        self.calls.append((start_R1.tolist(), longest))
        lengths = start_R1.diff().tolist()
        rows = zip(*(x.transpose(0, 1).split(lengths, 1) for x in (query, key, value)), strict=True)
        outputs = [
            scaled_dot_product_attention(*row, is_causal=True, scale=scaling, enable_gqa=True)
            for row in rows
        ]
        return torch.cat(outputs, 1).transpose(0, 1)


def results(policy: Policy) -> tuple[Tensor, list[Tensor]]:
    """Log-probs of the responses, and the gradient of their sum."""
    policy.zero_grad()
    logp_K = policy(RESPONSES).logp_K
    assert logp_K is not None
    logp_K.sum().backward()
    return logp_K.detach(), [p.grad.clone() for p in policy.parameters() if p.grad is not None]


@pytest.fixture(params=["llama", "qwen3", "gpt2"])
def policy(request: Any) -> Policy:
    made = make_policy(request.param, torch.float64)
    assert enable_packed(made) is None and is_packed(made)
    return made.eval()


def test_end_to_end_is_in_buckets(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    expected_K, expected = results(policy)
    own = RowByRow()
    monkeypatch.setitem(device.BACKENDS, "cpu", own)
    found_K, found = results(policy)
    # longest first: 4 + 2, 4 + 1, 1 + 2 and 2 + 0 tokens, the prompt of two rows in both
    assert set(map(str, own.calls)) == {"([0, 6, 11, 14, 16], 6)"}
    torch.testing.assert_close(found_K, expected_K, rtol=1e-8, atol=1e-10)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernels_of_cuda(policy: Policy) -> None:
    expected_K, _ = results(policy)
    policy.to("cuda", torch.bfloat16)
    on_gpu = Responses(
        prompts=RESPONSES.prompts,
        response_BT=RESPONSES.response_BT.cuda(),
        mask_BT=RESPONSES.mask_BT.cuda(),
    )
    found_K = policy(on_gpu).logp_K
    assert found_K is not None
    torch.testing.assert_close(found_K.double().cpu(), expected_K, rtol=0.05, atol=0.05)


CPU = backend(torch.device("cpu"))
PROMPT_R = torch.tensor([0, 0, 0, 1, 2, 2])
LENGTH_P = torch.tensor([5, 0, 17])  # of a prompt of one token nothing lies here
ROW_PG = torch.tensor([0, 1, 2, 3, 0, 0, 4, 5, 0])
SLOT_R = torch.tensor([0, 1, 2, 3, 6, 7])


def make(dtype: torch.dtype, per_key: int, size: int, own: int, room: int):
    torch.manual_seed(0)
    rows, keys = len(PROMPT_R), 2
    query = torch.randn(rows, keys * per_key, 1, size)
    key, value = torch.randn(2, rows, keys, 1, size)
    prompt_key, prompt_value = torch.randn(2, len(LENGTH_P), keys, 17, size).to(dtype)
    own_key, own_value = torch.randn(2, rows, keys, room, size).to(dtype)
    return (
        (query, key, value),
        (prompt_key, prompt_value, LENGTH_P),
        (own_key[:, :, :own], own_value[:, :, :own]),
    )


def plainly(states, prompt, own, scaling: float) -> torch.Tensor:
    """Each row for itself: its prompt, its past and the new token, one softmax."""
    (query, key, value), (prompt_key, prompt_value, length_P), (own_key, own_value) = (
        [x.double() for x in part] for part in (states, prompt, own)
    )
    outputs = []
    for row, p in enumerate(PROMPT_R.tolist()):
        length = int(length_P[p])
        keys = torch.cat([prompt_key[p, :, :length], own_key[row, :, :-1], key[row]], 1)
        values = torch.cat([prompt_value[p, :, :length], own_value[row, :, :-1], value[row]], 1)
        per_key = query.shape[1] // keys.shape[0]
        keys, values = (x.repeat_interleave(per_key, 0) for x in (keys, values))
        weights = (query[row] @ keys.transpose(-1, -2) * scaling).softmax(-1)
        outputs.append((weights @ values).transpose(0, 1))
    return torch.stack(outputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("per_key", "size", "own", "room"),
    [(1, 48, 3, 64), (4, 64, 70, 128), (2, 40, 16, 64), (1, 256, 1, 64), (3, 128, 130, 192)],
)
@pytest.mark.parametrize("in_one_loop", [True, False])
def test_it_is_attention_over_prompt_and_past(dtype, per_key, size, own, room, in_one_loop):
    if in_one_loop and not CPU.attends_to_caches(dtype):
        pytest.skip("no C++ compiler here")
    states, prompt, past = make(dtype, per_key, size, own, room)
    expected = plainly(states, prompt, past, 0.3)
    slots = (None, None) if in_one_loop else (ROW_PG, SLOT_R)
    result = attend_cached(*states, CachedLayer(*prompt, *past, PROMPT_R, *slots), 0.3)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
    _, key, value = states
    assert torch.equal(past[0][:, :, -1], key[:, :, 0].to(dtype))
    assert torch.equal(past[1][:, :, -1], value[:, :, 0].to(dtype))


def test_scores_far_apart_neither_overflow_nor_vanish():
    if not CPU.attends_to_caches(torch.float32):
        pytest.skip("no C++ compiler here")
    states, prompt, past = make(torch.float32, 1, 32, 9, 64)
    states = (states[0] * 300, *states[1:])
    expected = plainly(states, prompt, past, 1.0)
    result = attend_cached(*states, CachedLayer(*prompt, *past, PROMPT_R, None, None), 1.0)
    torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-3)


def test_other_dtypes_and_devices_keep_to_pytorch():
    assert not CPU.attends_to_caches(torch.float16)
    assert not backend(torch.device("cuda")).attends_to_caches(torch.bfloat16)
