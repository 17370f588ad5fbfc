from __future__ import annotations

import pytest
import torch
from tiny_models import ARCHITECTURES, SOFTMAX_ATTENTION, make_policy

from r1lit.policy import response_logits

PROMPTS = [[1, 50, 60, 70], [1, 51], [1, 9, 8, 7, 66, 55, 44]]
RESPONSE_BT = torch.tensor([[10, 20, 30], [40, 50, 2], [70, 2, 0]])


@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.no_grad()
def test_a_row_s_logits_are_those_it_has_alone(name):
    policy = make_policy(name)
    logits_BTV = response_logits(policy, PROMPTS, RESPONSE_BT, 0.5).logits_BTV
    for row, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt + RESPONSE_BT[row].tolist()])
        alone_TV = policy(ids).logits[0, len(prompt) - 1 : -1] / 0.5
        assert torch.allclose(logits_BTV[row], alone_TV, atol=1e-4)
    assert logits_BTV.dtype == torch.float32


@torch.no_grad()
def test_logp_is_log_softmax_and_prompts_of_one_length_agree():
    policy = make_policy("qwen2")
    same = [prompt[:2] for prompt in PROMPTS]
    logits = response_logits(policy, same, RESPONSE_BT, 1.0)
    log_softmax = logits.logits_BTV.log_softmax(-1).gather(-1, RESPONSE_BT[..., None])[..., 0]
    assert torch.allclose(logits.logp_BT(RESPONSE_BT), log_softmax, atol=1e-5)
    mixed = response_logits(policy, [*same, [1, *range(9, 30)]],
                            torch.cat([RESPONSE_BT, RESPONSE_BT[:1]]), 1.0)  # fmt: skip
    assert torch.allclose(mixed.logits_BTV[:3], logits.logits_BTV, atol=1e-4)


def test_gradients_flow_from_every_response_token_and_from_nothing_behind_it():
    policy = make_policy("llama")
    logits = response_logits(policy, PROMPTS, RESPONSE_BT, 1.0)
    embedding = policy.get_input_embeddings().weight
    (gradient,) = torch.autograd.grad(logits.logp_BT(RESPONSE_BT)[2, 0], embedding)
    moved = set(gradient.abs().sum(-1).nonzero().flatten().tolist())
    assert moved == set(PROMPTS[2])


@pytest.mark.parametrize("name", SOFTMAX_ATTENTION)
@torch.no_grad()
def test_restarting_positions_keep_packed_documents_apart(name):
    policy = make_policy(name)
    documents = [[1, 20, 30, 40, 50, 60, 70, 80], [1, 99, 98, 97], [1, 5, 6, 7, 8, 9, 10, 11, 12]]
    row = torch.tensor([[token for document in documents for token in document]])
    positions = torch.tensor([[i for document in documents for i in range(len(document))]])
    alone = torch.cat([policy(torch.tensor([d]), use_cache=False).logits[0] for d in documents])
    packed = policy(row, position_ids=positions, use_cache=False).logits[0]
    assert torch.allclose(packed, alone, atol=1e-4)
    # a row of one document beside a packed row, as batches mix them
    whole = torch.arange(row.shape[1])[None]
    both = policy(row.repeat(2, 1), position_ids=torch.cat([positions, whole]), use_cache=False)
    assert torch.allclose(both.logits[0], alone, atol=1e-4)
    one_document = policy(row, use_cache=False).logits[0]
    assert torch.allclose(both.logits[1], one_document, atol=1e-4)
    assert not torch.allclose(one_document, alone, atol=0.1)
