"""The reference of the KL penalty: a copy of the policy, or what lies under its adapter."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from r1lit.policy.policy import Policy, evaluating


class AdapterReference(nn.Module):
    """The policy with its adapter off, or with an earlier copy of the adapter's weights.

    Neither needs the other weights a second time. Calling it gives no gradients, and must not come
    between a forward pass of the policy and its backward pass.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        object.__setattr__(self, "_policy", policy)  # not a second time in the module's state
        self.values = nn.ParameterList()
        assert policy.adapter is not None
        if not policy.adapter.starts_without_effect:
            self.refresh()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        policy: Any = self._policy
        return policy.device

    @torch.no_grad()
    def refresh(self) -> None:
        """Become a copy of the policy as it is now."""
        policy: Any = self._policy
        copies = [weight.detach().clone() for weight in policy.adapter.weights]
        self.values = nn.ParameterList(nn.Parameter(x, requires_grad=False) for x in copies)

    @torch.no_grad()
    def forward(self, *args: Any) -> Any:
        """Call the policy, in evaluation mode."""
        policy: Any = self._policy
        with evaluating(policy):
            if len(self.values):
                with policy.adapter.at(list(self.values)):
                    return policy(*args)
            with policy.adapter.off():
                return policy(*args)


def make_reference(policy: Policy) -> nn.Module:
    """Return the policy as it is now, without gradients; it stays so when the policy changes."""
    if policy.adapter is not None:
        return AdapterReference(policy)
    return copy.deepcopy(policy).eval().requires_grad_(False)


def refresh_reference(reference: nn.Module, policy: Policy) -> None:
    """Make a reference the policy as it is now."""
    if isinstance(reference, AdapterReference):
        reference.refresh()
    else:
        reference.load_state_dict(policy.state_dict())
