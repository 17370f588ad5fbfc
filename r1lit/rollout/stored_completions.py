"""Completions as tensors, for a checkpoint.

T response tokens
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import Candidates
from r1lit.problems import Transcript, Verdict
from r1lit.rollout.request import Completion


def as_tensors(completions: Sequence[Completion]) -> dict[str, Tensor]:
    """Return completions as a few tensors on the CPU, one after the other, for a checkpoint."""
    tokens = [c.token_ids for c in completions if c.token_ids is not None]
    logps = [c.logps for c in completions if c.logps is not None]
    assert len(tokens) == len(logps) == len(completions), "training needs tokens and log-probs"
    records = [_as_json(c.transcript) for c in completions]
    verdicts = [_as_json(c.verdict) for c in completions]
    written = [
        torch.zeros(c.num_tokens, dtype=torch.bool)
        if c.environment_T is None
        else c.environment_T.cpu()
        for c in completions
    ]
    candidates = [c.candidates for c in completions if c.candidates is not None]
    assert len(candidates) in (0, len(completions)), "all have candidates, or none"
    joined = Candidates.joined(candidates) if candidates else None
    return {
        **({} if joined is None else {"candidates": joined.ids_N, "num_candidates": joined.num_K}),
        "environment": torch.cat(written),
        "transcript": torch.tensor(list(b"".join(records)), dtype=torch.uint8),
        "num_bytes": torch.tensor([len(record) for record in records]),
        "verdict": torch.tensor(list(b"".join(verdicts)), dtype=torch.uint8),
        "num_verdict_bytes": torch.tensor([len(verdict) for verdict in verdicts]),
        "token_ids": torch.cat(tokens).int().cpu(),
        "logps": torch.cat(logps).cpu(),
        "num_tokens": torch.tensor([c.num_tokens for c in completions]),
        "finished": torch.tensor([c.finished for c in completions]),
        "version": torch.cat([c.versions_T().cpu() for c in completions]),
    }


def completions_of(packed: Mapping[str, Tensor]) -> list[Completion]:
    """Return the completions that ``as_tensors`` was given."""
    num_tokens = packed["num_tokens"].tolist()
    written: list[Any] = [None] * len(num_tokens)
    records: list[Any] = [None] * len(num_tokens)
    if "transcript" in packed:  # checkpoints of before have none
        parts = packed["environment"].split(num_tokens)
        written = [part if bool(part.any()) else None for part in parts]
        texts = packed["transcript"].split(packed["num_bytes"].tolist())
        records = [_from_json(bytes(text.tolist())) if len(text) else None for text in texts]
    candidates: list[Any] = [None] * len(num_tokens)
    if "candidates" in packed:
        joined = Candidates(ids_N=packed["candidates"], num_K=packed["num_candidates"])
        candidates = list(joined.split(num_tokens))
    verdicts: list[Any] = [None] * len(num_tokens)
    if "verdict" in packed:
        texts = packed["verdict"].split(packed["num_verdict_bytes"].tolist())
        verdicts = [Verdict(**json.loads(bytes(t.tolist()))) if len(t) else None for t in texts]
    return [
        Completion(
            token_ids=token_ids.long(),
            logps=logps,
            finish_reason="stop" if finished else "length",
            version=next((v for v in version_T[:1].tolist() if v >= 0), None),
            version_T=version_T,
            environment_T=environment_T,
            transcript=transcript,
            verdict=verdict,
            candidates=own,
        )
        for token_ids, logps, finished, version_T, environment_T, transcript, verdict, own in zip(
            packed["token_ids"].split(num_tokens),
            packed["logps"].split(num_tokens),
            packed["finished"].tolist(),
            packed["version"].split(num_tokens),
            written,
            records,
            verdicts,
            candidates,
            strict=True,
        )
    ]


def _as_json(value: Transcript | Verdict | None) -> bytes:
    return b"" if value is None else json.dumps(asdict(value)).encode()


def _from_json(text: bytes) -> Transcript:
    values = json.loads(text)
    verdict = values.pop("verdict")
    tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return Transcript(
        **{**values, **tuples}, verdict=None if verdict is None else Verdict(**verdict)
    )
