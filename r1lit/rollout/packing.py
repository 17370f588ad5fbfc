"""Completions as a few tensors, for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from r1lit.rollout.engine import Completion


def pack_completions(completions: Sequence[Completion]) -> dict[str, Tensor]:
    """Return completions as tensors that are one behind the other, on the CPU."""
    tokens = [c.token_ids for c in completions if c.token_ids is not None]
    logps = [c.logps for c in completions if c.logps is not None]
    assert len(tokens) == len(logps) == len(completions), "training needs tokens and log-probs"
    return {
        "token_ids": torch.cat(tokens).int().cpu(),
        "logps": torch.cat(logps).cpu(),
        "num_tokens": torch.tensor([c.num_tokens for c in completions]),
        "finished": torch.tensor([c.finished for c in completions]),
        "version": torch.cat([c.versions_T().cpu() for c in completions]),
    }


def unpack_completions(packed: Mapping[str, Tensor]) -> list[Completion]:
    """Return what ``pack_completions`` was given."""
    num_tokens = packed["num_tokens"].tolist()
    return [
        Completion(
            token_ids=token_ids.long(),
            logps=logps,
            finish_reason="stop" if finished else "length",
            version=next((v for v in version_T[:1].tolist() if v >= 0), None),
            version_T=version_T,
        )
        for token_ids, logps, finished, version_T in zip(
            packed["token_ids"].split(num_tokens),
            packed["logps"].split(num_tokens),
            packed["finished"].tolist(),
            packed["version"].split(num_tokens),
            strict=True,
        )
    ]
