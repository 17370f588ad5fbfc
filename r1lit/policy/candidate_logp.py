"""Log-probs among the tokens that top-k and top-p left.

K predicted tokens   V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from r1lit.batches import Candidates
from r1lit.policy.chunks import COPIES, token_chunks
from r1lit.policy.predictions import PolicyOutput, Predictions


def among_candidates(
    predictions: Predictions,
    candidates: Candidates,
    target_K: Tensor,
    temperature: float,
    entropy_gradient: bool,
) -> PolicyOutput:
    """Return ``logp_K`` and ``entropy_K`` of a softmax over each target's candidates alone.

    As in ``divergence_K``, logits of a chunk of the tokens exist at a time, and are made again in
    the backward pass.
    """
    device = predictions.states_KD.device
    num = candidates.num_K.tolist()

    def of_chunk(chunk: slice) -> tuple[Tensor, Tensor]:
        ids = ids_of_chunk[chunk.start].to(device, torch.long).split(num[chunk])
        ids_kC = pad_sequence(list(ids), True)
        exists_kC = pad_sequence([torch.ones_like(x, dtype=torch.bool) for x in ids], True)
        logits_kV = predictions.logits(chunk) / temperature
        logits_kC = logits_kV.gather(1, ids_kC).masked_fill(~exists_kC, float("-inf"))
        normaliser_k1 = logits_kC.logsumexp(-1, keepdim=True)
        logp_k1 = logits_kV.gather(1, target_K[chunk, None]) - normaliser_k1
        logp_kC = (logits_kC - normaliser_k1).masked_fill(~exists_kC, 0.0)
        entropy_k = -(logp_kC.exp() * logp_kC).sum(-1)  # 0 where none exists
        return logp_k1.squeeze(-1), entropy_k if entropy_gradient else entropy_k.detach()

    chunks = list(token_chunks(len(predictions), predictions.vocabulary, device, COPIES))
    sizes = [sum(num[chunk]) for chunk in chunks]
    parts = candidates.ids_N.split(sizes) if chunks else ()
    ids_of_chunk = {chunk.start: part for chunk, part in zip(chunks, parts, strict=True)}
    values = [
        checkpoint(of_chunk, chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in chunks
    ]
    if not values:
        none_K = predictions.states_KD.float().sum(-1)
        return PolicyOutput(logp_K=none_K, entropy_K=none_K.detach())
    logp, entropy = zip(*values, strict=True)
    return PolicyOutput(logp_K=torch.cat(logp), entropy_K=torch.cat(entropy))
