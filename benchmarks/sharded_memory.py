"""The memory of a rank under FSDP2 and under DDP: two processes, two updates, bytes of tensors.

    python -m torch.distributed.run --standalone --nproc-per-node 2 \
        -m benchmarks.sharded_memory fsdp2 MODEL report.json

Resident memory is too noisy here: PyTorch, communication buffers and freed blocks are in it. Only
for handing weights over it says what counts, the most that is taken meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch import distributed as dist
from torch.distributed.tensor import DTensor

from benchmarks.worker import ROOT, TAIL, WorkerError, peak_rss_mb, reset_peak_rss
from r1lit.batches import PackedRows
from r1lit.modules.base import PolicyModule
from r1lit.policy import CrossEntropy
from r1lit.rollout.vllm.weights import write_weights

RANKS = 2
MB = 2**20


def megabytes(tensors: Iterable[Tensor]) -> float:
    """Return what this process holds of tensors, in MB; memory that two of them share counts once.

    >>> megabytes([torch.zeros(2**18), torch.zeros(2**18)])
    2.0
    """
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum({t.data_ptr(): t.nbytes for t in local}.values()) / MB


class Updates(PolicyModule):
    """Makes updates on random tokens, and counts what is there meanwhile."""

    def __init__(self, policy: str, num_tokens: int) -> None:
        super().__init__(policy, micro_batch_tokens=num_tokens)
        self.num_tokens = num_tokens
        self.found: dict[str, float] = {}
        self._most_gathered = 0.0

    def on_fit_start(self) -> None:
        """Look at what is gathered before and after each layer, forward and backward."""
        for layer in self.policy.layers:
            layer.register_forward_hook(self._look)

    def _look(self, layer: object = None, inputs: object = None, output: Any = None) -> None:
        gathered = [p for p in self.policy.parameters() if not isinstance(p, DTensor)]
        grads = [p.grad for p in gathered if p.grad is not None]
        self._most_gathered = max(self._most_gathered, megabytes([*gathered, *grads]))
        states = output[0] if isinstance(output, tuple) else output
        if isinstance(states, Tensor) and states.requires_grad:
            states.register_hook(lambda gradient: self._look())

    def training_step(self, batch: int, batch_idx: int) -> None:
        """Make an update, of whose state the first leaves none out."""
        generator = torch.Generator().manual_seed(batch)
        size = (1, self.num_tokens)
        ids_RL = torch.randint(3, self.policy.config.vocab_size - 1, size, generator=generator)
        position_RL = torch.arange(self.num_tokens)[None]
        rows = PackedRows(
            iteration=batch,
            input_ids_RL=ids_RL,
            position_ids_RL=position_RL,
            loss_mask_RL=position_RL > 0,
        )
        self.make_update(
            self.policy_optimizer,
            [lambda: self.policy(rows, CrossEntropy()).cross_entropy / self.num_tokens],
        )

    def on_train_end(self) -> None:
        """Count what is there between updates, then hand the weights over in two ways."""
        sharded = isinstance(self.trainer.strategy, ModelParallelStrategy)
        self.policy.state_dict()  # what is still gathered is freed
        weights = list(self.policy.parameters())
        optimizer: Any = self.policy_optimizer.optimizer
        state = [t for own in optimizer.state.values() for t in own.values() if t.numel() > 1]
        held = megabytes([*weights, *(p.grad for p in weights if p.grad is not None), *state])
        sizes = [
            sum(p.numel() * p.itemsize for p in layer.parameters()) for layer in self._groups()
        ]
        self.found |= {
            "held_mb": held,
            "peak_mb": held + (self._most_gathered if sharded else 0.0),
            "layer_mb": sizes[0] / MB,
            "outside_mb": sizes[1] / MB,
        }
        if sharded:
            self.found |= {"sync_mb": self._sync(), "gather_mb": self._gather()}

    def _groups(self) -> Iterable[torch.nn.Module]:
        outside = torch.nn.Module()
        inside = {id(p) for p in self.policy.layers.parameters()}
        for index, weight in enumerate(self.policy.parameters()):
            if id(weight) not in inside:
                outside.register_parameter(str(index), weight)
        return self.policy.layers[0], outside

    def _sync(self) -> float:
        before = reset_peak_rss()
        if self.global_rank == 0:
            with tempfile.TemporaryDirectory(prefix="r1lit-bench-") as folder:
                write_weights(Path(folder) / "weights", self.policy.named_weights())
        else:
            for _ in self.policy.named_weights():
                pass
        return peak_rss_mb() - before

    def _gather(self) -> float:
        before = reset_peak_rss()
        self.policy.gather()
        return peak_rss_mb() - before


def plain_trainer(kind: str, ranks: int = RANKS) -> Trainer:
    """Return a trainer of ``ranks`` processes on the CPU, by "fsdp2" or "ddp", that only trains."""
    strategy: Any = "ddp"
    if kind == "fsdp2":
        strategy = ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1)
    return Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy=strategy if ranks > 1 else "auto",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )


def run(kind: str, model: str, report: Path, num_tokens: int) -> None:
    """Make two updates on this rank; rank 0 writes what all ranks found."""
    module = Updates(model, num_tokens)
    plain_trainer(kind).fit(module, [0, 1])
    found: list[Any] = [None] * RANKS
    dist.all_gather_object(found, module.found)
    if module.global_rank == 0:
        report.write_text(json.dumps(found))


def measure(kind: str, model: str, folder: Path, num_tokens: int) -> list[dict[str, float]]:
    """Return what each rank found, in processes of their own.

    Raises:
        WorkerError: if one died.
    """
    report = folder / f"{kind}.json"
    command = ["torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    program = ["-m", "benchmarks.sharded_memory", kind, model, str(report), str(num_tokens)]
    done = subprocess.run(
        [sys.executable, "-m", *command, *program],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise WorkerError(f"{kind} on {RANKS} ranks failed:\n{done.stderr[-TAIL:]}")
    return json.loads(report.read_text())


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
