"""What training computes on the device that is there, compared with Hugging Face's own forward.

``pytest -m gpu`` runs this file and the like on a GPU, and on a CPU where there is none.
"""

from __future__ import annotations

import pytest
import torch
from tiny_models import SOFTMAX_ATTENTION, make_policy
from torch import Tensor

from r1lit.policy import LogProbs, Policy, Responses
from r1lit.policy.support import enable_packed

pytestmark = pytest.mark.gpu

DEVICE = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
PROMPTS = [[1, 50, 60, 70, 80], [1, 51], [1, 50, 60, 70, 80], [1, 9, 8]]
RESPONSE_BT = 3 + torch.arange(28, device=DEVICE).view(4, 7) * 41 % 200
LENGTHS = [7, 1, 4, 6]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.08}


def packed(policy: Policy) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of all responses, in one pass."""
    mask_BT = torch.arange(7, device=DEVICE) < torch.tensor(LENGTHS, device=DEVICE)[:, None]
    responses = Responses(prompts=PROMPTS, response_BT=RESPONSE_BT, mask_BT=mask_BT)
    output = policy(responses, LogProbs())
    return output.logp_K, output.entropy_K


def plain(policy: Policy) -> tuple[Tensor, Tensor]:
    """The same, a row at a time, by the model alone."""
    logps, entropies = [], []
    for prompt, response_T, length in zip(PROMPTS, RESPONSE_BT, LENGTHS, strict=True):
        ids = torch.cat([torch.tensor(prompt, device=DEVICE), response_T[:length]])[None]
        logits = policy.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
        logp_TV = logits.float().log_softmax(-1)
        logps.append(logp_TV.gather(-1, response_T[:length, None]).squeeze(-1))
        entropies.append(-(logp_TV.exp() * logp_TV).sum(-1))
    return torch.cat(logps), torch.cat(entropies)


def policies(name: str, dtype: torch.dtype) -> tuple[Policy, Policy]:
    own, other = (make_policy(name, dtype).to(DEVICE) for _ in range(2))
    enable_packed(own)  # sliding windows and capped logits stay in padded rows
    return own, other


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", SOFTMAX_ATTENTION)
@torch.no_grad()
def test_log_probs_and_entropies(name: str, dtype: torch.dtype) -> None:
    own, other = policies(name, dtype)
    for found, expected in zip(packed(own), plain(other), strict=True):
        torch.testing.assert_close(
            found.float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", SOFTMAX_ATTENTION)
def test_gradients(name: str, dtype: torch.dtype) -> None:
    """In bfloat16 the kernels of a GPU attend: their rounding is a few percent of a gradient."""
    gradients = []
    for policy, forward in zip(policies(name, dtype), (packed, plain), strict=True):
        logp_K = forward(policy)[0]
        (logp_K * torch.linspace(-1, 2, len(logp_K), device=DEVICE)).sum().backward()
        gradients.append({n: p.grad for n, p in policy.named_parameters()})
    for weight, expected in gradients[1].items():
        if dtype is torch.bfloat16:
            found, expected = gradients[0][weight].float(), expected.float()
            scale = expected.norm() + 1e-3 * expected.numel() ** 0.5
            assert float((found - expected).norm() / scale) < 0.1, weight
            continue
        size = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(gradients[0][weight], expected, rtol=1e-3, atol=1e-4 * size)
