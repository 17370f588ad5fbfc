"""The memory that a run holds, logged at each iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback

from r1lit.device.cpu.machine import allocated

STATUS = Path("/proc/self/status")


class ResidentMemory(Callback):
    """Logs what the process holds after an iteration, in gigabytes. Linux with glibc only.

    ``memory/resident_gb`` is all that is resident. ``memory/in_use_gb`` is what malloc has handed
    out, ``memory/free_gb`` what it keeps for later: holes between blocks in use, and the heap's
    end, ``memory/end_gb`` of it. Growth of the first is a leak; of the second, fragmentation.
    """

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Read it from the operating system and from malloc."""
        for name, value in resident().items():
            pl_module.log(f"memory/{name}_gb", value / 1e9)


def resident() -> dict[str, float]:
    """Return the bytes by name; none on another system."""
    if not STATUS.exists():
        return {}
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    found = {"resident": float(lines["VmRSS"].split()[0]) * 1024}
    return found | allocated()
