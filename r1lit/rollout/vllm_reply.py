"""Reading what vLLM's ``/inference/v1/generate`` replies.

T response tokens
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from r1lit.endpoint.client import MalformedReply
from r1lit.rollout.engine import Completion


def completions_reader(
    count: int, versions: Mapping[str, int]
) -> Callable[[dict[str, Any]], list[Completion]]:
    """Return what reads ``count`` completions out of a reply; see ``read_completion``."""

    def read(reply: dict[str, Any]) -> list[Completion]:
        choices = sorted(reply["choices"], key=lambda choice: choice["index"])
        if [choice["index"] for choice in choices] != list(range(count)):
            raise MalformedReply(f"choices: {len(choices)}, not {count}")
        return [read_completion(choice, versions) for choice in choices]

    return read


def read_completion(choice: dict[str, Any], versions: Mapping[str, int]) -> Completion:
    """Return one completion.

    Args:
        choice: of a reply.
        versions: of the weights that its tokens may be of, by the label that servers name.

    Raises:
        MalformedReply: if it is not whole, or a token is of other weights.
    """
    if choice["finish_reason"] not in ("stop", "length"):  # aborted by a pause or a shutdown
        raise MalformedReply(f"a response ended by {choice['finish_reason']!r}")
    ids, scored, spans = (
        choice["token_ids"],
        choice["logprobs"]["content"],
        choice["weight_versions"],
    )
    unknown = sorted({span["version"] for span in spans}.difference(versions))
    if unknown or not spans:
        raise MalformedReply(f"weights: {unknown}, not {[*versions][-1]!r}: it was restarted")
    if [token["token_id"] for token in scored] != ids:
        raise MalformedReply("logprobs: not those of its tokens")
    logp_T = torch.tensor([token["logprob"] for token in scored], dtype=torch.float32)
    if not logp_T.isfinite().all():
        raise MalformedReply("logprobs: not finite")
    version_T = None
    if len(spans) > 1:
        each = [versions[s["version"]] for s in spans for _ in range(s["start"], s["end"])]
        if len(each) != len(ids):
            raise MalformedReply(f"weight_versions: of {len(each)} tokens, not {len(ids)}")
        version_T = torch.tensor(each, dtype=torch.int32)
    return Completion(
        token_ids=torch.tensor(ids, dtype=torch.long),
        logps=logp_T,
        finish_reason=choice["finish_reason"],
        version=versions[spans[0]["version"]],
        version_T=version_T,
    )
