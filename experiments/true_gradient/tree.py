"""Many responses to a prompt as a tree: shared beginnings are computed once.

N nodes, each a token of some response   M nodes of a level that go on   T tokens   V vocabulary
D hidden size   I size of the MLP   i, d their directions that are kept

Sampling n responses token by token, independently, is the same as splitting n at each node by a
multinomial over the next tokens. So 10^5 responses cost what their different beginnings cost.

The gradient is that of a few parameters X [d, i]: the last layer's ``down_proj`` is W + U X V^T,
with fixed orthonormal U [D, d] and V [I, i], at X = 0. Nothing attends to what that layer adds, so
a token's gradient is an outer product, d log pi(o_t) / dX = (U^T delta_t) (V^T a_t)^T, with a_t the
layer's input and delta_t the gradient of log pi(o_t) with respect to its output.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from r1lit.policy import Policy
from r1lit.rollout.shared_prompts import Decoder, SharedPromptDecoding, run_layer
from r1lit.seeding import generator


@dataclass(frozen=True, kw_only=True)
class Subspace:
    """The directions U [D, d] and V [I, i] of the parameters X."""

    out_Dd: Tensor
    in_Ii: Tensor

    @classmethod
    def random(cls, model: Any, num_out: int, num_in: int, seed: int = 0) -> Subspace:
        """Return orthonormal directions, uniform among all such."""
        layer = model.model.layers[-1].mlp.down_proj
        rng = generator(seed, "subspace")

        def directions(size: int, num: int) -> Tensor:
            matrix = torch.from_numpy(rng.standard_normal((size, min(num, size))))
            return torch.linalg.qr(matrix.float()).Q

        return cls(
            out_Dd=directions(layer.out_features, num_out),
            in_Ii=directions(layer.in_features, num_in),
        )


@dataclass(frozen=True, kw_only=True)
class Level:
    """The tokens at one place of all responses.

    ``parent_N`` counts the nodes of the level before that go on; ``counts_N`` are responses.
    """

    parent_N: np.ndarray
    token_N: np.ndarray
    counts_N: np.ndarray
    ends_N: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What a policy makes of the nodes, level after level: log-probs and gradients.

    d log pi / dX of a node is the outer product of its rows of ``out_Nd`` and ``in_Ni``.
    """

    logp_N: Tensor
    out_Nd: Tensor
    in_Ni: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """Return the scores of several lots of nodes as one."""
        names = ("logp_N", "out_Nd", "in_Ni")
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


class Walk:
    """A policy on its way through a tree, one level at a time.

    Args:
        policy: a Llama that attends over packed tokens; it is in evaluation mode.
        prompt: token ids.
        subspace: of the gradient.
    """

    def __init__(self, policy: Policy, prompt: Sequence[int], subspace: Subspace) -> None:
        self.model: Any = policy.model
        self.subspace = subspace
        self.scores: list[Scores] = []
        self._seen: dict[str, Tensor] = {}
        decoder = Decoder(policy, policy.dtype, run_layer, cast=False)
        body: Any = decoder.model.model
        watched = {"hidden": body.norm, "inner": body.layers[-1].layer.mlp.down_proj}
        for name, module in watched.items():
            module._forward_pre_hooks = OrderedDict()  # the stand-in's alone
            module.register_forward_pre_hook(partial(self._see, name))
        with torch.no_grad():
            self._decoding = SharedPromptDecoding(decoder, [prompt], 1)
        self._read(len(prompt) - 1)

    def _see(self, name: str, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._seen[name] = inputs[0]

    def _read(self, place: int) -> None:
        self.hidden_MD = self._seen["hidden"][:, place]
        self.in_Mi = self._seen["inner"][:, place] @ self.subspace.in_Ii

    @torch.no_grad()
    def probabilities_MV(self) -> np.ndarray:
        """Return the next token's distribution after each node that goes on."""
        logits_MV = self.model.lm_head(self.model.model.norm(self.hidden_MD))
        return logits_MV.double().softmax(-1).numpy()

    def step(self, level: Level) -> None:
        """Score the nodes of a level, then go on with those that do not end."""
        parent_N, token_N = torch.from_numpy(level.parent_N), torch.from_numpy(level.token_N)
        hidden_ND = self.hidden_MD[parent_N].requires_grad_()
        logits_NV = self.model.lm_head(self.model.model.norm(hidden_ND))
        logp_N = logits_NV.log_softmax(-1).gather(-1, token_N[:, None]).squeeze(-1)
        (delta_ND,) = torch.autograd.grad(logp_N.sum(), hidden_ND)
        self.scores.append(
            Scores(
                logp_N=logp_N.detach(),
                out_Nd=delta_ND @ self.subspace.out_Dd,
                in_Ni=self.in_Mi[parent_N],
            )
        )
        goes_on = torch.from_numpy(~level.ends_N)
        if goes_on.any():
            with torch.no_grad():
                self._decoding.keep_rows(parent_N[goes_on])
                self._decoding.step(token_N[goes_on])
            self._read(-1)

    def all_scores(self) -> Scores:
        """Return the scores of all nodes so far."""
        return Scores.joined(self.scores)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Different responses (leaves), how often each was sampled, and scores of policies.

    ``nodes`` has each leaf's nodes, from its first token on; ``token_N`` their tokens.
    """

    nodes: list[np.ndarray]
    counts: np.ndarray
    finished: np.ndarray
    token_N: np.ndarray
    scores: list[Scores]

    def tokens(self, leaf: int) -> list[int]:
        """Return a leaf's token ids."""
        return self.token_N[self.nodes[leaf]].tolist()


def sample_tree(
    policies: Sequence[Policy],
    prompt: Sequence[int],
    num_samples: int,
    max_tokens: int,
    end: int,
    subspace: Subspace,
    rng: np.random.Generator,
) -> Tree:
    """Sample responses of the first policy at temperature 1; all policies score them.

    Args:
        policies: Llamas of one shape, in evaluation mode.
        prompt: token ids.
        num_samples: responses.
        max_tokens: of a response.
        end: the token that ends a response.
        subspace: of the gradients.
        rng: of the samples.
    """
    walks = [Walk(policy, prompt, subspace) for policy in policies]
    counts_M = np.array([num_samples])
    paths_M: list[list[int]] = [[]]
    nodes, leaf_counts, finished, tokens = [], [], [], []
    total = 0
    for place in range(max_tokens):
        probabilities_MV = walks[0].probabilities_MV()
        probabilities_MV /= probabilities_MV.sum(-1, keepdims=True)
        counts_MV = rng.multinomial(counts_M, probabilities_MV)
        parent_N, token_N = np.nonzero(counts_MV)
        is_end_N = token_N == end
        level = Level(
            parent_N=parent_N,
            token_N=token_N,
            counts_N=counts_MV[parent_N, token_N],
            ends_N=is_end_N | (place + 1 == max_tokens),
        )
        for walk in walks:
            walk.step(level)
        paths = [[*paths_M[parent], total + n] for n, parent in enumerate(parent_N)]
        for n in np.flatnonzero(level.ends_N):
            nodes.append(np.array(paths[n]))
            leaf_counts.append(level.counts_N[n])
            finished.append(is_end_N[n])
        tokens.append(token_N)
        total += len(token_N)
        goes_on = np.flatnonzero(~level.ends_N)
        counts_M, paths_M = level.counts_N[goes_on], [paths[n] for n in goes_on]
        if not len(goes_on):
            break
    return Tree(
        nodes=nodes,
        counts=np.array(leaf_counts),
        finished=np.array(finished),
        token_N=np.concatenate(tokens),
        scores=[walk.all_scores() for walk in walks],
    )
