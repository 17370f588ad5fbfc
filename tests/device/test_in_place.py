"""Gradients added where they are made are those that autograd hands on."""

from __future__ import annotations

import pytest
import torch
from tiny_models import make_policy
from torch import Tensor

from r1lit.device.cpu.backend import in_place_gradients
from r1lit.policy import CrossEntropy, LogProbs, Policy, Responses
from r1lit.policy.support import enable_packed

PAD = 50
PROMPTS = [[1, PAD, 60, 70], [1, PAD, 60, 70], [1, 9, 8, 60]]
# tokens that come again, in prompts and responses
RESPONSE_BT = 3 + torch.arange(27).view(3, 9) * 41 % 97
MASK_BT = torch.arange(9) < torch.tensor([9, 4, 7])[:, None]


def policy_of(kind: str) -> Policy:
    policy = make_policy("gemma2" if kind == "scaled" else "llama")
    if kind != "scaled":
        assert enable_packed(policy) is None
    if kind == "tied":
        policy.model.lm_head.weight = policy.model.model.embed_tokens.weight
    if kind == "padding":
        policy.model.model.embed_tokens.padding_idx = PAD
    if kind == "frozen":
        policy.model.model.embed_tokens.weight.requires_grad_(False)
        policy.model.lm_head.weight.requires_grad_(False)
    return policy


def loss_of(policy: Policy, kind: str, rows: slice) -> Tensor:
    responses = Responses(
        prompts=PROMPTS[rows], response_BT=RESPONSE_BT[rows], mask_BT=MASK_BT[rows]
    )
    if kind == "cross_entropy":
        return policy(responses, CrossEntropy()).cross_entropy / 3
    logp_K = policy(responses, LogProbs(temperature=0.7)).logp_K
    return (logp_K * torch.linspace(-1, 2, len(logp_K))).sum()


def gradients(policy: Policy, kind: str, parts: list[slice], in_place: bool) -> dict[str, Tensor]:
    policy.zero_grad()
    for part in parts:
        with in_place_gradients(in_place):
            loss_of(policy, kind, part).backward()
    return {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", ["logp", "cross_entropy"])
@pytest.mark.parametrize("policy", ["tied", "untied", "padding", "frozen", "scaled"])
def test_one_backward_pass_gives_the_same_bits(policy, kind):
    policy = policy_of(policy)
    expected = gradients(policy, kind, [slice(None)], in_place=False)
    found = gradients(policy, kind, [slice(None)], in_place=True)
    assert found.keys() == expected.keys() and expected
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient), name


@pytest.mark.parametrize("kind", ["logp", "cross_entropy"])
@pytest.mark.parametrize("policy", ["tied", "untied"])
def test_several_add_up(policy, kind):
    policy = policy_of(policy)
    parts = [slice(0, 2), slice(2, 3)]
    expected = gradients(policy, kind, parts, in_place=False)
    found = gradients(policy, kind, parts, in_place=True)
    for name, gradient in expected.items():
        size = float(gradient.abs().max())
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-6 * size)


def test_no_gradient_of_the_whole_weight_is_handed_on():
    policy = policy_of("tied")
    handed = []
    policy.model.lm_head.weight.register_hook(lambda gradient: handed.append(gradient is not None))
    gradients(policy, "logp", [slice(None)], in_place=True)
    assert not any(handed)
    handed.clear()
    gradients(policy, "logp", [slice(None)], in_place=False)
    assert any(handed)


def test_outside_autograd_is_given_them():
    policy = policy_of("tied")
    with in_place_gradients():
        pass
    weight = policy.model.lm_head.weight
    (gradient,) = torch.autograd.grad(loss_of(policy, "logp", slice(None)), [weight])
    assert gradient.abs().sum() > 0 and weight.grad is None
