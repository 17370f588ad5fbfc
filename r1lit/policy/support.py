"""Whether a policy can run over packed tokens: tried, not looked up by its name."""

from __future__ import annotations

import torch
from torch import Tensor

from r1lit.policy.attention import ATTENTION, UnsupportedAttentionError
from r1lit.policy.outputs import States
from r1lit.policy.policy import Policy, Responses, is_packed

# two rows share a prompt, and lengths differ: what packing could get wrong shows
PROMPTS = ((5, 6, 7, 8), (5, 6, 7, 8), (9, 10))
RESPONSES = ((11, 12, 13), (14, 15, 17), (16, 17, 17))
LENGTHS = (3, 2, 1)
# softmax attention changes other rows by 3e-7 at most, the least of recurrent layers by 2e-4
LARGEST_LEAK = 1e-5
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}


def enable_packed(policy: Policy) -> str | None:
    """Switch a policy to attention over packed tokens, if its log-probs stay the same.

    Returns:
        None when it did, otherwise why the policy stays as it was.
    """
    reason = _lacks(policy)
    if reason is not None:
        return reason
    before = policy.config._attn_implementation
    training = policy.training
    policy.eval()
    try:
        reason = _tried(policy)
    finally:
        policy.train(training)
    if reason is not None:
        policy.model.set_attn_implementation(before)
    return reason


def _lacks(policy: Policy) -> str | None:
    """Return what a trial on a few tokens of a fresh model would not show."""
    config = policy.config.get_text_config(decoder=True)
    head = policy.model.get_output_embeddings()
    if head is None or getattr(head, "bias", None) is not None:
        return "its head is not a matrix product alone"
    if getattr(config, "final_logit_softcapping", None) is not None:
        return "its logits are capped"
    if getattr(config, "index_topk", None) is not None:
        return "its attention is sparse"
    return None


@torch.no_grad()
def _tried(policy: Policy) -> str | None:
    expected_BT = _log_probs(policy)
    policy.model.set_attn_implementation(ATTENTION)
    if not is_packed(policy):
        return "its attention cannot be replaced"
    try:
        found_BT = _log_probs(policy)
        leak = _leak(policy)
    except UnsupportedAttentionError as error:
        return f"its attention has {error}"
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        return f"it failed with {type(error).__name__}"
    tolerance = TOLERANCE.get(policy.dtype, 0.1)
    if not torch.allclose(found_BT, expected_BT, rtol=tolerance, atol=tolerance):
        return "its log-probs would change"
    return "its rows would see each other" if leak > LARGEST_LEAK else None


def _responses(policy: Policy) -> Responses:
    vocabulary = int(policy.config.get_text_config(decoder=True).vocab_size)
    mask_BT = torch.arange(len(RESPONSES[0])) < torch.tensor(LENGTHS)[:, None]
    return Responses(
        prompts=[[token % vocabulary for token in prompt] for prompt in PROMPTS],
        response_BT=torch.tensor(RESPONSES, device=policy.device) % vocabulary,
        mask_BT=mask_BT.to(policy.device),
    )


def _log_probs(policy: Policy) -> Tensor:
    return policy(_responses(policy)).logp_K


def _leak(policy: Policy) -> float:
    """Return by how much, relatively, hidden states change with another row's response."""
    responses = _responses(policy)
    states = []
    for token in (18, 19):
        responses.response_BT[0, 0] = token % int(
            policy.config.get_text_config(decoder=True).vocab_size
        )
        states.append(policy(responses, States()).states_KD.float())
    other_KD = slice(LENGTHS[0], None)
    change = (states[1] - states[0])[other_KD].abs().max()
    return float(change / states[0][other_KD].abs().max())
