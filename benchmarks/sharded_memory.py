"""The memory of a rank under FSDP2 and under DDP: two processes, two updates, bytes of tensors.

Resident memory is too noisy here: PyTorch, communication buffers and freed blocks are in it. Only
for handing weights over it says what counts, the most that is taken meanwhile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import find_free_network_port
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmarks.worker import ALLOCATOR, Gate, Worker, peak_rss_mb, reset_peak_rss
from r1lit.device.cpu.machine import return_memory
from r1lit.modules.base import PolicyModule
from r1lit.policy import CrossEntropy
from r1lit.rollout.vllm.weights import write_weights
from r1lit.supervised_batches import PackedRows

RANKS = 2
MB = 2**20


def megabytes(tensors: Iterable[Tensor]) -> float:
    """Return what this process holds of tensors, in MB; memory that two of them share counts once.

    >>> megabytes([torch.zeros(2**18), torch.zeros(2**18)])
    2.0
    """
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum({t.data_ptr(): t.nbytes for t in local}.values()) / MB


def whole_megabytes(tensors: Iterable[Tensor]) -> float:
    """Return what all ranks' shards of tensors are together, in MB."""
    return sum(t.numel() * t.itemsize for t in tensors) / MB


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
        inside = {id(p) for p in self.policy.layers.parameters()}
        self.found |= {
            "held_mb": held,
            "peak_mb": held + (self._most_gathered if sharded else 0.0),
            "layer_mb": whole_megabytes(self.policy.layers[0].parameters()),
            "outside_mb": whole_megabytes(p for p in weights if id(p) not in inside),
        }
        if sharded:
            self.found |= {
                "sync_mb": most_taken(self._hand_over),
                "gather_mb": most_taken(self.policy.gather),
            }

    def _hand_over(self) -> None:
        if self.global_rank == 0:
            with tempfile.TemporaryDirectory(prefix="r1lit-bench-") as folder:
                write_weights(Path(folder) / "weights", self.policy.named_weights())
        else:
            for _ in self.policy.named_weights():
                pass


def most_taken(work: Callable[[], object]) -> float:
    """Return by how many MB the process grows during ``work``, at most."""
    return_memory()  # what was freed before, and used again, would not count
    before = reset_peak_rss()
    work()
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


def run(gate: Gate, *, kind: str, model: str, num_tokens: int) -> None:
    """Make two updates on this rank as soon as all are there; report what it found."""
    module = Updates(model, num_tokens)
    plain_trainer(kind).fit(module, [0, 1])
    for _ in gate:
        gate.report(**module.found)


def measure(kind: str, model: str, num_tokens: int) -> list[dict[str, float]]:
    """Return what each rank found, in processes of their own.

    Raises:
        WorkerError: if one died.
    """
    together = {
        **dict.fromkeys(ALLOCATOR),  # freed memory that is kept would hide what a hand-over takes
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(find_free_network_port()),
    }
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                Worker(
                    "benchmarks.sharded_memory:run",
                    environment={**together, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    kind=kind,
                    model=model,
                    num_tokens=num_tokens,
                )
            )
            for rank in range(RANKS)
        ]
        return [rank.step() for rank in ranks]
