"""Trials of a policy on a few tokens: tests of causality and of packing.

Trials judge in float32 whatever the dtype of the weights: in bfloat16 a wrong scale of the logits
and rounding look alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from r1lit.policy.adapter import in_float32 as computing_in_float32
from r1lit.policy.attention import ATTENTION, UnsupportedAttentionError
from r1lit.policy.outputs import States
from r1lit.policy.policy import Policy, Responses, evaluating, is_packed
from r1lit.policy.reach import watch_masks, within_reach
from r1lit.policy.source import ModelSource

# two rows share a prompt, and lengths differ: what packing could get wrong shows
PROMPTS: tuple[tuple[int, ...], ...] = ((5, 6, 7, 8), (5, 6, 7, 8), (9, 10))
RESPONSES = ((11, 12, 13), (14, 15, 17), (16, 17, 17))
LENGTHS = (3, 2, 1)
# softmax attention changes other rows by 3e-7 at most, the least of recurrent layers by 2e-4
LARGEST_LEAK = 1e-5
TOLERANCE = 1e-3  # nats
LOW_PRECISION_TOLERANCE = 0.1  # in the dtype of the weights, where that is below float32
FAILURES = (
    *(AttributeError, ImportError, IndexError, KeyError, NotImplementedError),
    *(RuntimeError, TypeError, ValueError),
)


@contextmanager
def trial(policy: Policy, in_float32: bool = True) -> Iterator[None]:
    """Set evaluation mode and float32, without gradients, for the computations inside.

    Weights of a lower dtype are cast for the time of their module's own call, so that no second
    model exists. Modules that use another one's weights fail with a RuntimeError then. Windows and
    the like are so small that the trial's tokens meet them; see ``within_reach``.
    """
    low = [module for module in policy.modules() if in_float32 and _low_precision_tensors(module)]
    handles = [handle for module in low for handle in _cast_in_calls(module)]
    try:
        kind = policy.device.type
        cast_4_bits = computing_in_float32(policy) if in_float32 else nullcontext()
        off = torch.autocast(kind, enabled=False)
        reach = within_reach(policy.model, partial(_log_probs, policy, slice(1)), FAILURES)
        with evaluating(policy), torch.no_grad(), off, cast_4_bits, reach:
            yield
    finally:
        for handle in handles:
            handle.remove()


def with_visible_adapter(policy: Policy) -> AbstractContextManager[None]:
    """Give an adapter, if there is one, an effect on outputs, so that a trial run covers it."""
    return nullcontext() if policy.adapter is None else policy.adapter.with_visible_adapter()


def _low_precision_tensors(module: nn.Module) -> list[Tensor]:
    """Return the module's own tensors of less than 32 bits."""
    own = (*module._parameters.values(), *module._buffers.values())
    return [x for x in own if x is not None and x.is_floating_point() and x.itemsize < 4]


def _cast_in_calls(module: nn.Module) -> tuple[torch.utils.hooks.RemovableHandle, ...]:
    before: list[tuple[Tensor, Tensor]] = []

    def cast(module: nn.Module, args: object) -> None:
        for tensor in _low_precision_tensors(module):
            before.append((tensor, tensor.data))
            tensor.data = tensor.data.float()

    def restore(module: nn.Module, args: object, output: object) -> None:
        while before:
            tensor, data = before.pop()
            tensor.data = data

    return (
        module.register_forward_pre_hook(cast),
        module.register_forward_hook(restore, always_call=True),
    )


def find_causality_error(policy: Policy) -> str | None:
    """Return how a row's log-probs depend on other rows or later tokens, or None if they do not.

    Log-probs that are not finite are not judged: a run of such a policy ends in its first rollout
    or update.
    """

    def largest_change() -> float:
        together_K = _log_probs(policy)
        alone_K = [_log_probs(policy, slice(row, row + 1)) for row in range(len(LENGTHS))]
        return float((together_K - torch.cat(alone_K)).abs().max())

    try:
        with trial(policy):
            excess = largest_change() - TOLERANCE
    except FAILURES:
        with trial(policy, in_float32=False):
            excess = largest_change() - LOW_PRECISION_TOLERANCE
    if excess > 0:
        return "its log-probs change with the rows beside a row, or with what follows a token"
    return None


