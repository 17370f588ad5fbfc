"""Attention over rows end to end: the same log-probs and gradients as in padded buckets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import make_policy
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from r1lit import device
from r1lit.device import Backend
from r1lit.policy import Policy, Responses, is_packed
from r1lit.policy.support import enable_packed

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
