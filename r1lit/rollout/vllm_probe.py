"""Whether a vLLM server holds the policy's weights: a text's log-probs there and here.

T tokens
"""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.policy import LogProbs, Responses, evaluating
from r1lit.rollout.engine import ModelSpec
from r1lit.rollout.vllm_check import TEXT
from r1lit.rollout.vllm_server import VLLMServer, Weights

NUM_TOKENS = 32
TOLERANCE = {torch.float32: 1e-3}
ROUNDED = 0.05  # of 16-bit weights, whose log-probs differ by some 0.01 on average


class Probe:
    """Compares servers with a policy by the log-probs of a text.

    Args:
        model: the policy and its tokenizer.
        tolerance: what the mean difference may be; 0.001 where both are float32 and 0.05 elsewhere
            if None.
    """

    def __init__(self, model: ModelSpec, tolerance: float | None) -> None:
        assert model.policy is not None
        ids = model.tokenizer(TEXT)["input_ids"][:NUM_TOKENS]
        self._ids = tuple(ids) if len(ids) > 1 else model.end_ids() * 2
        self._policy, self._tolerance = model.policy, tolerance

    @torch.no_grad()
    def expected_T(self) -> Tensor:
        """Return the policy's log-probs of all tokens but the first, in the weights' own dtype."""
        response_BT = torch.tensor([self._ids[1:]], device=self._policy.device)
        mask_BT = torch.ones_like(response_BT, dtype=torch.bool)
        prompts = [self._ids[:1]]
        responses = Responses(prompts=prompts, response_BT=response_BT, mask_BT=mask_BT)
        with (
            evaluating(self._policy),
            torch.autocast(self._policy.device.type, enabled=False),
        ):
            return self._policy(responses, LogProbs()).logp_K.float().cpu()

    def check(self, server: VLLMServer, weights: Weights, expected_T: Tensor) -> None:
        """Check that a server's log-probs are those expected.

        Raises:
            ValueError: if they are not.
            RequestError: if it does not answer.
        """
        assert server.info is not None
        difference = float((server.score(self._ids, weights) - expected_T).abs().mean())
        here, there = self._policy.dtype, getattr(torch, server.info.dtype)
        tolerance = self._tolerance
        if tolerance is None:
            tolerance = TOLERANCE.get(here, ROUNDED) if here == there else ROUNDED
        if not difference <= tolerance:
            raise ValueError(
                f"engine: after the transfer of weights {weights.label} log-probs of {server.url}"
                f" differ from the policy's by {difference:.2g} on average (tolerance:"
                f" {tolerance:g}): its weights are stale or in part another model's; restart it,"
                " and go on with --ckpt_path last"
            )
