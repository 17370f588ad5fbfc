"""Log-probabilities of responses under a policy, as training computes them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class ResponseLogits:
    """Logits that predict each response token, already divided by the temperature."""

    logits_BTV: Tensor

    def logp_BT(self, response_BT: Tensor) -> Tensor:
        """Return log softmax(logits / temperature) at the response tokens."""
        chosen_BT = self.logits_BTV.gather(-1, response_BT[..., None]).squeeze(-1)
        return chosen_BT - self.logits_BTV.logsumexp(-1)


def response_logits(
    policy: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    response_BT: Tensor,
    temperature: float,
) -> ResponseLogits:
    """Run the policy over prompt and response of each row, one prompt a row.

    Rows are padded on the right only, so causal attention needs no padding mask and every token
    has the position it had when it was sampled. Logits are kept from the shortest prompt's last
    token on, and computed in float32.
    """
    rows, width = response_BT.shape
    lengths_B = torch.tensor([len(prompt) for prompt in prompts], device=response_BT.device)
    longest, shortest = int(lengths_B.max()), int(lengths_B.min())
    ids = torch.zeros(rows, longest + width, dtype=torch.long, device=response_BT.device)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt, device=ids.device)
        ids[row, len(prompt) : len(prompt) + width] = response_BT[row]
    keep = longest + width - (shortest - 1)
    if _keeps_logits(policy):
        logits_BKV = policy(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
    else:
        logits_BKV = policy(input_ids=ids, use_cache=False).logits[:, -keep:]
    if shortest == longest:
        logits_BTV = logits_BKV[:, :width]
    else:
        place_BT = (lengths_B - shortest)[:, None] + torch.arange(width, device=ids.device)
        index = place_BT[..., None].expand(-1, -1, logits_BKV.shape[-1])
        logits_BTV = logits_BKV.gather(1, index)
    logits_BTV = logits_BTV.float()
    return ResponseLogits(
        logits_BTV=logits_BTV if temperature in (0.0, 1.0) else logits_BTV / temperature
    )


def _keeps_logits(policy: PreTrainedModel) -> bool:
    return "logits_to_keep" in inspect.signature(policy.forward).parameters
