"""A distribution reduced to its most likely tokens, and the rest as one outcome.

    K tokens   V vocabulary   C tokens that are outcomes of their own   R = C + 1 outcomes

A server returns the log-probs of a few tokens, not of all. Merging outcomes never raises a KL or a
JSD (the data-processing inequality): a divergence over R outcomes is a lower bound of that over V,
and is it where both distributions share the rest out alike. Its gradient moves probability between
the C tokens and the rest as a whole.

Worked example, V = 3, logits of probabilities (1/2, 1/4, 1/4), C = 1 with token 0: (1/2 | 1/2).
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST_REST = 1e-6
"""The least probability of the rest: servers round, and their C tokens may add up to above 1."""


def top_and_rest_KR(logp_KV: Tensor, token_KC: Tensor) -> Tensor:
    """Return log-probs of the tokens ``token_KC`` and, last, of all others together.

    ``token_KC`` may repeat its first token to fill a row: repetitions count once, with minus
    infinity.
    """
    chosen_KC = logp_KV.gather(-1, token_KC)
    others_KV = logp_KV.scatter(-1, token_KC, -torch.inf)
    rest_K1 = others_KV.exp().sum(-1, keepdim=True).clamp(min=LEAST_REST).log()
    return torch.cat([chosen_KC.masked_fill(repeated_KC(token_KC), -torch.inf), rest_K1], -1)


def add_rest_KR(logp_KC: Tensor, token_KC: Tensor) -> Tensor:
    """Return log-probs of C tokens with that of all others appended: log(1 - their sum)."""
    logp_KC = logp_KC.masked_fill(repeated_KC(token_KC), -torch.inf)
    rest_K1 = (1 - logp_KC.exp().sum(-1, keepdim=True)).clamp(min=LEAST_REST).log()
    return torch.cat([logp_KC, rest_K1], -1)


def repeated_KC(token_KC: Tensor) -> Tensor:
    """Return where a row repeats its first token."""
    repeated = token_KC == token_KC[:, :1]
    repeated[:, 0] = False
    return repeated
