"""Tokens of advantage 0 add exactly 0, whatever their log-probs are."""

from __future__ import annotations

import pytest
import torch
from objective_cases import FACTORIES, loss_and_grad, ragged_minibatch

IMPOSSIBLE = [("logp_BT",), ("logp_BT", "logp_old_BT"), ("logp_old_BT",)]


@pytest.mark.parametrize("keys", IMPOSSIBLE, ids=" and ".join)
@pytest.mark.parametrize("name", FACTORIES)
def test_an_impossible_token_without_advantage_changes_nothing(name, keys):
    batch = ragged_minibatch()
    advantage_BT = batch.advantage_BT.clone()
    advantage_BT[0] = 0.0
    batch = batch.with_(advantage_BT=advantage_BT)
    impossible = {key: getattr(batch, key).clone() for key in keys}
    for logp_BT in impossible.values():
        logp_BT[0, 1] = -torch.inf
    expected = loss_and_grad(FACTORIES[name](), batch)
    found = loss_and_grad(FACTORIES[name](), batch.with_(**impossible))
    assert all(bool(x.isfinite().all()) for x in found)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