def enable_packed(policy: Policy) -> str | None:
    """Switch a policy to attention over packed tokens, if its log-probs stay the same.

    Returns:
        None when it did, otherwise why the policy stays as it was.
    """
    reason = _unsupported_feature(policy)
    if reason is not None:
        return reason
    before = policy.config._attn_implementation
    with trial(policy), with_visible_adapter(policy):
        reason = _find_packing_error(policy)
    if reason is not None:
        policy.model.set_attn_implementation(before)
    return reason


def try_out(policy: Policy, source: ModelSource) -> None:
    """Compute a few tokens: refuse a model that is not causal, and test packed tokens.

    Raises:
        ValueError: if a token attends to later ones.
    """
    reason = find_causality_error(policy)
    if reason is not None:
        raise ValueError(f"{source.key}: {source.path!r} is no causal language model: {reason}")
    attention = policy.config._attn_implementation
    reason = enable_packed(policy) if attention == "sdpa" else f"attention is {attention!r}"
    if reason is not None:
        warnings.warn(
            f"{source.key}: {type(policy.model).__name__} is trained on padded rows, one document a"
            f" row, which is slower than packed tokens: {reason}",
            stacklevel=3,
        )


def _unsupported_feature(policy: Policy) -> str | None:
    """Return a feature that a trial on a few tokens of a fresh model would not show."""
    config = policy.config.get_text_config(decoder=True)
    head = policy.model.get_output_embeddings()
    if head is None or getattr(head, "bias", None) is not None:
        return "its head is not a matrix product alone"
    if getattr(config, "final_logit_softcapping", None) is not None:
        return "its logits are capped"
    return None


def _find_packing_error(policy: Policy) -> str | None:
    try:
        with watch_masks() as masks:
            expected_K = _log_probs(policy)
        policy.model.set_attn_implementation(ATTENTION)
        if not is_packed(policy):
            return "its attention cannot be replaced"
        found_K = _log_probs(policy)
        leak = _cross_row_leak(policy)
    except UnsupportedAttentionError as error:
        return f"its attention has {error}"
    except FAILURES as error:
        return f"it failed with {type(error).__name__}"
    if not masks.only_causal:
        return "its attention has masks of its own, such as a window"
    if not torch.allclose(found_K, expected_K, rtol=0.0, atol=TOLERANCE):
        return "its log-probs would change"
    if leak > LARGEST_LEAK:
        return "its rows would see each other"
    return _other_layers(policy)


def _other_layers(policy: Policy) -> str | None:
    """Return which layers are not full attention: what they do may not show in so few tokens."""
    config = policy.config.get_text_config(decoder=True)
    kinds = {*(getattr(config, "layer_types", None) or ())} - {"full_attention"}
    return f"it has layers of {', '.join(sorted(kinds))}" if kinds else None


def _responses(policy: Policy, rows: slice = slice(None)) -> Responses:
    vocabulary = int(policy.config.get_text_config(decoder=True).vocab_size)
    lengths_B = torch.tensor(LENGTHS[rows])
    mask_BT = torch.arange(int(lengths_B.max())) < lengths_B[:, None]
    response_BT = torch.tensor(RESPONSES[rows], device=policy.device) % vocabulary
    return Responses(
        prompts=[[token % vocabulary for token in prompt] for prompt in PROMPTS[rows]],
        response_BT=response_BT[:, : mask_BT.shape[1]],
        mask_BT=mask_BT.to(policy.device),
    )


def _log_probs(policy: Policy, rows: slice = slice(None)) -> Tensor:
    return policy(_responses(policy, rows)).logp_K


def _cross_row_leak(policy: Policy) -> float:
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


def outside_linear_layers(model: Any) -> list[str]:
    """Return the names of what an adapter changes beside linear layers: embeddings, the head."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    head = model.get_output_embeddings()
    changed = {
        name: layer.get_base_layer()
        for name, layer in model.named_modules()
        if isinstance(layer, BaseTunerLayer)
    }
    return [
        name
        for name, layer in changed.items()
        if not isinstance(layer, nn.Linear) or (head is not None and layer.weight is head.weight)
    ]
