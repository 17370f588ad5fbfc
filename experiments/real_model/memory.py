"""The memory that a run holds, logged at each iteration."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback

STATUS = Path("/proc/self/status")
FIELDS = (  # of malloc.h
    *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"),
    *("fordblks", "keepcost"),
)


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


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
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is not None:  # summed over malloc's arenas
        mallinfo2.restype = _Mallinfo2
        info = mallinfo2()
        in_use = info.uordblks + info.hblkhd
        found |= {"in_use": in_use, "free": info.fordblks, "end": info.keepcost}
    return found
