"""r1lit's side with a vLLM server beside it: handing over weights, and whole iterations."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import ours
from benchmarks.work import Work
from benchmarks.worker import Gate
from r1lit.policy import load_policy, load_tokenizer
from r1lit.rollout import ModelSpec, Request, VLLMEngine
from r1lit.rollout.engine import OnFinished


class Endless(ModelSpec):
    """A model none of whose tokens ends a response."""

    def end_ids(self) -> tuple[int, ...]:
        """Return none."""
        return ()


class ForcedLengths(VLLMEngine):
    """Draws ``lengths[s]`` tokens of sample ``s``, whatever they are."""

    def __init__(self, lengths: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self.lengths = tuple(lengths)

    def bind(self, model: ModelSpec) -> None:
        """Have no token end a response."""
        super().bind(Endless(**vars(model)))

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Ask for each sample by itself, with its length as the limit."""
        single = [
            replace(
                request,
                samples=(sample,),
                sampling=replace(request.sampling, max_tokens=self.lengths[sample]),
            )
            for request in requests
            for sample in request.samples
        ]
        super().stream(single, on_finished)


def run_sync(
    gate: Gate, *, model: str, transfer: Any, python_of_vllm: str, flags: dict[str, Any]
) -> None:
    """Change the weights, and time what it takes until a served vLLM draws with them.

    That is ``time/sync_s`` of a run: pause, transfer, the probe of log-probs.
    """
    policy = load_policy(model)
    engine = VLLMEngine(serve=True, python=python_of_vllm, flags=flags, transfer=transfer)
    with tempfile.TemporaryDirectory(prefix="r1lit-bench-") as folder:
        spec = ModelSpec(
            name=model, tokenizer=load_tokenizer(model), policy=policy, folder=Path(folder)
        )
        engine.bind(spec)
        try:
            engine.update_weights(policy.named_weights(), 0)
            for version, _ in enumerate(gate, 1):
                with torch.no_grad():
                    for weight in policy.parameters():
                        weight.mul_(1.001)
                started = time.perf_counter()
                engine.update_weights(policy.named_weights(), version)
                seconds = time.perf_counter() - started
                megabytes = sum(p.nbytes for p in policy.parameters()) / 2**20
                gate.report(seconds=seconds, megabytes=megabytes)
        finally:
            engine.close()


def run_iterations(
    gate: Gate, *, work: Work, python_of_vllm: str, flags: dict[str, Any], **options: Any
) -> None:
    """Make GRPO iterations whose rollouts a served vLLM draws; see ``ours.run_iterations``."""
    engine = ForcedLengths(
        work.forced,
        serve=True,
        python=python_of_vllm,
        flags=flags,
        concurrency=work.num_rows,
    )
    try:
        ours.run_iterations(gate, work=work, engine=engine, **options)
    finally:
        engine.close()
