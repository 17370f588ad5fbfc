"""Loads policies and reward models onto two ranks (FSDP2), and keeps what became of them.

python sharded_load.py jobs.json results.pt, a list of [name, directory, options] each; the first is
loaded by the module itself, and its peak of memory is measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from torch import distributed as dist

from benchmarks.sharded_memory import plain_trainer
from benchmarks.worker import peak_rss_mb, reset_peak_rss
from r1lit.modules.base import PolicyModule
from r1lit.modules.sharding import idle_forward, shard_models
from r1lit.policy import ModelSource, is_packed, load_policy, load_reward_model
from r1lit.policy.shards import whole
from r1lit.policy.support import with_visible_adapter


def load(name: str, directory: str, **options: Any) -> Any:
    """Load as options say, which JSON can hold."""
    how = {n: options.pop(n) for n in ("dtype", "from_scratch") if n in options}
    if options.pop("adapter", False):
        how["adapter"] = LoraConfig(r=4, target_modules="all-linear")
    source = ModelSource(directory, **how)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name.startswith("reward"):
            return load_reward_model(source, pad_id=0, **options)
        return load_policy(source, **options)


def look_at(model: Any) -> dict[str, Any]:
    """Return what can be compared with a model that was loaded otherwise."""
    state = {n: whole(x.detach()).clone() for n, x in model.model.state_dict().items()}
    state |= {n: x.clone() for n, x in model.model.named_buffers()}
    with torch.no_grad():
        output = idle_forward(model.eval())
    with with_visible_adapter(model):  # else an adapter's B is 0
        handed = {n: x.clone() for n, x in model.named_weights()}
    return {
        "state": state,
        "handed": handed,
        "output": output,
        "trained": sorted(n for n, p in model.model.named_parameters() if p.requires_grad),
        "num_weights": len(list(model.model.parameters())),
        "packed": hasattr(model, "rope_limit") and is_packed(model),
        "generation": str(getattr(model.model, "generation_config", None)),
        "dtype": model.dtype,
    }


class Loads(PolicyModule):
    def __init__(self, jobs: list[Any]) -> None:
        super().__init__(jobs[0][1])
        self.jobs = jobs
        self.found: dict[str, Any] = {}

    def configure_callbacks(self) -> list[Any]:
        """Leave glibc as it is: a run on a CPU keeps freed blocks, which are not held."""
        return []

    def configure_model(self) -> None:
        before = reset_peak_rss()
        super().configure_model()
        self.found["peak_mb"] = peak_rss_mb() - before
        name, *_ = self.jobs[0]
        self.found[name] = look_at(self.policy)
        for name, directory, options in self.jobs[1:]:
            self.policy = load(name, directory, sharded=True, **options)
            unread = self.policy.unread is not None
            shard_models(self)
            self.found[name] = look_at(self.policy) | {"read in shares": unread}

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Train nothing."""


if __name__ == "__main__":
    torch.set_num_threads(1)
    module = Loads(json.loads(Path(sys.argv[1]).read_text()))
    plain_trainer("fsdp2").fit(module, [0])
    peaks: list[Any] = [None, None]
    dist.all_gather_object(peaks, module.found["peak_mb"])
    if module.global_rank == 0:
        torch.save(module.found | {"peaks_mb": peaks}, sys.argv[2])
