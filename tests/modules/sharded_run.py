"""Two updates of a policy whose weights are sharded (FSDP2) by Lightning, or whole in one process.

python sharded_run.py policy_directory results.pt 1|2
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

from benchmarks.sharded_memory import plain_trainer
from r1lit.modules.base import PolicyModule, clip_gradients, gradient_norm
from r1lit.policy import CrossEntropy
from r1lit.supervised_batches import PackedRows

NUM_TARGETS = (9, 3)  # of the two rows, one of each rank: a mean of means would differ


def row(index: int) -> PackedRows:
    ids = 5 + torch.arange(12).mul(7 + index)[None] % 60
    positions = torch.arange(12)[None]
    return PackedRows(
        iteration=0,
        input_ids_RL=ids,
        position_ids_RL=positions,
        loss_mask_RL=(positions > 0) & (positions <= NUM_TARGETS[index]),
    )


class Sharded(PolicyModule):
    """Cross-entropy of the rows of this rank, or of both in one process."""

    def configure_model(self) -> None:
        super().configure_model()
        self.found: dict[str, Any] = {"norms": [], "num_tokens": []}

    def training_step(self, batch: Any, batch_idx: int) -> None:
        ranks = self.trainer.world_size
        rows = [row(self.global_rank)] if ranks > 1 else [row(0), row(1)]
        count = sum(r.loss_mask_RL.sum() for r in rows)
        num_tokens = self.mean_over_ranks(torch.as_tensor(count))
        losses = [partial(self.loss, r, num_tokens) for r in rows]
        _, norm = self.make_update(self.policy_optimizer, losses)
        self.found["norms"].append(norm)
        self.found["num_tokens"].append(num_tokens)

    def loss(self, rows: PackedRows, num_tokens: float) -> Tensor:
        return self.policy(rows, CrossEntropy()).cross_entropy / num_tokens

    def on_train_end(self) -> None:
        """Look at the gradients of one more backward pass, and clip them."""
        optimizer = self.policy_optimizer.optimizer
        optimizer.zero_grad()
        rows = [row(self.global_rank)] if self.trainer.world_size > 1 else [row(0), row(1)]
        for each in rows:
            self.loss(each, 6.0 if self.trainer.world_size > 1 else 12.0).backward()
        with CommDebugMode() as communication:
            norm = gradient_norm(optimizer)
        self.found["collectives"] = communication.get_total_counts()
        with CommDebugMode() as communication:
            clip_gradients(optimizer, 0.5 * float(norm), norm)
        self.found["clipping"] = communication.get_total_counts()
        self.found["norm"] = float(norm)
        self.found["clipped"] = {n: whole(p.grad) for n, p in self.policy.named_parameters()}
        self.found["weights"] = {n: whole(p.detach()) for n, p in self.policy.named_parameters()}


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


if __name__ == "__main__":
    directory, results, devices = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    module = Sharded(directory, partial(torch.optim.SGD, lr=0.5), max_grad_norm=0.1)
    plain_trainer("fsdp2", devices).fit(module, [0, 1])
    if module.global_rank == 0:
        torch.save(module.found, results)
