"""An extension of vLLM's workers that spoils what one of them holds; imported by vLLM alone."""

from __future__ import annotations

import r1lit_vllm_worker
import torch


class Extension(r1lit_vllm_worker.Extension):
    """As the one that it is derived from, with one more method."""

    def spoil(self, rank: int, layer: str, key: str) -> None:
        """Change the last element, not 0, of an adapter's buffer by one bit in one worker."""
        if self.rank != rank:  # type: ignore[attr-defined]
            return
        manager = self.model_runner.lora_manager._adapter_manager  # type: ignore[attr-defined]
        flat = vars(manager.modules[layer])[key][0].view(-1)
        last = flat.nonzero()[-1]
        flat[last] = torch.nextafter(flat[last], flat[last] + 1)
