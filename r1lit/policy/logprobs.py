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

from r1lit.cpu.in_place import embedding_inputs
from r1lit.objectives.diagnostics import entropy_BT
from r1lit.policy.attention import autocast_dtype, is_packed, no_mask
from r1lit.policy.linear_cross_entropy import linear_cross_entropy
from r1lit.policy.linear_logp import linear_logp
from r1lit.policy.packed import PackedTokens, pack_tokens


@dataclass(frozen=True, kw_only=True)
class ResponseLogp:
    """What a policy says of responses: log-probs of their tokens, and entropies without gradient.

    Both are those of softmax(logits / temperature), float32, and 0 in the padding.
    """

    logp_BT: Tensor
    entropy_BT: Tensor


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What a policy predicts K tokens from: hidden states and its head's weight, or logits.

    ``states_KD`` are the last hidden states, and ``weight_VD`` makes logits of them; where the
    policy cannot be taken apart so, ``weight_VD`` is None and the states are logits (D = V).
    """

    states_KD: Tensor
    weight_VD: Tensor | None

    def __len__(self) -> int:
        return len(self.states_KD)

    @property
    def vocabulary(self) -> int:
        """V, the number of logits."""
        return self.states_KD.shape[1] if self.weight_VD is None else len(self.weight_VD)

    def logits(self, part: slice) -> Tensor:
        """Return the logits of some of the tokens, float32."""
        if self.weight_VD is None:
            return self.states_KD[part].float()
        dtype = autocast_dtype(self.states_KD.device, self.states_KD.dtype)
        return (self.states_KD[part].to(dtype) @ self.weight_VD.to(dtype).T).float()

    def logp(self, target_K: Tensor, temperature: float = 1.0) -> Tensor:
        """Return the log-probs of the targets, softmax(logits / temperature), float32."""
        if self.weight_VD is not None:
            return linear_logp(self.states_KD, self.weight_VD, target_K, temperature)[0]
        logits_KV = self.states_KD.float()
        if temperature not in (0.0, 1.0):
            logits_KV = logits_KV / temperature
        return -torch.nn.functional.cross_entropy(logits_KV, target_K, reduction="none")

    def cross_entropy(self, target_K: Tensor) -> Tensor:
        """Return the cross-entropy summed over the targets, float32; faster than by ``logp``."""
        if self.weight_VD is not None:
            return linear_cross_entropy(self.states_KD, self.weight_VD, target_K)
        return -self.logp(target_K).sum()


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
    said, target_K = response_predictions(policy, prompts, response_BT, mask_BT)
    if said.weight_VD is not None:
        logp_K, entropy_K = linear_logp(said.states_KD, said.weight_VD, target_K, temperature)
    else:
        logits_KV = said.states_KD.float() / (temperature or 1.0)
        logp_KV = logits_KV.log_softmax(-1)
        logp_K = logp_KV.gather(-1, target_K[:, None]).squeeze(-1)
        entropy_K = entropy_BT(logits_KV)
    zero_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
    return ResponseLogp(
        logp_BT=zero_BT.masked_scatter(mask_BT, logp_K),
        entropy_BT=zero_BT.masked_scatter(mask_BT, entropy_K),
    )


def response_predictions(
    policy: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    response_BT: Tensor,
    mask_BT: Tensor,
) -> tuple[Predictions, Tensor]:
    """Return what response tokens are predicted from, and the tokens (K), row after row."""
    target_K = response_BT[mask_BT]
    if not is_packed(policy):
        logits_KV = padded_logits(policy, prompts, response_BT)[mask_BT]
        return Predictions(states_KD=logits_KV, weight_VD=None), target_K
    packed, predictor_K, target_K = pack_responses(prompts, response_BT, mask_BT)
    hidden_ND = packed_hidden(policy, packed)
    # an embedding lookup: its gradient sums a prompt's last token over its rows in parallel
    hidden_KD = torch.nn.functional.embedding(predictor_K, hidden_ND)
    weight_VD = policy.get_output_embeddings().weight
    return Predictions(states_KD=hidden_KD, weight_VD=weight_VD), target_K


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


def document_predictions(
    policy: PreTrainedModel, input_ids_RL: Tensor, position_ids_RL: Tensor, loss_mask_RL: Tensor
) -> Predictions:
    """Return what the targets (K) of packed rows are predicted from, in order.

    ``position_ids_RL`` restarts at 0 at each document, ``loss_mask_RL`` is true at targets.
    """
    if is_packed(policy):
        packed, predictor_K = pack_documents(input_ids_RL, position_ids_RL, loss_mask_RL)
        hidden_KD = packed_hidden(policy, packed)[predictor_K]
        weight_VD = policy.get_output_embeddings().weight
        return Predictions(states_KD=hidden_KD, weight_VD=weight_VD)
    logits_RLV = policy(
        input_ids=input_ids_RL, position_ids=position_ids_RL, use_cache=False
    ).logits
    return Predictions(states_KD=logits_RLV[:, :-1][loss_mask_RL[:, 1:]], weight_VD=None)


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
        **embedding_inputs(policy, packed.ids_N[None]),
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
