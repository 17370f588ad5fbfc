"""Log-probabilities of responses under a policy, as training computes them.

P prompts   B rows   T response tokens   K predicted tokens
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from r1lit.objectives.diagnostics import entropy_BT
from r1lit.policy.attention import is_packed, no_mask
from r1lit.policy.linear_logp import linear_logp
from r1lit.policy.packed import PackedTokens, pack_tokens


@dataclass(frozen=True, kw_only=True)
class ResponseLogp:
    """What a policy says of responses: log-probs of their tokens, and entropies without gradient.

    Both are those of softmax(logits / temperature), float32, and 0 in the padding.
    """

    logp_BT: Tensor
    entropy_BT: Tensor


def response_logp(
    policy: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    response_BT: Tensor,
    mask_BT: Tensor,
    temperature: float,
) -> ResponseLogp:
    """Run the policy over prompt and response of each row, one prompt a row.

    A prompt that several rows have in common is computed once, and padding never, where the policy
    can attend over packed tokens; otherwise rows are padded on the right. Every token has the
    position at which it was sampled.
    """
    if is_packed(policy):
        packed, predictor_K, target_K = pack_responses(prompts, response_BT, mask_BT)
        hidden_ND = packed_hidden(policy, packed)
        # an embedding lookup: its gradient sums a prompt's last token over its rows in parallel
        hidden_KD = torch.nn.functional.embedding(predictor_K, hidden_ND)
        logp_K, entropy_K = linear_logp(
            hidden_KD, policy.get_output_embeddings().weight, target_K, temperature
        )
    else:
        logits_KV = padded_logits(policy, prompts, response_BT)[mask_BT].float()
        logits_KV = logits_KV / (temperature or 1.0)
        logp_KV = logits_KV.log_softmax(-1)
        logp_K = logp_KV.gather(-1, response_BT[mask_BT][:, None]).squeeze(-1)
        entropy_K = entropy_BT(logits_KV)
    zero_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
    return ResponseLogp(
        logp_BT=zero_BT.masked_scatter(mask_BT, logp_K),
        entropy_BT=zero_BT.masked_scatter(mask_BT, entropy_K),
    )


def pack_responses(
    prompts: Sequence[Sequence[int]], response_BT: Tensor, mask_BT: Tensor
) -> tuple[PackedTokens, Tensor, Tensor]:
    """Lay every distinct prompt once, and each response but for its last token.

    Returns:
        The packed tokens; which of them predicts each response token (K), rows after each other;
        and those response tokens (K).
    """
    device = response_BT.device
    distinct = {
        tuple(prompt): place for place, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))
    }
    segments = [torch.tensor(prompt, device=device) for prompt in distinct]
    ends = torch.tensor([len(prompt) for prompt in distinct]).cumsum(0) - 1
    start = int(ends[-1]) + 1
    rows: list[tuple[int, ...]] = []
    predictors = []
    for prompt, response_T, length in zip(
        prompts, response_BT, mask_BT.sum(-1).tolist(), strict=True
    ):
        place = distinct[tuple(prompt)]
        predictors.append(ends[place : place + 1])
        if length > 1:
            rows.append((place, len(segments)))
            segments.append(response_T[: length - 1])
            predictors.append(start + torch.arange(length - 1))
            start += length - 1
        else:
            rows.append((place,))
    packed = pack_tokens(segments, rows, device)
    return packed, torch.cat(predictors).to(device), response_BT[mask_BT]


def document_logp(
    policy: PreTrainedModel, input_ids_RL: Tensor, position_ids_RL: Tensor, loss_mask_RL: Tensor
) -> Tensor:
    """Return the log-probs (K) of the targets of packed rows, within their documents, in order.

    ``position_ids_RL`` restarts at 0 at each document, ``loss_mask_RL`` is true at targets.
    """
    target_K = input_ids_RL[loss_mask_RL]
    if is_packed(policy):
        packed, predictor_K = pack_documents(input_ids_RL, position_ids_RL, loss_mask_RL)
        hidden_KD = packed_hidden(policy, packed)[predictor_K]
        return linear_logp(hidden_KD, policy.get_output_embeddings().weight, target_K)[0]
    logits_RLV = policy(
        input_ids=input_ids_RL, position_ids=position_ids_RL, use_cache=False
    ).logits
    logits_KV = logits_RLV[:, :-1][loss_mask_RL[:, 1:]].float()
    return -torch.nn.functional.cross_entropy(logits_KV, target_K, reduction="none")


def pack_documents(
    input_ids_RL: Tensor, position_ids_RL: Tensor, loss_mask_RL: Tensor
) -> tuple[PackedTokens, Tensor]:
    """Lay the documents of packed rows that have targets, each up to what predicts its last one.

    Returns:
        The packed tokens, and which of them predicts each target (K).
    """
    ids, target = input_ids_RL.flatten(), loss_mask_RL.flatten().cpu()
    starts = (position_ids_RL.flatten() == 0).nonzero().flatten().tolist()
    segments, predictors, taken = [], [], 0
    for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
        targets = target[start:stop].nonzero().flatten()
        if len(targets):
            last = int(targets[-1])
            segments.append(ids[start : start + last])
            predictors.append(taken + targets - 1)
            taken += last
    if not segments:
        segments.append(ids[:1])
        predictors.append(target.new_zeros(0, dtype=torch.long))
    packed = pack_tokens(segments, [[s] for s in range(len(segments))], ids.device)
    return packed, torch.cat(predictors).to(ids.device)


def packed_hidden(policy: PreTrainedModel, packed: PackedTokens) -> Tensor:
    """Run the policy's body over packed tokens; return the last hidden states ``[N, D]``."""
    output = policy.get_decoder()(
        input_ids=packed.ids_N[None],
        position_ids=packed.position_N[None],
        attention_mask=no_mask(packed.ids_N.device),
        use_cache=False,
        packed=packed,
    )
    return output.last_hidden_state[0]


def padded_logits(
    policy: PreTrainedModel, prompts: Sequence[Sequence[int]], response_BT: Tensor
) -> Tensor:
    """Return the logits that predict each response token, ``[B, T, V]``.

    Rows are padded on the right only, so causal attention needs no padding mask. Logits are kept
    from the shortest prompt's last token on.
    """
    rows, width = response_BT.shape
    lengths_B = torch.tensor([len(prompt) for prompt in prompts], device=response_BT.device)
    longest, shortest = int(lengths_B.max()), int(lengths_B.min())
    # any token but the padding one, which some models would warn of
    ids = response_BT.new_full((rows, longest + width), int(response_BT[0, 0]))
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt, device=ids.device)
        ids[row, len(prompt) : len(prompt) + width] = response_BT[row]
    keep = longest + width - (shortest - 1)
    if "logits_to_keep" in inspect.signature(policy.forward).parameters:
        logits_BKV = policy(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
    else:
        logits_BKV = policy(input_ids=ids, use_cache=False).logits[:, -keep:]
    if shortest == longest:
        return logits_BKV[:, :width]
    place_BT = (lengths_B - shortest)[:, None] + torch.arange(width, device=ids.device)
    index = place_BT[..., None].expand(-1, -1, logits_BKV.shape[-1])
    return logits_BKV.gather(1, index)
